"""How the claims of the paper are judged: arms to what was measured, and a word for it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roann.lab.paper_figures import CLAIMS, trained_for
from roann.lab.reproduce.exhibits import of_kind
from roann.lab.reproduce.reading import Reading, best_of, median_of
from roann.lab.reproduce.tables import number, shown, wall

Arm = list[Reading]
Found = tuple[str, str]
"""What was measured, and the verdict."""

SOLVED_MOON = 0.05
"""Mean squared error of labels ∓1 below which the moons are told apart."""
SUMMED = 0.01
"""Mean squared error at which LEM calls the adding problem solved."""
RECALLED = 0.99
"""Recall accuracy called success."""
CLOSE = 0.003
"""Test accuracies this close are called equal: the spread of seeds is of this size."""
UNFINISHED = "unfinished"

PSMNIST: dict[int, float] = {
    claim.where["hidden_size"]: claim.value
    for claim in CLAIMS
    if (claim.task, claim.model) == ("psmnist", "roa-rnn") and claim.value is not None
}
"""Best test accuracy of the roaRNN in the paper's table, by N."""


def going_on(*arms: Arm) -> bool:
    """Whether a run has not ended."""
    return any(r.run.status == "unfinished" for arm in arms for r in arm)


def _share(good: int, of: int) -> str:
    if not of:
        return "not run"
    return "reproduced" if good == of else "in part" if good else "not reproduced"


def _when(arm: Arm, steps: Sequence[int | None]) -> str:
    """The step of each seed, in words; a run that has not ended may still get there."""
    nowhere = ["not yet" if going_on([r]) else "never" for r in arm]
    pairs = zip(steps, nowhere, strict=True)
    return ", ".join(word if step is None else f"{step:,}" for step, word in pairs)


def _as_far(word: str, arm: Arm) -> str:
    """The verdict, and that fewer steps were seen than the paper has."""
    r = arm[0]
    paper = trained_for(r.run.task, r.run.model)
    short = paper is not None and r.run.config["train"]["length"] < paper
    return f"{word} as far as run" if short and word != "not reproduced" else word


def _moons_apart(r: Reading) -> bool:
    value = r.score("best")
    return value is not None and value < SOLVED_MOON


def _apart(arm: Arm) -> str:
    good = sum(map(_moons_apart, arm))
    return f"below {SOLVED_MOON} in {good} of {len(arm)}, best {number(best_of(arm, 'best'))}"


def solved(arm: Arm) -> Found:
    """The moons are told apart."""
    return f"MSE {_apart(arm)}", _share(sum(map(_moons_apart, arm)), len(arm))


def moon(plain: Arm, roa: Arm) -> Found:
    """A plain network does not solve it, ours does."""
    ours = f"plain: MSE {_apart(plain)}; roaFNN: {_apart(roa)}"
    if any(map(_moons_apart, plain)):
        return ours, "not reproduced"
    return ours, _share(sum(map(_moons_apart, roa)), len(roa))


def depth(*arms: Arm) -> Found:
    """Every optimiser gets there, and in which time."""
    parts = []
    for arm in arms:
        seconds = [r.training_seconds for r in arm]
        ends = sum((v := r.score("final")) is not None and v < SOLVED_MOON for r in arm)
        parts.append(
            f"{arm[0].run.config['train']['optimizer']}: {_apart(arm)} ({ends} at the end), "
            f"training takes {wall(statistics.median(seconds))} (median; at most "
            f"{wall(max(seconds))})"
        )
    every = [r for arm in arms for r in arm]
    return "; ".join(parts), _share(sum(map(_moons_apart, every)), len(every))


def same_rate(shallow: Arm, *deep: Arm) -> Found:
    """The very deep network needs no more epochs than the deep one."""
    parts, medians = [], []
    for arm in (shallow, *deep):
        epochs = [_epochs_to_solve(r) for r in arm]
        medians.append(statistics.median(epochs))
        name = f"{arm[0].run.model['layers']:,} layers, {arm[0].run.config['train']['optimizer']}"
        parts.append(f"{name}: {number(medians[-1])}")
    good = sum(median <= medians[0] for median in medians[1:])
    ours = f"epochs to an MSE below {SOLVED_MOON} (medians) — " + "; ".join(parts)
    return ours, _share(good, len(deep))


def _epochs_to_solve(r: Reading) -> float:
    for line in r.run.records:
        if line["kind"] == "eval" and float(line[r.primary] or math.inf) < SOLVED_MOON:
            return float(line["epoch"])
    return math.inf


