"""The claims of `claims.toml`, judged from the records by one table of rules.

A rule finds in how many cases a claim holds from the claim and its arms.
"""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from paper import ROOT
from paper.collect import Records
from paper.measure import best, better, evaluated, first, meets, number, shown
from paper.plan import FIGURES, entries
from roann.lab.report import Arm, Outcome

Claim = Mapping[str, Any]
"""A row of `claims.toml`."""
CLAIMS: dict[str, Any] = tomllib.loads((ROOT / "paper/claims.toml").read_text(encoding="utf-8"))
GOAL: dict[str, float] = CLAIMS["goal"]


class Count(NamedTuple):
    """What a rule found: cases in which a claim holds, cases still open, all, and a few words."""

    good: int
    open: int
    total: int
    here: str


def _each(arms: Sequence[Arm]) -> list[Outcome]:
    return [outcome for arm in arms for outcome in arm.outcomes]


def _score(claim: Claim, outcome: Outcome) -> float | None:
    """The score a claim is about: after an epoch, or the best."""
    if "epoch" not in claim:
        return best(outcome, claim["metric"])
    value: float | None = evaluated(outcome, epoch=claim["epoch"]).get(claim["metric"])
    return value


def _limit(claim: Claim, outcome: Outcome) -> float:
    limit = claim["threshold"]
    if limit == "goal":
        return GOAL[outcome.run.task["name"]]
    return outcome.goal.trivial[claim["metric"]] if limit == "trivial" else float(limit)


def _step(claim: Claim, outcome: Outcome) -> int | None:
    """The step at which a run does what the claim says; None if it does not."""
    score, limit = claim["metric"], _limit(claim, outcome)
    if "epoch" in claim:
        return claim["epoch"] if meets(score, _score(claim, outcome), limit) else None
    step = first(outcome, score, limit)
    late = step is not None and step > claim.get("by", step)
    return None if late or (claim.get("kept") and outcome.collapses) else step


def _open(claim: Claim, outcome: Outcome) -> bool:
    early = outcome.run.steps < claim.get("by", float("inf"))
    known = "epoch" in claim and _score(claim, outcome) is not None
    return outcome.run.status == "unfinished" and early and not known


def _best(claim: Claim, arms: Sequence[Arm]) -> str:
    values = [value for o in _each(arms) if (value := _score(claim, o)) is not None]
    pick = max if "accuracy" in claim["metric"] else min
    return shown(claim["metric"], pick(values, default=None))


