"""Collapses, and what helps against them, as the page tells of invented runs."""

import pytest
from invented_runs import book_of, run

from roann.lab.reproduce import chapters
from roann.lab.reproduce.collapses import collapses, elsewhere
from roann.lab.reproduce.reading import Fall, Reading, arms_of
from roann.lab.reproduce.stability import stability
from roann.lab.reproduce.verdicts import verdicts


def probe(step, norm, bound=None):
    return {"step": step, "norm_W": norm, "sigma": [1.0, -2.0], "bound": bound}


@pytest.mark.parametrize(
    ("scores", "status", "expected"),
    [
        ([0.9, 1.0, 0.13], "finished", [Fall(200, 300)]),
        ([0.9, 0.4, 0.13], "finished", [Fall(100, 300)]),
        ([0.13, 0.4, 0.13], "finished", []),
        ([0.9, 0.13, 0.95, 0.1], "finished", [Fall(100, 200), Fall(300, 400)]),
        ([0.9], "diverged", [Fall(100, 100, diverged=True)]),
        ([0.2], "diverged", []),
        ([0.9, 0.13], "unfinished", [Fall(100, 200)]),
    ],
)
def test_a_fall_is_from_above_half_to_lost(scores, status, expected):
    assert Reading(run("copying-400-s0", "copying", scores, status)).falls == expected


def test_collapsing_seeds_are_told_apart_by_early_growth_only_if_they_are():
    def arms(norm):
        kept = run("copying-400-s0", "copying", [1.0], probes=[probe(0, 27.0), probe(50, 100.0)])
        seen = [probe(0, 27.0), probe(50, norm, {"lower": None, "upper": 80.0})]
        fell = run("copying-400-s1", "copying", [0.9, 0.125], probes=seen)
        return arms_of([kept, fell])

    far = "\n".join(collapses(arms(400.0)))
    assert (
        "`copying-400`: 1 of 2 seeds collapse. ‖W‖ starts at 27 and within 50 updates is 400" in far
    )
    assert "in the others: larger." in far
    row = "90.00 % at 100 | 200 (12.50 %) | ends at 12.50 % | 50 | 400 | −2 … 1 | – … 80 |"
    assert f"| `copying-400-s1` | {row}" in far
    assert "in the others: smaller." in "\n".join(collapses(arms(99.0)))
    assert "in the others: no difference." in "\n".join(collapses(arms(100.0)))
    kept = {"copying-400": arms(1.0)["copying-400"][:1]}
    assert "0 of 1 seeds collapse." in "\n".join(collapses(kept))
    assert collapses({}) == []


def frame(step, loss, gradient, norm=400.0, top=2.0, **more):
    place = {"kind": "leap", "step": step, "seconds": 0.0, "loss": loss, "grad_norm": gradient}
    ends = {"sigma_max": top, "sigma_min": -500.0}
    return {**place, "norm_W": norm, **ends, "bound": {"upper": 900}, **more}


def test_the_steps_around_a_collapse_say_what_grew():
    fell = run("copying-400-s1", "copying", [0.9, 0.125])
    early = [frame(step, 0.001, 1e9) for step in (7, 8)]  # another leap, before it had learnt
    steep = [frame(150, 0.01, 0.1), frame(151, 0.01, 1.0), frame(152, 5.0, 60.0, 404.0, 30.0)]
    fell.records.extend(early + steep)
    text = "\n".join(collapses(arms_of([fell])))
    assert "| `copying-400-s1` 152 | 5 | 60 | – | 404 | −500 … 30 | 900 |" in text
    assert "`copying-400-s1` 8 |" not in text
    grown = "by the step before it the gradient is 10 times the first, the loss 1 times"
    assert f"‖W‖ changes by 1 % at most; {grown}" in text
    assert "the largest ln σ goes from 2 to 30 (medians)." in text
    assert "it is not ‖W‖ that runs away before the leap" in text
    assert "An update moves" not in text
    grown = run("copying-400-s1", "copying", [0.9, 0.125])
    grown.records.extend([*steep[:2], frame(152, 5.0, 60.0, 800.0, 30.0)])
    text = "\n".join(collapses(arms_of([grown])))
    assert "‖W‖ changes by 1e+02 % at most" in text
    assert "runs away" not in text


def test_how_far_the_updates_of_a_collapse_move_a_weight():
    fell = run("copying-400-s1", "copying", [0.9, 0.125])
    lr = fell.config["train"]["lr"]
    moved = {150: 0.25 * lr, 151: 2 * lr, 152: 50 * lr}
    for step, loss in ((150, 0.01), (151, 0.01), (152, 5.0)):
        fell.records.append(frame(step, loss, loss, moved=moved[step]))
    text = "\n".join(collapses(arms_of([fell])))
    assert "| `copying-400-s1` 151 | 0.01 | 0.01 | 2 | 400 |" in text
    moves = "moves a weight by 0.25 learning rates in the first and by up to 2 before the worst"
    assert moves in text


