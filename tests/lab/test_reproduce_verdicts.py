"""Verdicts, and the sentences of the page, follow from records: invented ones, of known outcome."""

import math

import pytest
from invented_runs import book_of, run

from roann.lab.reproduce import chapters, moons, studies
from roann.lab.reproduce.judges import pairs
from roann.lab.reproduce.pages import reproduction
from roann.lab.reproduce.reading import Reading, arms_of, best_of, median_of, spread
from roann.lab.reproduce.verdicts import verdicts


def word(book, claim):
    return verdict(book, claim).word


def verdict(book, claim):
    (found,) = [v for v in verdicts(book, []) if claim in v.claim]
    return found


def test_without_records_nothing_is_claimed():
    assert {v.word for v in verdicts({}, [])} == {"not run"}


def test_a_run_is_lost_if_it_ends_at_guessing_or_diverges():
    assert Reading(run("a-s0", "copying", [0.9, 0.13])).lost
    assert not Reading(run("a-s0", "copying", [0.13, 0.9])).lost
    assert Reading(run("a-s0", "copying", [0.9], status="diverged")).lost
    assert not Reading(run("a-s0", "copying", [0.13], status="unfinished")).lost
    assert Reading(run("a-s0", "adding", [0.01, 1 / 6])).lost
    assert Reading(run("a-s0", "adding", [0.01, 7.0])).lost  # worse than guessing


def test_best_and_median_count_what_diverged_as_worst():
    arm = [Reading(run(f"a-s{k}", "adding", [v])) for k, v in enumerate((0.1, 0.2))]
    arm.append(Reading(run("a-s2", "adding", [0.001], status="diverged")))
    assert best_of(arm, "best") == 0.001
    assert best_of(arm, "final") == 0.1
    assert median_of(arm, "final") == 0.2
    assert median_of(arm[2:], "final") is None


def test_the_first_step_at_a_goal_and_the_way_to_it():
    reading = Reading(run("a-s0", "copying", [0.2, 0.995, 0.3, 1.0]))
    assert reading.first("recall_accuracy", 0.99, "higher") == 200
    assert reading.first("recall_accuracy", 1.01, "higher") is None
    assert reading.progress(1.0) == 1.0
    assert reading.progress(1 / 8) == 0.0


def test_the_time_of_a_step_is_without_evaluations():
    """Steps take 0.1 s, evaluations (after steps 50 and 100) 7 s; their lines have their begin."""
    reading = Reading(run("a-s0", "adding", []))
    for step, seconds in ((20, 2.0), (40, 4.0), (60, 13.0), (80, 15.0), (100, 17.0), (120, 26.0)):
        reading.run.records.append({"kind": "train", "step": step, "seconds": seconds})
    for step, seconds in ((50, 5.0), (100, 17.0)):
        reading.run.records.append({"kind": "eval", "step": step, "seconds": seconds})
    assert reading.step_seconds == pytest.approx(0.1)
    assert Reading(run("a-s0", "adding", [])).step_seconds is None


def test_copying_is_reproduced_in_part_if_a_seed_is_lost():
    good = [run(f"copying-400-s{k}", "copying", [0.5, 1.0]) for k in range(2)]
    lost = run("copying-400-s2", "copying", [0.5, 0.125])
    claim = "copying, L = 400: 100 %"
    assert word(book_of(fig2=good), claim) == "reproduced"
    assert word(book_of(fig2=[*good, lost]), claim) == "in part"
    assert word(book_of(fig2=[lost]), claim) == "not reproduced"
    wavering = run("copying-400-s3", "copying", [0.5, 1.0, 0.9, 1.0])
    found = verdict(book_of(fig2=[lost, wavering]), claim)
    assert found.ours == (
        "1 of 2 seeds pass 99 % recall by step 4,000, first at step 200; the steadiest seed has "
        "99 % in 2 of 3 evaluations from then on; 0 collapse at some time, 1 end lost"
    )