def strategies(*arms: Arm) -> Found:
    """Cheaper filters, over depth."""
    names = ("I, 50 layers", "II, 50 layers", "I, 50,000 layers", "II, 50,000 layers")
    parts = [f"{name}: {_apart(arm)}" for name, arm in zip(names, arms, strict=True)]
    every = [r for arm in arms for r in arm]
    return "MSE " + "; ".join(parts), _share(sum(map(_moons_apart, every)), len(every))


def copying(roa: Arm) -> Found:
    """Recall that is reached, and kept."""
    reached = [kept for r in roa if (kept := _kept(r)) is not None]
    fell, lost = sum(bool(r.falls) for r in roa), sum(r.lost for r in roa)
    length = max(r.run.config["train"]["length"] for r in roa)
    ours = f"{len(reached)} of {len(roa)} seeds pass {100 * RECALLED:.0f} % recall by step "
    ours += f"{length:,}"
    if reached:
        first = min(reached)
        calm = max(reached, key=lambda kept: kept.good / kept.evaluations)
        ours += f", the first (seed {first.seed}) at step {first.since:,}; the steadiest (seed "
        ours += f"{calm.seed}) has it in {calm.good} of {calm.evaluations} evaluations from step "
        ours += f"{calm.since:,} on"
    ours += f"; {fell} collapse at some time, {lost} end lost"
    if not reached:
        return ours, "not reproduced"
    good = "reproduced" if not fell and len(reached) == len(roa) else "in part"
    return ours, _as_far(good, roa)


class _Kept(NamedTuple):
    """How a seed keeps what it has learnt.

    Attributes:
        since: the step of the first evaluation at which it recalls.
        seed: its number.
        good: at how many evaluations from then on it does.
        evaluations: of how many; that a run diverged counts as one.
    """

    since: int
    seed: int
    good: int
    evaluations: int


def _kept(r: Reading) -> _Kept | None:
    since = r.first("recall_accuracy", RECALLED, "higher")
    if since is None:
        return None
    later = [v >= RECALLED for step, v in r.curve("recall_accuracy") if step >= since]
    return _Kept(since, r.run.seed, sum(later), len(later) + (r.run.status == "diverged"))


def long_copying(roa: Arm) -> Found:
    """Less than the trivial cross-entropy, early: settled as soon as it is so."""
    below = [r.first("cross_entropy", r.trivial["cross_entropy"], "lower") for r in roa]
    steps = max(r.run.steps for r in roa)
    recall = shown("accuracy", best_of(roa, "best"))
    ours = f"steps to below it: {_when(roa, below)}; best recall {recall} in {steps:,} steps"
    if any(step is not None and step <= 500 for step in below):
        return ours, "reproduced"
    return ours, UNFINISHED if going_on(roa) and steps < 500 else "not reproduced"


def unstable(*arms: Arm) -> Found:
    """That seeds which had learnt are lost again."""
    every = [r for arm in arms for r in arm]
    fell = [r for r in every if r.falls]
    ours = f"{len(fell)} of {len(every)} seeds collapse after having learnt"
    if fell:
        ours += f", first by step {min(r.falls[0].gone for r in fell):,}"
    return ours, "reproduced" if fell else UNFINISHED if going_on(*arms) else "not reproduced"


def order(*arms: Arm) -> Found:
    """Each arm is better than the next."""
    scores = []
    for arm in arms:
        best = [min((v for _, v in r.curve("cross_entropy")), default=math.inf) for r in arm]
        scores.append(statistics.median(best))
    names = [arm[0].run.model["name"] for arm in arms]
    parts = [f"{name} {number(value)}" for name, value in zip(names, scores, strict=True)]
    ours = "best cross-entropy, medians: " + ", ".join(parts)
    first = scores[0] < min(scores[1:])
    word = _share(first + (scores == sorted(scores)), 2) if first else "not reproduced"
    return ours, _as_far(word, arms[0])


def ends_in_nan(plain: Arm) -> Found:
    """Every seed diverges."""
    diverged = [r for r in plain if r.run.status == "diverged"]
    steps = max(r.run.config["train"]["length"] for r in plain)
    ours = f"{len(diverged)} of {len(plain)} diverge in {steps:,} steps"
    ours += "".join(f"; seed {r.run.seed}: {r.run.result['cause']}" for r in diverged)
    ours += f"; {sum(r.lost for r in plain)} end with no number or no better than guessing"
    return ours, _share(len(diverged), len(plain)) if diverged else f"not seen in {steps:,} steps"


def fails(score: str, goal: float, plain: Arm) -> Found:
    """A baseline does not get there."""
    there, ours = _there(score, goal, plain)
    return ours, _share(len(plain) - there, len(plain))


