"""Every rule by value, on runs of known outcome; and a claim and a rule from outside."""

import pytest
from invented_runs import arm, run

from paper import judge, plan
from paper.judge import CLAIMS, GOAL, RULES

MOON = {"metric": "mse", "threshold": 0.05}
RECALL = {"metric": "recall_accuracy", "threshold": 0.99}


def moons(*bests, status="finished", name="moon"):
    return arm(*(run(f"{name}-s{k}", "double-moon", [1.0, b], status) for k, b in enumerate(bests)))


def copying(*curves, status="finished", name="copying", **kw):
    return arm(*(run(f"{name}-s{k}", "copying", c, status, **kw) for k, c in enumerate(curves)))


def cases(rule, claim, *arms):
    """What a rule finds: case by case, and in words."""
    return RULES[rule](claim | {"rule": rule}, arms)


def test_reaches_counts_seeds_at_their_best():
    found = cases("reaches", MOON, moons(0.01, 0.2), moons(0.05))
    assert found == ([True, False, True], "2 of 3 seeds; best 0.01")


def test_reaches_in_time():
    claim = {"metric": "mse", "threshold": 0.01, "by": 200}
    runs = (run("a-s0", "adding", [0.1, 0.01]), run("a-s1", "adding", [0.1, 0.1, 0.001]))
    found = cases("reaches", claim, arm(*runs))
    assert found == ([True, False], "1 of 2 seeds, earliest at step 200; best 0.001")
    slow = run("a-s0", "adding", [0.1, 0.1], "unfinished")
    assert cases("reaches", claim, arm(slow))[0] == [False]  # its time is over
    assert cases("reaches", claim | {"by": 300}, arm(slow))[0] == [None]


def test_reaches_the_goal_of_the_task():
    claim = MOON | {"threshold": "goal"}
    limit = GOAL["double-moon"]
    assert cases("reaches", claim, moons(limit, limit + 1e-3))[0] == [True, False]
    assert cases("keeps pace", claim, moons(limit), moons(limit + 1e-3))[0] == [False]


def test_reaches_the_trivial_score_of_the_task():
    claim = {"metric": "cross_entropy", "threshold": "trivial", "by": 500}
    scores = [{"recall_accuracy": 0.2, "cross_entropy": value} for value in (0.06, 0.04)]
    assert cases("reaches", claim, copying(scores))[0] == [True]
    assert cases("reaches", claim | {"by": 100}, copying(scores))[0] == [False]


def test_what_must_be_kept_is_not_reached_by_a_run_that_collapses():
    kept, fell = [0.2, 0.995, 0.9], [0.2, 0.995, 0.13]
    assert cases("reaches", RECALL, copying(kept, fell))[0] == [True, True]
    assert cases("reaches", RECALL | {"kept": True}, copying(kept, fell))[0] == [True, False]


def test_reaches_after_an_epoch_and_is_open_until_then():
    claim = {"metric": "accuracy", "threshold": 0.94, "epoch": 2}
    done = run("p-s0", "psmnist", [0.9, 0.95, 0.9])
    short = run("p-s1", "psmnist", [0.96], "unfinished")
    missed = run("p-s2", "psmnist", [0.96, 0.9], "unfinished")
    found = cases("reaches", claim, arm(done, short, missed))
    assert found == ([True, None, False], "1 of 3 seeds; best 95.00 %")


def test_fails_is_the_opposite_and_an_open_run_is_neither():
    found = cases("fails", RECALL, copying([0.2], [0.995], [0.5]))
    assert found == ([True, False, True], "1 of 3 reach it; best 99.50 %")
    assert cases("fails", RECALL, copying([0.2], status="unfinished"))[0] == [None]


def test_within_a_tolerance_of_the_papers_number():
    claim = {"metric": "accuracy", "threshold": 0.9724, "tolerance": 0.003}
    runs = (run("p-s0", "psmnist", [0.9695]), run("p-s1", "psmnist", [0.9690]))
    assert cases("within", claim, arm(*runs)) == ([True, False], "96.95 %, best of 2")


def test_beats_by_medians_of_the_best():
    def curve(value):
        return [{"recall_accuracy": 0.5, "cross_entropy": v} for v in (0.9, value)]

    roa = copying(curve(0.1), curve(0.3), curve(0.2))
    lstm = copying(curve(0.15), curve(0.25), curve(0.4), model={"name": "lstm"})
    claim = {"metric": "cross_entropy"}
    found = cases("beats", claim, roa, lstm)
    assert found == ([True], "medians of best: roa-rnn 0.2, lstm 0.25")
    assert cases("beats", claim, lstm, roa)[0] == [False]
    same = copying(curve(0.2), model={"name": "gru"})
    assert cases("beats", claim, roa, lstm, same)[0] == [True, False]