def test_a_shorter_training_than_the_papers_is_judged_as_far_as_it_goes():
    half = run("copying-400-s0", "copying", [0.5, 1.0], train={"length": 2000})
    half.config["task"]["lag"] = 400
    assert word(book_of(fig2=[half]), "L = 400: 100 %") == "reproduced as far as run"
    half.config["train"]["length"] = 4000
    assert word(book_of(fig2=[half]), "L = 400: 100 %") == "reproduced"


def test_long_copying_is_judged_by_cross_entropy_within_500_steps():
    early = [{"recall_accuracy": 0.2, "cross_entropy": 0.06}, {"cross_entropy": 0.049}]
    late = [{"recall_accuracy": 0.2, "cross_entropy": 0.06}] * 6 + early
    claim = "L = 10,000"

    def judged(scores, status="finished"):
        return word(book_of(fig2=[run("copying-10000-s0", "copying", scores, status)]), claim)

    assert judged(early) == judged(early, "unfinished") == "reproduced"
    assert judged(late) == judged(late, "unfinished") == "not reproduced"
    assert judged(late[:2], "unfinished") == "unfinished"


def test_seeds_that_fall_are_the_instabilities_of_the_paper():
    claim = "longer runs sometimes"
    fell = run("copying-400-s0", "copying", [0.9, 0.125])
    kept = run("copying-2000-s0", "copying", [0.9, 0.9])
    found = verdict(book_of(fig2=[kept, fell]), claim)
    assert found.word == "reproduced"
    assert found.ours == "1 of 2 seeds collapse after having learnt, first by step 200"
    assert word(book_of(fig2=[kept]), claim) == "not reproduced"
    going_on = run("copying-2000-s1", "copying", [0.9], "unfinished")
    assert word(book_of(fig2=[kept, going_on]), claim) == "unfinished"


@pytest.mark.parametrize(
    ("losses", "expected"),
    [((0.001, 0.04, 0.05), "reproduced"), ((0.001, 0.05, 0.04), "in part"),
     ((0.05, 0.04, 0.06), "not reproduced")],
)  # fmt: skip
def test_the_order_of_three_systems_is_that_of_their_losses(losses, expected):
    names = ("copying-400-s0", "copying-400-lstm-s0", "copying-400-rnn-s0")
    runs = [
        run(name, "copying", [{"recall_accuracy": 0.5, "cross_entropy": v}, {"cross_entropy": 1}])
        for name, v in zip(names, losses, strict=True)
    ]
    assert word(book_of(fig2=runs), "far better than an LSTM") == expected


@pytest.mark.parametrize(
    ("best", "epochs", "expected"),
    [(0.9724, 20, "reproduced"), (0.96, 20, "not reproduced"), (0.98, 5, "reproduced")],
)
def test_psmnist_is_judged_by_best_test_accuracy(best, epochs, expected):
    runs = [run("psmnist-178-s0", "psmnist", [0.9] * (epochs - 1) + [best])]
    assert word(book_of(table1=runs), "N = 178") == expected


def test_adding_needs_every_seed():
    runs = [run("adding-200-s0", "adding", [0.1, 0.009]), run("adding-200-s1", "adding", [0.1])]
    assert word(book_of(fig3=runs[:1]), "T = 200:") == "reproduced"
    assert word(book_of(fig3=runs), "T = 200:") == "in part"


def test_the_deep_plain_network_must_fail():
    roa = run("double-moon-roa-50-s0", "double-moon", [0.01])
    plain = run("double-moon-vanilla-50-s0", "double-moon", [0.9])
    solved = run("double-moon-vanilla-50-s0", "double-moon", [0.01])
    assert word(book_of(fig1=[roa, plain]), "50 layers of 2") == "reproduced"
    assert word(book_of(fig1=[roa, solved]), "50 layers of 2") == "not reproduced"