def _there(score: str, goal: float, arm: Arm) -> tuple[int, str]:
    there = sum(r.first(score, goal, r.better) is not None for r in arm)
    steps = max(r.run.steps for r in arm)
    best = shown(score, best_of(arm, "best"))
    return there, f"{there} of {len(arm)} seeds get there in {steps:,} steps, best {best}"


def succeeds(score: str, goal: float, *arms: Arm) -> Found:
    """Baselines get there, in every case."""
    found = [_there(score, goal, arm) for arm in arms]
    parts = [
        f"{arm[0].run.name.rpartition('-')[0]}: {ours}"
        for arm, (_, ours) in zip(arms, found, strict=True)
    ]
    return "; ".join(parts), _share(sum(there for there, _ in found), sum(map(len, arms)))


def adding(roa: Arm) -> Found:
    """Solved in time."""
    steps = [r.first("mse", SUMMED, "lower") for r in roa]
    good = sum(step is not None and step <= 5000 for step in steps)
    return f"steps to MSE < {SUMMED}: {_when(roa, steps)}", _share(good, len(steps))


def psmnist(published: float, roa: Arm) -> Found:
    """The paper's accuracy, by the best seed."""
    best = best_of(roa, "best")
    ours = f"{shown('accuracy', best)} best of {len(roa)} in {max(r.epochs for r in roa)} epochs"
    if len(roa) > 1:
        ours += f", median of their best {shown('accuracy', median_of(roa, 'best'))}"
    reached = best is not None and best >= published - CLOSE
    return ours, "reproduced" if reached else "not reproduced"


def _after(epoch: int, arms: Sequence[Arm]) -> tuple[str, list[float], bool]:
    """The accuracies after so many epochs, in words and numbers, and whether all are known."""
    parts, values = [], []
    for N, arm in zip(PSMNIST, arms, strict=True):
        known = [v for r in arm if (v := r.after(epoch)) is not None]
        parts.append(f"N = {N}: " + (", ".join(shown("accuracy", v) for v in known) or "–"))
        values += known
    complete = all(arms) and len(values) == sum(map(len, arms))
    return "; ".join(parts), values, complete


def possible(epoch: int, accuracy: float, *arms: Arm) -> Found:
    """Some network passes an accuracy after so many epochs."""
    ours, values, complete = _after(epoch, arms)
    if any(v > accuracy for v in values):
        return ours, "reproduced"
    return ours, "not reproduced" if complete else UNFINISHED


def all_pass(epoch: int, accuracy: float, *arms: Arm) -> Found:
    """Every network passes an accuracy after so many epochs."""
    ours, values, complete = _after(epoch, arms)
    good = sum(v > accuracy for v in values)
    settled = complete or 0 < good < len(values)
    return ours, _share(good, len(values)) if settled else UNFINISHED


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


def ablation(roa: Arm, eye: Arm) -> Found:
    """The first arm is better, seed by seed."""
    wins, total = pairs(roa, eye)
    mine, theirs = (shown(roa[0].primary, median_of(arm, "best")) for arm in (roa, eye))
    plan = roa[0].run.config["train"]
    ours = f"better in {wins} of {total} pairs in {plan['length']:,} {plan['unit']}s; medians "
    return f"{ours}{mine} and {theirs}", _as_far(_share(wins, total), roa)


def bounds(study: Sequence[Mapping[str, Any]]) -> Found:
    """Spectra lie in the interval, as far as it has ends."""
    found = [line for line in of_kind(study, "spectrum") if "finite" in line]
    if not found:
        return "", "not run"
    whole = [line for line in found if line["finite"].get("lower") is not None]
    inside = sum(line["finite"]["inside"] for line in found)
    lengths = sorted({line["maps"] for line in found})
    ours = (
        f"{sum(line['finite']['inside'] for line in whole)} of {len(whole)} measured spectra "
        f"({lengths[0]:,} to {lengths[-1]:,} maps) lie in the interval that holds for finite L"
    )
    if len(whole) < len(found):
        below = sum(line["finite"]["inside"] for line in found if line not in whole)
        ours += f"; {below} of {len(found) - len(whole)}, of so few maps that there is no lower "
        ours += "end, lie below the upper"
    limit = [line for line in of_kind(study, "worst-case") if line["sigma"][-1] < line["paper"]]
    if limit:
        ours += "; the paper's lower end holds only in the limit, and a network below it is shown"
    word = "in part" if limit and inside == len(found) else _share(inside, len(found))
    return ours, word