def test_the_same_seeds_on_another_processor_are_told_beside_ours():
    here = [run(f"copying-400-s{k}", "copying", [1.0, v]) for k, v in enumerate((1.0, 0.125))]
    there = [run(f"copying-400-s{k}", "copying", [0.9, v]) for k, v in enumerate((0.125, 0.9))]
    for r in here + there:
        r.env.update(cpu="A" if r in here else "B", native_kernel="avx2", commit="c")
    book = book_of(fig2=here, elsewhere=there)
    text = "\n".join(elsewhere(book["fig2"], book))
    assert "A, avx2 (commit c): past 99 % 0, 1; collapsed 1; lost at the end 1. B, avx2 " in text
    assert "B, avx2 (commit c): past 99 % none; collapsed 0; lost at the end 0. Weights" in text
    assert "not the fate of a seed" in text
    page = "\n".join(chapters.copying(book["fig2"], book))
    assert "- `copying-400`: 1 of 2 seeds collapse." in page
    assert "- `copying-400, elsewhere`: 1 of 2 seeds collapse." in page
    assert "| `copying-400-s0, elsewhere` | 90.00 % at 100 | 200 (12.50 %) |" in page
    alike = book_of(fig2=here, elsewhere=here)
    assert "fate" not in "\n".join(elsewhere(alike["fig2"], alike))
    assert elsewhere({}, book) == []
    warm = book | book_of(stable=[run("copying-400-warmup-s0", "copying", [1.0, 1.0])])
    assert "How much of this is luck?" not in "\n".join(stability(warm["stable"], warm))
    warm["elsewhere"]["copying-400"].pop(0)
    luck = "`copying-400` collapses in 1 of 2 seeds here, and in 0 of the same 1 on another"
    assert luck in "\n".join(stability(warm["stable"], warm))
    (claim,) = [v for v in verdicts(book, []) if "longer runs" in v.claim]
    assert claim.ours.startswith("1 of 3 seeds collapse after having learnt")


def test_a_change_is_judged_over_the_same_seeds():
    scores = ([1.0, 1.0], [1.0, 0.125], [1.0, 0.125])
    base = [run(f"copying-400-s{k}", "copying", values) for k, values in enumerate(scores)]
    warm = [run(f"copying-400-warmup-s{k}", "copying", [1.0, 1.0]) for k in range(2)]
    book = book_of(fig2=base, stable=warm)
    text = "\n".join(stability(book["stable"], book))
    at = "2 meet the goal at some time (first at steps 100, 100)"
    now = f"0 of 2 seeds collapse, 0 end lost, {at}"
    was = f"1 of 2 seeds collapse, 1 end lost, {at}"
    assert (
        f"- `copying-400-warmup`: {now}; without the change {was}. By these counts it helps."
        in text
    )
    swapped = book_of(
        fig2=[run(f"copying-400-s{k}", "copying", [1.0, 1.0]) for k in range(2)],
        stable=[run(f"copying-400-warmup-s{k}", "copying", scores[k]) for k in range(2)],
    )
    text = "\n".join(stability(swapped["stable"], swapped))
    assert (
        f"- `copying-400-warmup`: {was}; without the change {now}. By these counts it harms."
        in text
    )
    mixed = book_of(
        fig2=[run("copying-400-s0", "copying", [0.9, 0.9])],
        stable=[run("copying-400-warmup-s0", "copying", [1.0, 0.125])],
    )
    text = "\n".join(stability(mixed["stable"], mixed))
    assert "It helps in goals met, and harms in collapses and losses." in text
    going_on = run("copying-400-warmup-s0", "copying", scores[0], status="unfinished")
    book = book_of(fig2=base, stable=[going_on])
    assert "Not judged while runs are unfinished." in "\n".join(stability(book["stable"], book))


def test_a_shorter_change_is_held_against_the_beginning_of_the_unchanged_runs():
    """What collapses only after the changed run has ended is no argument for it."""
    base = [run("copying-10000-s0", "copying", [1.0, 1.0, 0.125])]
    calm = [run("copying-10000-rho-0.1-s0", "copying", [1.0, 1.0], train={"length": 200})]
    book = book_of(fig2=base, stable=calm)
    same = "0 of 1 seeds collapse, 0 end lost, 1 meet the goal at some time (first at steps 100)"
    text = "\n".join(stability(book["stable"], book))
    assert f"{same}; without the change {same}. By these counts it makes no difference." in text
    calm[0].records.append(frame(150, 5.0, 60.0))
    text = "\n".join(stability(book["stable"], book))
    assert f"{same}, while the loss leapt in seeds 0 and came back; without" in text


def test_adding_with_warm_up_stands_beside_adding_without():
    base = [run(f"adding-1000-s{k}", "adding", [v]) for k, v in enumerate((0.2, 0.005))]
    warm = [run(f"adding-1000-warmup-s{k}", "adding", [0.1, 0.004]) for k in range(2)]
    book = book_of(fig3=base, stable=warm)
    text = "\n".join(stability(book["stable"], book))
    assert "| `adding-1000` |" in text
    met = "2 meet the goal at some time (first at steps 200, 200)"
    assert f"0 of 2 seeds collapse, 0 end lost, {met}; without" in text
    assert "without the change 0 of 2 seeds collapse, 1 end lost, 1 meet the goal" in text


def test_a_best_checkpoint_and_a_rule_to_stop_save_what_was_learnt():
    """One run learns and is lost, one is never good for long, one never learns."""
    scores = ([0.99, 1.0, 0.995, 0.125], [1.0, 0.5, 0.99, 1.0], [0.125, 0.125, 0.125, 0.125])
    base = [run(f"copying-400-s{k}", "copying", values) for k, values in enumerate(scores)]
    warm = [run("copying-400-warmup-s0", "copying", [1.0, 1.0, 1.0, 1.0])]
    book = book_of(fig2=base, stable=warm)
    text = "\n".join(stability(book["stable"], book))
    assert "| `copying-400` | 1 of 3 | 2 of 3 | 1 of 3 | 300 | 99.50 % | 1 |" in text
    assert "| `copying-400-warmup` | 1 of 1 | 1 of 1 | 1 of 1 | 300 | 100.00 % | 0 |" in text
