"""How claims are judged: one table of rules, each from a claim and its arms to a count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from paper.compare import Claim, Count, beats, beats_in_pairs, keeps_pace
from paper.measure import best, evaluated, first, meets, shown
from roann.lab.report import Arm, Outcome


def _each(arms: Sequence[Arm]) -> list[Outcome]:
    return list(chain.from_iterable(arm.outcomes for arm in arms))


def _score(claim: Claim, outcome: Outcome) -> float | None:
    """The score a claim is about: after an epoch, or the best."""
    if "epoch" not in claim:
        return best(outcome, claim["metric"])
    value: float | None = evaluated(outcome, epoch=claim["epoch"]).get(claim["metric"])
    return value


def _best(claim: Claim, arms: Sequence[Arm]) -> str:
    values = [value for o in _each(arms) if (value := _score(claim, o)) is not None]
    pick = max if "accuracy" in claim["metric"] else min
    return shown(claim["metric"], pick(values, default=None))


def _step(claim: Claim, outcome: Outcome) -> int | None:
    """The step at which a run does what the claim says; None if it does not."""
    score, limit = claim["metric"], claim["threshold"]
    limit = outcome.goal.trivial[score] if limit == "trivial" else limit
    if "epoch" in claim:
        return claim["epoch"] if meets(score, _score(claim, outcome), limit) else None
    step = first(outcome, score, limit)
    late = step is not None and step > claim.get("by", step)
    return None if late or (claim.get("kept") and outcome.collapses) else step


def _open(claim: Claim, outcome: Outcome) -> bool:
    early = outcome.run.steps < claim.get("by", float("inf"))
    known = "epoch" in claim and _score(claim, outcome) is not None
    return outcome.run.status == "unfinished" and early and not known


def reaches(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed's score gets to the threshold, in time, and stays if the claim says so."""
    every = _each(arms)
    steps = [_step(claim, o) for o in every]
    good = [step for step in steps if step is not None]
    waiting = sum(s is None and _open(claim, o) for s, o in zip(steps, every, strict=True))
    here = f"{len(good)} of {len(every)} seed{'s' * (len(every) > 1)}"
    if good and ("by" in claim or "kept" in claim):
        here += f", earliest at step {min(good):,}"
    return Count(len(good), waiting, len(every), f"{here}; best {_best(claim, arms)}")


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


def inside(claim: Claim, studies: Sequence[Sequence[Mapping[str, Any]]]) -> Count:
    """Each measured spectrum lies in the finite interval, each worst case above the paper's end."""
    lines = list(chain.from_iterable(studies))
    bounded = [line for line in lines if line["kind"] == "spectrum" and "finite" in line]
    spectra = [line["finite"]["inside"] for line in bounded]
    worst = [line["sigma"][-1] >= line["paper"] for line in lines if line["kind"] == "worst-case"]
    here = f"{sum(spectra)} of {len(spectra)} spectra; {sum(worst)} of {len(worst)} worst cases"
    return Count(sum(spectra + worst), 0, len(spectra + worst), here)


RULES: dict[str, Callable[[Claim, Sequence[Any]], Count]] = {
    "reaches": reaches,
    "fails": fails,
    "within": within,
    "beats": beats,
    "beats in pairs": beats_in_pairs,
    "keeps pace": keeps_pace,
    "ends": ends,
    "inside": inside,
}