def test_the_very_deep_network_may_need_no_more_epochs():
    def moon(name, scores, optimizer, layers):
        made = run(name, "double-moon", scores, train={"optimizer": optimizer})
        made.config["model"]["layers"] = layers
        return made

    slow, fast = [0.9, 0.9, 0.01], [0.9, 0.01]
    shallow = moon("double-moon-roa-50-s0", slow, "sgd", 50)
    scores = {"sgd": fast, "nag": slow, "adam": [0.9] * 3}
    deep = [moon(f"double-moon-roa-50000-{o}-s0", v, o, 50000) for o, v in scores.items()]
    found = verdict(book_of(fig1=[shallow, *deep]), "the same rate")
    assert found.word == "in part"
    assert found.ours.endswith(
        "50 layers, sgd: 3; 50,000 layers, sgd: 2; 50,000 layers, nag: 3; 50,000 layers, adam: ∞"
    )
    found = verdict(book_of(fig1=deep), "within 10 epochs")
    assert found.word == "in part"
    assert "sgd: below 0.05 in 1 of 1, best 0.01 (1 at the end), training takes" in found.ours


def test_a_training_made_twice_that_ended_otherwise_is_named():
    def made(name, score, unit):
        found = run(name, "double-moon", [score], train={"lr": 2.0})
        found.env["native_kernel"] = unit
        return found

    search = arms_of([made("double-moon-roa-50-lr-2-s0", 0.01, "avx2")])
    used = arms_of([made("double-moon-roa-50-s0", 0.9, "avx512")])
    text = "\n".join(moons.learning_rates(search, used))
    assert "told apart: `double-moon-roa-50-s0` 0.9 (avx512) and 0.01 (avx2)." in text
    used = arms_of([made("double-moon-roa-50-s0", 0.02, "avx512")])
    assert "repeats to the bit" not in "\n".join(moons.learning_rates(search, used))


def test_pairs_are_of_one_seed():
    roa = [Reading(run(f"a-s{k}", "adding", [v])) for k, v in enumerate((0.1, 0.3, 0.1))]
    eye = [Reading(run(f"b-s{k}", "adding", [0.2])) for k in range(2)]
    assert pairs(roa, eye) == (1, 2)


def test_the_bounds_are_in_part_because_of_the_lower_end():
    spectrum = {"kind": "spectrum", "maps": 10, "finite": {"inside": True, "lower": -9.0}}
    worst = {"kind": "worst-case", "sigma": [-5.0], "paper": -4.0}
    assert verdicts({}, [spectrum])[-1].word == "reproduced"
    assert verdicts({}, [spectrum, worst])[-1].word == "in part"
    outside = spectrum | {"finite": {"inside": False, "lower": -9.0}}
    assert verdicts({}, [outside])[-1].word == "not reproduced"
    open_below = spectrum | {"finite": {"inside": True, "lower": None}}
    ours = verdicts({}, [spectrum, open_below])[-1].ours
    assert ours.startswith("1 of 1 measured spectra (10 to 10 maps)")
    assert "; 1 of 1, of so few maps that there is no lower end" in ours


def probe(step, norm):
    return {"step": step, "norm_W": norm, "sigma": [1.0, None]}


def test_a_null_singular_value_is_zero():
    assert spread(probe(0, 1.0)) == (-math.inf, 1.0)
    assert spread({"step": 0}) is None


def test_learning_rates_name_the_best_and_the_one_used():
    """The best solves it for most seeds, even if another has the least error."""
    errors = {0.1: (0.5, 0.6), 0.5: (0.03, 0.04), 2.0: (0.9, 0.001)}
    search = arms_of(
        run(f"double-moon-roa-50-lr-{lr:g}-s{k}", "double-moon", [error], train={"lr": lr})
        for lr, values in errors.items()
        for k, error in enumerate(values)
    )
    used = arms_of([run("double-moon-roa-50-s0", "double-moon", [0.01], train={"lr": 2.0})])
    text = "\n".join(moons.learning_rates(search, used))
    tried = "0.1: 0.5 · 0.6; 0.5: 0.03 · 0.04; 2: 0.9 · 0.001"
    assert f"| `double-moon-roa-50` | {tried} | 0.5 | 2 |" in text
    del search["double-moon-roa-50-lr-2"]
    text = "\n".join(moons.learning_rates(search, {}))
    assert "| 0.5, at the edge of the search | – |" in text
    del search["double-moon-roa-50-lr-0.5"]
    text = "\n".join(moons.learning_rates(search, {}))
    assert "| 0.1: 0.5 · 0.6 | none solves it | – |" in text