def reaches(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed's score gets to the threshold, in time, and stays if the claim says so."""
    steps = [(o, _step(claim, o)) for o in _each(arms)]
    good = [step for _, step in steps if step is not None]
    waiting = sum(step is None and _open(claim, o) for o, step in steps)
    here = f"{len(good)} of {len(steps)} seed{'s' * (len(steps) > 1)}"
    if good and ("by" in claim or "kept" in claim):
        here += f", earliest at step {min(good):,}"
    return Count(len(good), waiting, len(steps), f"{here}; best {_best(claim, arms)}")


def fails(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed's score stays short of the threshold."""
    good, waiting, total, _ = reaches(claim, arms)
    here = f"{good} of {total} reach it; best {_best(claim, arms)}"
    return Count(total - good - waiting, waiting, total, here)


def within(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed's best score comes as close to the paper's as the tolerance."""
    sign = -1 if "accuracy" in claim["metric"] else 1
    found = reaches({**claim, "threshold": claim["threshold"] + sign * claim["tolerance"]}, arms)
    return found._replace(here=f"{_best(claim, arms)}, best of {found.total}")


def ends(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed collapses, or diverges."""
    collapse, every = claim["metric"] == "collapsed", _each(arms)
    hits = [o for o in every if (o.collapses if collapse else o.run.status == "diverged")]
    waiting = sum(o.run.status == "unfinished" and o not in hits for o in every)
    return Count(len(hits), waiting, len(every), f"{len(hits)} of {len(every)} seeds")


def beats(claim: Claim, arms: Sequence[Arm]) -> Count:
    """The first arm's best is better than each other's: by medians, or in `pairs` of a seed."""
    score = claim["metric"]
    if claim.get("pairs"):
        wins, total = pairs(arms[0], arms[1])
        medians = " and ".join(shown(score, arm.median("best")) for arm in arms)
        return _settled(arms, wins, total, f"{wins} of {total} pairs; medians {medians}")
    mid = {a.model["name"]: statistics.median(best(o, score) for o in a.outcomes) for a in arms}
    ours, *others = mid.values()
    here = ", ".join(f"{name} {shown(score, value)}" for name, value in mid.items())
    wins = sum(better(score, ours, other) for other in others)
    return _settled(arms, wins, len(others), f"medians of best: {here}")


def keeps_pace(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each further arm needs no more epochs to the threshold than the first (medians)."""

    def epochs(o: Outcome) -> float:
        step = first(o, claim["metric"], _limit(claim, o))
        return float(evaluated(o, step=step).get("epoch", "inf"))

    pace, *others = medians = [statistics.median(map(epochs, arm.outcomes)) for arm in arms]
    here = "epochs, medians: " + "; ".join(map(number, medians))
    return _settled(arms, sum(median <= pace for median in others), len(others), here)


def _settled(arms: Sequence[Arm], good: int, total: int, here: str) -> Count:
    """A comparison is open as long as a run is."""
    waiting = any(o.run.status == "unfinished" for o in _each(arms))
    return Count(0, total, total, here) if waiting else Count(good, 0, total, here)


def pairs(ours: Arm, other: Arm) -> tuple[int, int]:
    """In how many pairs of one seed the first arm is better at its best, and how many pairs."""
    score = ours.goal.score
    mine, theirs = ({o.run.seed: best(o, score) for o in arm.outcomes} for arm in (ours, other))
    both = mine.keys() & theirs.keys()
    return sum(better(score, mine[seed], theirs[seed]) for seed in both), len(both)


def inside(claim: Claim, studies: Sequence[Sequence[Mapping[str, Any]]]) -> Count:
    """Each measured spectrum lies in the finite interval, each worst case above the paper's end."""
    lines = [line for study in studies for line in study]
    bounded = [line for line in lines if line["kind"] == "spectrum" and "finite" in line]
    spectra = [line["finite"]["inside"] for line in bounded]
    worst = [line["sigma"][-1] >= line["paper"] for line in lines if line["kind"] == "worst-case"]
    here = f"{sum(spectra)} of {len(spectra)} spectra; {sum(worst)} of {len(worst)} worst cases"
    return Count(sum(spectra + worst), 0, len(spectra + worst), here)


RULES: dict[str, Callable[[Claim, Sequence[Any]], Count]] = {
    rule.__name__.replace("_", " "): rule
    for rule in (reaches, fails, within, beats, keeps_pace, ends, inside)
}


def word(count: Count, need: str = "all") -> str:
    """The verdict, if it is the same whatever the open cases bring; else "unfinished"."""

    def verdict(good: int) -> str:
        if not good:
            return "not reproduced"
        return "reproduced" if need == "any" or good == count.total else "partly reproduced"

    least, most = verdict(count.good), verdict(count.good + count.open)
    return least if least == most else "unfinished"


def judge(claim: Claim, records: Records) -> list[str]:
    """A row of the table of claims: place, what the paper says, what was measured, the verdict."""
    places = [place.partition("/")[::2] for place in claim["runs"]]
    arms = [records.get(f, {}).get(name) if name else records.get(f) for f, name in places]
    if not all(arms):
        return [claim["place"], claim["says"], "", "not run"]
    count, need = RULES[claim["rule"]](claim, arms), claim.get("need", "all")
    found = word(count, need)
    if need == "all" and found.endswith("reproduced") and count.good and _shorter(*places[0]):
        found += " (fewer steps than the paper)"
    return [claim["place"], claim["says"], count.here, found]


def _shorter(figure: str, name: str) -> bool:
    """Whether the plan trains these runs for less than the paper says it does."""
    planned = [e for e in entries(figure) if e.name == name] if figure in FIGURES else []
    return any(e.change.get("train.length", 1e9) < (e.paper_length or 0) for e in planned)