def test_beats_seed_by_seed():
    roa, eye = copying([0.9], [0.5]), copying([0.3], [0.6], [0.1], name="eye")
    claim = {"metric": "recall_accuracy", "pairs": True}
    found = cases("beats", claim, roa, eye)
    assert found == ([True, False], "1 of 2 pairs; medians 70.00 % and 30.00 %")
    waiting = copying([0.3], status="unfinished", name="eye")
    assert cases("beats", claim, roa, waiting)[0] == [None]


def test_keeps_pace_with_the_first():
    first = arm(run("a-s0", "double-moon", [1.0, 0.01]), run("a-s1", "double-moon", [1, 1, 0.01]))
    quick = arm(run("b-s0", "double-moon", [0.01]), run("b-s1", "double-moon", [1, 1, 0.01]))
    never = arm(run("c-s0", "double-moon", [1.0]))
    found = cases("keeps pace", MOON, first, quick, never)
    assert found == ([True, False], "epochs, medians: 2.5; 2; ∞")


def test_ends():
    fell = copying([0.9, 0.13], [0.9, 0.9], [0.9])
    assert cases("ends", {"metric": "collapsed"}, fell) == ([True, False, False], "1 of 3 seeds")
    lost = copying([0.2], status="diverged")
    assert cases("ends", {"metric": "diverged"}, fell, lost)[0] == [False, False, False, True]
    waiting = copying([0.2], [0.9, 0.13], status="unfinished")
    assert cases("ends", {"metric": "collapsed"}, waiting)[0] == [None, True]


def test_inside_counts_spectra_and_worst_cases():
    spectrum = {"kind": "spectrum", "network": "roaRNN"}
    study = [spectrum | {"finite": {"inside": True}}, spectrum]
    study.append({"kind": "worst-case", "sigma": [-5.0], "finite": -5.0, "paper": -4.0})
    assert cases("inside", {}, study) == ([True, False], "1 of 1 spectra; 0 of 1 worst cases")


@pytest.mark.parametrize(
    ("found", "all_", "any_"),
    [
        ([True, True, True], "reproduced", "reproduced"),
        ([True, False, False], "partly reproduced", "reproduced"),
        ([False, False, False], "not reproduced", "not reproduced"),
        ([True, True, None], "unfinished", "reproduced"),
        ([True, None, False], "partly reproduced", "reproduced"),  # whatever the open one brings
        ([False, None, False], "unfinished", "unfinished"),
    ],
)
def test_a_verdict_waits_only_for_what_can_change_it(found, all_, any_):
    assert judge.verdict(found) == all_
    assert judge.verdict(found, "any") == any_


def test_a_claim_without_its_runs_is_not_run():
    claim = {"place": "Fig. 9", "says": "a thing", "runs": ["fig2/absent"], "rule": "fails"}
    assert judge.judge(claim, {"fig2": {}}) == ["Fig. 9", "a thing", "", "not run"]


def test_fewer_steps_than_the_paper_are_said_where_something_is_reproduced():
    claim = RECALL | {"place": "", "says": "", "runs": ["fig2/copying-400"], "rule": "reaches"}
    good, bad = ({"fig2": {"copying-400": copying([v])}} for v in (0.995, 0.5))
    assert judge.judge(claim, good)[3] == "reproduced (fewer steps than the paper)"
    assert judge.judge(claim, bad)[3] == "not reproduced"
    assert judge.judge(claim | {"need": "any"}, good)[3] == "reproduced"
    full = {"fig3": {"adding-200": arm(run("adding-200-s0", "adding", [0.001]))}}
    claim |= {"runs": ["fig3/adding-200"], "metric": "mse", "threshold": 0.01}
    assert judge.judge(claim, full)[3] == "reproduced"


def test_a_rule_and_a_claim_from_outside(monkeypatch):
    """A new rule is a function and a row; a new claim is a row."""
    monkeypatch.setitem(RULES, "never below", lambda claim, arms: ([True], f"{claim['threshold']}"))
    claim = {"place": "Fig. 9", "says": "stays high", "runs": ["fig2/a"], "rule": "never below"}
    found = judge.judge(claim | {"threshold": 0.5}, {"fig2": {"a": copying([0.9])}})
    assert found == ["Fig. 9", "stays high", "0.5", "reproduced"]


@pytest.mark.parametrize("claim", CLAIMS["claim"], ids=lambda claim: claim["says"][:40])
def test_every_claim_names_a_rule_and_planned_runs(claim):
    assert claim["rule"] in RULES
    known = {f"{f}/{entry['name']}" for f in plan.FIGURES for entry in plan.entries(f)}
    assert {*claim["runs"]} <= known | {"bounds", "elsewhere/copying-400"}
    assert claim.get("need", "all") in ("all", "any")


@pytest.mark.parametrize("row", CLAIMS["beyond"], ids=lambda row: row["task"])
def test_every_row_of_the_defaults_names_planned_runs(row):
    known = {f"{f}/{entry['name']}" for f in plan.FIGURES for entry in plan.entries(f)}
    assert row.keys() <= {"task", "defaults", "setting", "elsewhere"}
    assert {row["defaults"], row.get("setting", row["defaults"])} <= known