def test_psmnist_below_the_paper_says_what_is_missing():
    runs = [run("psmnist-178-s0", "psmnist", [0.9] * 19 + [0.96])]
    text = "\n".join(chapters.psmnist(arms_of(runs), {}))
    assert "stays 1.24 points below the paper" in text
    assert "generalisation, not training" in text
    reached = [run("psmnist-178-s0", "psmnist", [0.95] * 19 + [0.971])]
    text = "\n".join(chapters.psmnist(arms_of(reached), {}))
    assert "points below" not in text


@pytest.mark.parametrize(
    ("after", "possible", "all_pass"),
    [
        ((0.985, 0.985, 0.985), "reproduced", "reproduced"),
        ((0.9, 0.985, 0.985), "reproduced", "in part"),
        ((0.9, 0.975, None), "unfinished", "in part"),
        ((0.9, 0.9, 0.9), "not reproduced", "not reproduced"),
        ((0.9, None, None), "unfinished", "unfinished"),
        ((0.985, None, None), "reproduced", "unfinished"),
    ],
)
def test_what_ten_epochs_give_is_judged_as_soon_as_it_is_settled(after, possible, all_pass):
    runs = []
    for N, value in zip((178, 256, 512), after, strict=True):
        scores = [0.5] * 9 + ([] if value is None else [value])
        runs.append(run(f"psmnist-{N}-s0", "psmnist", scores, "unfinished"))
    book = book_of(table1=runs)
    assert word(book, "98 % after 10 epochs is possible") == possible
    found = verdict(book, "97 % after 10 epochs in all cases")
    assert found.word == all_pass
    assert found.ours.startswith(f"N = 178: {100 * after[0]:.2f} %; N = 256: ")
    del book["table1"]["psmnist-512"]  # not begun is like not so far
    settled = all_pass if after[2] is None or all_pass == "in part" else "unfinished"
    assert word(book, "97 % after 10 epochs in all cases") == settled


def test_a_baseline_that_gets_there_contradicts_the_paper():
    claim = "copying, L = 400: an LSTM"
    fails = [run(f"copying-400-lstm-s{k}", "copying", [0.3]) for k in range(2)]
    assert word(book_of(fig2=fails), claim) == "reproduced"
    solves = run("copying-400-lstm-s2", "copying", [0.3, 1.0])
    assert word(book_of(fig2=[*fails, solves]), claim) == "in part"
    found = verdict(book_of(fig2=[solves]), claim)
    assert found.word == "not reproduced"
    assert found.ours == "1 of 1 seeds get there in 200 steps, best 100.00 %"


def test_no_nan_in_a_short_training_is_not_seen_rather_than_not_reproduced():
    claim = "vanilla RNNs end in NaN"
    short = run("copying-2000-rnn-s0", "copying", [0.125], train={"length": 400})
    assert word(book_of(fig2=[short]), claim) == "not seen in 400 steps"
    whole = run("copying-2000-rnn-s1", "copying", [0.125])
    ended = run("copying-2000-rnn-s2", "copying", [0.125], status="diverged")
    ended.result["cause"] = "update 7 made W non-finite"
    found = verdict(book_of(fig2=[whole, ended]), claim)
    assert found.word == "in part"
    assert "1 of 2 diverge in 4,000 steps; seed 2: update 7 made W non-finite" in found.ours
    assert found.ours.endswith("2 end with no number or no better than guessing")


