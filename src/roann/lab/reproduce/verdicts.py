"""The paper's claims, one by one, judged by the records; no verdict is written by hand."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from roann.lab.paper_figures import CLAIMS, LENGTH, SOON
from roann.lab.reproduce.exhibits import of_kind
from roann.lab.reproduce.reading import Reading, best_of, median_of
from roann.lab.reproduce.tables import number, shown, wall

Arm = list[Reading]
Book = Mapping[str, Mapping[str, Arm]]
"""Figure → arm → readings."""

SOLVED_MOON = 0.05
"""Mean squared error of labels ∓1 below which the moons are told apart."""
SUMMED = 0.01
"""Mean squared error at which LEM calls the adding problem solved."""
RECALLED = 0.99
"""Recall accuracy called success."""
CLOSE = 0.003
"""Test accuracies this close are called equal: the spread of seeds is of this size."""


class Verdict(NamedTuple):
    """A claim of the paper beside what was measured.

    Attributes:
        place: where it stands.
        claim: what the paper says.
        ours: what was measured.
        word: "reproduced", "in part", "not reproduced", "not seen" in a shorter training, "not
            run", or "unfinished" as long as a run that it is judged by is.
    """

    place: str
    claim: str
    ours: str
    word: str


class _Claim(NamedTuple):
    """A claim, the arms it is judged by, and how: arms to (what was measured, verdict)."""

    place: str
    text: str
    figure: str
    arms: tuple[str, ...]
    judge: Callable[..., tuple[str, str]]


def verdicts(book: Book, study: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Every claim, judged by what there is."""
    made = []
    for claim in _claims():
        arms = [book.get(claim.figure, {}).get(name) for name in claim.arms]
        ours, word = claim.judge(*arms) if all(arms) else ("", "not run")
        if any(r.run.status == "unfinished" for arm in arms for r in arm or ()):
            word = "unfinished"
        made.append(Verdict(claim.place, claim.text, ours, word))
    return [*made, _bounds(study)]


def _share(good: int, of: int) -> str:
    return "reproduced" if good == of else "in part" if good else "not reproduced"


def _solved(value: float | None) -> bool:
    return value is not None and value < SOLVED_MOON


def _moon(plain: Arm, roa: Arm) -> tuple[str, str]:
    failed = best_of(plain, "best")
    good = sum(_solved(r.score("best")) for r in roa)
    ours = (
        f"plain: best MSE {number(failed)} ({len(plain)} seeds); roaFNN: best "
        f"{number(best_of(roa, 'best'))}, below {SOLVED_MOON} in {good} of {len(roa)}"
    )
    return ours, "not reproduced" if _solved(failed) else _share(good, len(roa))


def _depth(*arms: Arm) -> tuple[str, str]:
    parts = []
    solved = 0
    for arm in arms:
        good = sum(_solved(r.score("best")) for r in arm)
        solved += good == len(arm)
        seconds = [r.training_seconds for r in arm]
        parts.append(
            f"{arm[0].run.config['train']['optimizer']}: below {SOLVED_MOON} in {good} of "
            f"{len(arm)}, best {number(best_of(arm, 'best'))}, training takes "
            f"{wall(statistics.median(seconds))} (median; at most {wall(max(seconds))})"
        )
    some = all(_solved(best_of(arm, "best")) for arm in arms)
    word = "reproduced" if solved == len(arms) else "in part" if some else "not reproduced"
    return "; ".join(parts), word


def _strategies(*arms: Arm) -> tuple[str, str]:
    best = [best_of(arm, "best") for arm in arms]
    ours = "best MSE " + ", ".join(number(value) for value in best)
    good = sum(map(_solved, best))
    return f"{ours} (I and II at L = 50, then at 50,000)", _share(good, len(arms))


def _copying(roa: Arm) -> tuple[str, str]:
    steps = [r.first("recall_accuracy", RECALLED, "higher") for r in roa]
    reached = sorted(step for step in steps if step is not None)
    fell, lost = sum(bool(r.falls) for r in roa), sum(r.lost for r in roa)
    when = f", first at step {reached[0]:,}" if reached else ""
    ours = (
        f"{len(reached)} of {len(roa)} seeds pass {100 * RECALLED:.0f} % recall{when}; "
        f"{fell} collapse at some time, {lost} end lost"
    )
    if not reached:
        return ours, "not reproduced"
    return ours, "reproduced" if not fell and len(reached) == len(roa) else "in part"


