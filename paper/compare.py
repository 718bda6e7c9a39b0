"""Rules that compare arms: by medians, seed by seed, or by how soon they get there."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from paper.measure import best, evaluated, first, meets, number, shown
from roann.lab.report import Arm

Claim = Mapping[str, Any]
"""A row of `claims.toml`."""


class Count(NamedTuple):
    """What a rule found: cases in which a claim holds, cases still open, all, and a few words."""

    good: int
    open: int
    total: int
    here: str


def beats(claim: Claim, arms: Sequence[Arm]) -> Count:
    """The first arm's median score is better than that of each other arm."""
    score = claim["metric"]
    medians = {a.model["name"]: statistics.median(best(o, score) for o in a.outcomes) for a in arms}
    ours, *others = medians.values()
    here = ", ".join(f"{name} {shown(score, value)}" for name, value in medians.items())
    wins = sum(ours != other and meets(score, ours, other) for other in others)
    return _settled(arms, Count(wins, 0, len(others), f"medians of best: {here}"))


def beats_in_pairs(claim: Claim, arms: Sequence[Arm]) -> Count:
    """The first arm is better than the second, seed by seed."""
    wins, total = pairs(arms[0], arms[1])
    medians = " and ".join(shown(claim["metric"], arm.median("best")) for arm in arms)
    return _settled(arms, Count(wins, 0, total, f"{wins} of {total} pairs; medians {medians}"))


def pairs(ours: Arm, other: Arm) -> tuple[int, int]:
    """In how many pairs of one seed the first arm is better at its best, and how many pairs."""
    score = ours.goal.score
    mine, theirs = ({o.run.seed: best(o, score) for o in arm.outcomes} for arm in (ours, other))
    both = mine.keys() & theirs.keys()
    return sum(mine[k] != theirs[k] and meets(score, mine[k], theirs[k]) for k in both), len(both)


def keeps_pace(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each further arm needs no more epochs to the threshold than the first (medians)."""
    medians = []
    for arm in arms:
        steps = [(o, first(o, claim["metric"], claim["threshold"])) for o in arm.outcomes]
        epochs = [evaluated(o, step=step).get("epoch", float("inf")) for o, step in steps]
        medians.append(statistics.median(epochs))
    good = sum(median <= medians[0] for median in medians[1:])
    here = "epochs, medians: " + "; ".join(map(number, medians))
    return _settled(arms, Count(good, 0, len(arms) - 1, here))


def _settled(arms: Sequence[Arm], count: Count) -> Count:
    """A comparison is open as long as a run is."""
    waiting = any(run.status == "unfinished" for arm in arms for run in arm.runs)
    return count._replace(good=0, open=count.total) if waiting else count