def test_kinds_of_rho_are_compared_with_one_fixed_rho_of_the_same_seed():
    scores = {"scalar": (0.1, 0.3), "learned": (0.05, 0.4), "multiscale": (0.01,)}
    runs = [
        run(f"rho-kinds-adding-{kind}-rho-0.005-s{k}", "adding", [v], model={"rho": 0.005}, T=400)
        for kind, values in scores.items()
        for k, v in enumerate(values)
    ]
    text = "\n".join(studies.rho_kinds(arms_of(runs), {}))
    assert "### adding, T = 400, N = 178, 4,000 steps" in text
    assert "| 0.005 | 0.1 · 0.3 | 0.05 · 0.4 | – | 0.01 | – |" in text
    wins = "1, worse 1, of 2 | – | 1, worse 0, of 1 | – |"
    assert f"| better than one ρ | – | {wins}" in text
    assert "| lost at the end | 1 of 2 | 1 of 2 | – | 0 of 1 | – |" in text


def test_the_league_is_sorted_by_the_median_and_shows_both_ends():
    ends = [{"step": 0, "sigma": [0.5, -0.25]}, {"step": 300, "sigma": [2.0, None]}]
    large = [{"step": 0, "sigma_max": 1.5, "sigma_min": None}]
    budget = {"max_seconds": 40.0}
    runs = [
        run("league-adding-200-lstm-s0", "adding", [0.1, 0.2, 0.1], train=budget, probes=ends),
        run("league-adding-200-lstm-s1", "adding", [0.1, 0.3, 0.3], train=budget),
        run("league-adding-200-urnn-s0", "adding", [0.01], train=budget, probes=large),
        run("league-adding-200-gru-s0", "adding", [0.2], "unfinished", train=budget),
    ]
    text = "\n".join(studies.league(arms_of(runs), {}))
    assert "### adding-200, 40 s each" in text
    rows = [line for line in text.splitlines() if "1,230" in line]
    assert rows == [
        "| urnn | 1,230 | 100 | 1 | 10 | 0.01 | 0.01 | 0 of 1 | −∞ … 1.5 | – |",
        "| lstm | 1,230 | 300 | 3 | 10 | 0.1 | 0.1 | 1 of 2 | −0.25 … 0.5 | −∞ … 2 |",
        "| gru (under way) | 1,230 | 100 | 1 | 10 | 0.2 | 0.2 | 0 of 1 | – | – |",
    ]


def test_the_page_has_a_chapter_for_what_was_run_and_the_cost():
    runs = {"fig3": [run(f"adding-200-s{k}", "adding", [0.1, 0.009]) for k in range(2)]}
    book = {name: arms_of(group) for name, group in runs.items()}
    text = reproduction(runs, book, [], verdicts(book, []))
    assert "## Fig. 3: the adding problem" in text
    assert "## Fig. 2" not in text
    assert "Cost: 2 runs, 20 s of one core in all (Fig. 3 20 s), so 10 s on two" in text
    assert "| `adding-200` | 200 | 200 |" in text
    runs["fig3"][0].config["train"]["threads"] = 2
    text = reproduction(runs, book, [], verdicts(book, []))
    assert "Cost: 2 runs, 30 s of one core in all (Fig. 3 30 s), so 15 s on two" in text
    assert "- 2 runs: torch 2" in text
    assert text == reproduction(runs, book, [], verdicts(book, []))


def test_a_run_under_way_is_not_judged():
    done = run("psmnist-178-s0", "psmnist", [0.98] * 20)
    going_on = run("psmnist-178-s1", "psmnist", [0.98] * 3, status="unfinished")
    assert word(book_of(table1=[done]), "N = 178") == "reproduced"
    assert word(book_of(table1=[done, going_on]), "N = 178") == "unfinished"


def test_what_is_smaller_than_the_paper_is_said():
    sums = [run(f"adding-200-s{k}", "adding", [0.1] * 50) for k in range(5)]
    digits = [run("psmnist-178-s0", "psmnist", [0.9] * 6)]
    text = "\n".join(chapters.departures(book_of(fig3=sums, table1=digits)))
    assert "`adding-200`" not in text
    assert "| `psmnist-178` | 1 of 5 | 6 of 20 epochs |" in text
    assert "Adding is evaluated on 200 sequences, the paper's on one batch of 50." in text
    text = "\n".join(chapters.departures(book_of(fig3=sums[:2])))
    assert "| `adding-200` | 2 of 5 | as there |" in text
    behind = run("adding-200-s5", "adding", [0.1] * 7, status="unfinished")
    text = "\n".join(chapters.departures(book_of(fig3=[*sums, behind])))
    assert "| `adding-200` | 6 of 5 | 700 of 5,000 steps |" in text
    digits = [run("ablation-psmnist-qr-s0", "psmnist", [0.9] * 3)]
    text = "\n".join(chapters.departures(book_of(fig6=digits)))
    assert "| 1 of 5 | 3 epochs; the paper's number is not printed |" in text