def _long_copying(roa: Arm) -> tuple[str, str]:
    below = [r.first("cross_entropy", r.trivial["cross_entropy"], "lower") for r in roa]
    when = ", ".join("never" if step is None else f"at step {step:,}" for step in below)
    early = any(step is not None and step <= 500 for step in below)
    ours = f"below it: {when}; best recall {shown('accuracy', best_of(roa, 'best'))}"
    return ours, "reproduced" if early else "not reproduced"


def _nan(plain: Arm) -> tuple[str, str]:
    diverged = [r for r in plain if r.run.status == "diverged"]
    steps = max(r.run.config["train"]["length"] for r in plain)
    ours = f"{len(diverged)} of {len(plain)} diverge in {steps:,} steps"
    ours += "".join(f"; seed {r.run.seed}: {r.run.result['cause']}" for r in diverged)
    ours += f"; {sum(r.lost for r in plain)} end at guessing or with no number"
    if not diverged and steps < LENGTH["copying"]:
        return ours, f"not seen in {steps:,} of {LENGTH['copying']:,} steps"
    return ours, _share(len(diverged), len(plain))


def _fails(score: str, goal: float, plain: Arm) -> tuple[str, str]:
    """A claim that a baseline does not get there."""
    there = sum(r.first(score, goal, plain[0].better) is not None for r in plain)
    steps = max(r.run.steps for r in plain)
    best = shown(score, best_of(plain, "best"))
    ours = f"{there} of {len(plain)} seeds get there in {steps:,} steps, best {best}"
    return ours, _share(len(plain) - there, len(plain))


def _adding(roa: Arm) -> tuple[str, str]:
    steps = [r.first("mse", SUMMED, "lower") for r in roa]
    good = sum(step is not None and step <= 5000 for step in steps)
    when = ", ".join("never" if step is None else f"{step:,}" for step in steps)
    return f"steps to MSE < {SUMMED}: {when}", _share(good, len(steps))


def _psmnist(published: float, roa: Arm) -> tuple[str, str]:
    best = best_of(roa, "best")
    epochs = max(r.epochs for r in roa)
    ours = f"{shown('accuracy', best)} best of {len(roa)} after {epochs:.0f} epochs"
    if len(roa) > 1:
        ours += f", median {shown('accuracy', median_of(roa, 'best'))}"
    if best is not None and best >= published - CLOSE:
        return ours, "reproduced"
    return ours, "not reproduced"


def _soon(epoch: int, accuracy: float, *arms: Arm) -> tuple[str, str]:
    """A claim on the accuracy after so many epochs, for every width."""
    after = {
        arm[0].run.model["hidden_size"]: [v for r in arm if (v := r.after(epoch)) is not None]
        for arm in arms
    }
    parts = [
        f"N = {N}: " + ", ".join(shown("accuracy", v) for v in values) if values else f"N = {N}: –"
        for N, values in after.items()
    ]
    good = sum(any(v > accuracy for v in values) for values in after.values())
    return "; ".join(parts), _share(good, len(arms))


def pairs(roa: Sequence[Reading], eye: Sequence[Reading]) -> tuple[int, int]:
    """In how many pairs of one seed the first is better at its best, and how many pairs."""
    other = {r.run.seed: r.score("best") for r in eye}
    wins = total = 0
    for r in roa:
        if r.run.seed in other:
            mine, theirs = r.score("best"), other[r.run.seed]
            total += 1
            wins += mine is not None and (
                theirs is None or (mine > theirs if r.better == "higher" else mine < theirs)
            )
    return wins, total


def _ablation(roa: Arm, eye: Arm) -> tuple[str, str]:
    wins, total = pairs(roa, eye)
    mine, theirs = (shown(roa[0].primary, median_of(arm, "best")) for arm in (roa, eye))
    return f"better in {wins} of {total} pairs; medians {mine} and {theirs}", _share(wins, total)