def test_a_pair_that_the_random_filter_loses_is_shown_with_every_filter():
    scores = {"qr": (0.1, 0.15), "identity": (0.2, 0.12), "cycle": (0.1, 0.13)}
    runs = [
        run(f"ablation-adding-{name}-s{k}", "adding", [v])
        for name, values in scores.items()
        for k, v in enumerate(values)
    ]
    text = "\n".join(chapters.ablation(arms_of(runs), {}))
    assert "The pair of seed 1 is lost: qr 0.15, identity 0.12, cycle 0.13." in text
    assert "seed 0 is lost" not in text


def test_ours_stand_in_the_papers_table_by_accuracy():
    runs = [run("psmnist-178-s0", "psmnist", [0.9] * 19 + [0.971])]
    lines = chapters.psmnist(arms_of(runs), {})
    ours = lines.index("| roaRNN | 1,234 | 97.10 % | here, 20 epochs |")
    assert lines[ours - 1].startswith("| res-IndRNN | not given | 97.02 %")
    assert lines[ours + 1].startswith("| LMU | ≈102k | 97.15 %")


def test_the_grid_names_all_that_end_as_well_as_the_best():
    ends = {0.005: 0.001, 0.01: 0.0015, 1.0: 0.1, 3.0: 0.2}
    runs = [
        run(f"rho-adding-rho-{rho:g}-s0", "adding", [mse], model={"rho": rho})
        for rho, mse in ends.items()
    ]
    text = "\n".join(chapters.rho(arms_of(runs), {}))
    assert (
        "Best here, within 1 % of the way: ρ = 0.005, 0.01; the paper's figure has 0.005." in text
    )
    assert "At a larger ρ 1 of 2 runs are lost." in text


def test_sums_that_are_not_learnt_are_told_by_the_norm_of_W():
    runs = [
        run(f"adding-1000-s{k}", "adding", [mse], probes=[probe(0, 22.0), probe(100, norm)])
        for k, (mse, norm) in enumerate(((0.001, 500.0), (0.15, 30.0)))
    ]
    text = "\n".join(chapters.adding(arms_of(runs), {}))
    assert "starts at 22 and ends at 500 in the seeds that solve it, at 30 in the others" in text
    assert "Our reading" in text
    assert "and ends at" not in "\n".join(chapters.adding(arms_of(runs[:1]), {}))
    runs[1].records[-1]["norm_W"] = 600.0
    assert "Our reading" not in "\n".join(chapters.adding(arms_of(runs), {}))
    assert "on 200 sequences give or take 0.0139" in text


def test_plain_networks_are_held_against_the_intervals_of_ours():
    place = {"kind": "spectrum", "over": "time", "seed": 0, "width": 8, "vacuous": False}
    ends = {"finite": {"lower": -2.0, "upper": 1.0, "inside": True}, "paper": {"inside": True}}
    lines = []
    for maps, low in ((10, -1.0), (30, -5.0)):
        ours = {"network": "roaRNN", "setting": "tight", "maps": maps, "sigma": [0.5, -0.5]}
        plain = {"network": "plain RNN", "setting": "paper", "maps": maps, "sigma": [0.5, low]}
        lines += [place | ours | ends, place | plain]
    text = "\n".join(studies.bounds(lines))
    left = "A plain RNN leaves the interval of a small W in 1 of 2 cases (not always at L = 10)."
    assert left in text
    assert "| roaRNN | 8 | small | 10 … 30 | 2 of 2 | 0 of 2 | 2 of 2 | 0 of 2 |" in text