def _claims() -> list[_Claim]:
    moon, deep = "double-moon-roa-50", "double-moon-roa-50000"
    made = [
        _Claim(
            "Fig. 1",
            "50 layers of 2 neurons: a plain network fails, a roaFNN solves the double moon",
            "fig1",
            ("double-moon-vanilla-50", moon),
            _moon,
        ),
        _Claim(
            "Fig. 1",
            "50,000 layers converge within 10 epochs with SGD, NAG and Adam",
            "fig1",
            (f"{deep}-sgd", f"{deep}-nag", f"{deep}-adam"),
            _depth,
        ),
        _Claim(
            "Fig. 1",
            "cheaper filters serve as well: semi-permutations (I), one O for all layers (II)",
            "fig1",
            tuple(f"{stem}-strategy-{k}" for stem in (moon, f"{deep}-adam") for k in (1, 2)),
            _strategies,
        ),
    ]
    for L in (400, 2000):
        text = f"copying, L = {L:,}: 100 % on most steps after 2,000 (best of 5 seeds)"
        made.append(_Claim("Fig. 2", text, "fig2", (f"copying-{L}",), _copying))
    text = "copying, L = 10,000: below the trivial cross-entropy within 500 steps"
    made.append(_Claim("Fig. 2", text, "fig2", ("copying-10000",), _long_copying))
    text = f"copying, L = 400: an LSTM struggles (here: {100 * RECALLED:.0f} % recall)"
    judge = partial(_fails, "recall_accuracy", RECALLED)
    made.append(_Claim("Fig. 2", text, "fig2", ("copying-400-lstm",), judge))
    text = "copying, L = 2,000: vanilla RNNs end in NaN in all trials"
    made.append(_Claim("Fig. 2", text, "fig2", ("copying-2000-rnn",), _nan))
    for T in (200, 1000, 5000):
        text = f"adding, T = {T:,}: converges within 5,000 steps"
        made.append(_Claim("Fig. 3", text, "fig3", (f"adding-{T}",), _adding))
    text = f"adding, T = 1,000: a vanilla RNN fails (here: MSE < {SUMMED})"
    judge = partial(_fails, "mse", SUMMED)
    made.append(_Claim("Fig. 3", text, "fig3", ("adding-1000-rnn",), judge))
    widths = tuple(f"psmnist-{N}" for N in PSMNIST)
    for epoch, accuracy in SOON.items():
        text = f"psMNIST: above {100 * accuracy:.0f} % after {epoch} "
        text += "epoch" if epoch == 1 else "epochs, in all cases"
        judge = partial(_soon, epoch, accuracy)
        made.append(_Claim("Fig. 5", text, "table1", widths, judge))
    for N, best in PSMNIST.items():
        text = f"psMNIST, N = {N}: {100 * best:.2f} % best test accuracy in 20 epochs"
        made.append(_Claim("Table 1", text, "table1", (f"psmnist-{N}",), partial(_psmnist, best)))
    for task in ("copying", "adding", "psmnist"):
        names = (f"ablation-{task}-qr", f"ablation-{task}-identity")
        text = f"{task}: a random orthogonal O beats the identity"
        made.append(_Claim("Fig. 6", text, "fig6", names, _ablation))
    return made


PSMNIST: dict[int, float] = {
    claim.where["hidden_size"]: claim.value
    for claim in CLAIMS
    if (claim.task, claim.model) == ("psmnist", "roa-rnn") and claim.value is not None
}
"""Best test accuracy of the roaRNN in the paper's table, by N."""


def _bounds(study: Sequence[Mapping[str, Any]]) -> Verdict:
    found = [line for line in of_kind(study, "spectrum") if "finite" in line]
    claim = "the singular values of the input–output Jacobian lie in the interval of the theorems"
    if not found:
        return Verdict("Theorems", claim, "", "not run")
    inside = sum(line["finite"]["inside"] for line in found)
    lengths = sorted({line["maps"] for line in found})
    below = [line for line in of_kind(study, "worst-case") if line["sigma"][-1] < line["paper"]]
    ours = (
        f"{inside} of {len(found)} measured spectra ({lengths[0]:,} to {lengths[-1]:,} maps) lie "
        "in the interval that holds for finite L"
    )
    if below:
        ours += "; the paper's lower end holds only in the limit, and a network below it is shown"
    word = "in part" if below and inside == len(found) else _share(inside, len(found))
    return Verdict("Theorems", claim, ours, word)
