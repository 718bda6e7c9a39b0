"""The claims of `claims.toml`, judged from the records by one table of rules.

A rule finds, case by case, whether a claim holds: a case is a seed, a pair of seeds or an arm that
is compared with the first. It also says in a few words what was measured.
"""

from __future__ import annotations

import math
import statistics
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paper import ROOT
from paper.collect import Records
from paper.pages import number, scored
from paper.plan import FIGURES, entries
from roann.lab.report import Arm, Outcome

Claim = Mapping[str, Any]
"""A row of `claims.toml`."""
Arms = Sequence[Arm]
Cases = Sequence[bool | None]
"""Whether a claim holds in each case; None while a run that may decide it has not ended."""
Found = tuple[Cases, str]
CLAIMS: dict[str, Any] = tomllib.loads((ROOT / "paper/claims.toml").read_text(encoding="utf-8"))
GOAL: dict[str, float] = CLAIMS["goal"]


def meets(score: str, value: float | None, limit: float) -> bool:
    """Whether a score is as good as a limit: accuracies should be high, all else low."""
    return value is not None and (value >= limit if "accuracy" in score else value <= limit)


def best(score: str, points: Sequence[tuple[float, float]]) -> float:
    """The best value of a curve; of an empty one the worst there is."""
    values = [value for _, value in points]
    return max(values, default=-math.inf) if "accuracy" in score else min(values, default=math.inf)


def _limit(claim: Claim, o: Outcome) -> float:
    """What a score must reach: the threshold, and with a tolerance a little less."""
    named = {"goal": GOAL.get(o.run.task["name"]), "trivial": o.goal.trivial.get(claim["metric"])}
    sign = -1 if "accuracy" in claim["metric"] else 1
    limit: Any = named.get(claim["threshold"], claim["threshold"])
    return float(limit + sign * claim.get("tolerance", 0))


def _each(arms: Arms) -> list[Outcome]:
    return [outcome for arm in arms for outcome in arm.outcomes]


def _not(o: Outcome, over: bool = False) -> bool | None:
    """That a claim does not hold of a run, unless what is left of the run may change that."""
    return None if o.run.status == "unfinished" and not over else False


def reaches(claim: Claim, arms: Arms) -> Found:
    """Each seed's score gets to the threshold, in time, and stays if the claim says so."""
    score, by, epoch = claim["metric"], claim.get("by", math.inf), claim.get("epoch")
    cases, steps, seen = [], [], []
    for o in _each(arms):
        curve = o.curve(score, "step" if epoch is None else "epoch")
        points = [(x, value) for x, value in curve if epoch in (None, x)]
        met = [x for x, value in points if x <= by and meets(score, value, _limit(claim, o))]
        met = [] if claim.get("kept") and o.collapses else met[:1]
        over = o.run.steps >= by if epoch is None else bool(points)
        cases.append(bool(met) or _not(o, over))
        steps += met
        seen += points
    good, total, top = len(steps), len(cases), scored(score, best(score, seen))
    timed = steps and {"by", "kept"} & claim.keys()
    when = f", earliest at step {min(steps):,.0f}" if timed else ""
    who = "reach it" if claim["rule"] == "fails" else "seed" + "s" * (total > 1)
    here = f"{good} of {total} {who}{when}; best {top}"
    return cases, f"{top}, best of {total}" if claim["rule"] == "within" else here


def fails(claim: Claim, arms: Arms) -> Found:
    """Each seed's score stays short of the threshold."""
    cases, here = reaches(claim, arms)
    return [None if case is None else not case for case in cases], here


def ends(claim: Claim, arms: Arms) -> Found:
    """Each seed collapses, or diverges."""
    every, diverged = _each(arms), claim["metric"] == "diverged"
    hits = [o.run.status == "diverged" if diverged else o.collapses > 0 for o in every]
    cases = [hit or _not(o) for hit, o in zip(hits, every, strict=True)]
    return cases, f"{sum(hits)} of {len(hits)} seeds"


def beats(claim: Claim, arms: Arms) -> Found:
    """The first arm's best is better than each other's: by medians, or in `pairs` of a seed."""
    score = claim["metric"]
    tops = [{o.run.seed: best(score, o.curve(score)) for o in arm.outcomes} for arm in arms]
    ours, *others = medians = [statistics.median(top.values()) for top in tops]
    words = [scored(score, value) for value in medians]
    if claim.get("pairs"):
        both = tops[0].keys() & tops[1].keys()
        cases = [not meets(score, tops[1][seed], tops[0][seed]) for seed in sorted(both)]
        here = f"{sum(cases)} of {len(cases)} pairs; medians {' and '.join(words)}"
    else:
        cases = [not meets(score, other, ours) for other in others]
        named = (f"{arm.model['name']} {word}" for arm, word in zip(arms, words, strict=True))
        here = f"medians of best: {', '.join(named)}"
    return _settled(arms, cases), here


def keeps_pace(claim: Claim, arms: Arms) -> Found:
    """Each further arm needs no more epochs to the threshold than the first (medians)."""

    def epochs(o: Outcome) -> float:
        score, limit = claim["metric"], _limit(claim, o)
        return next((e for e, v in o.curve(score, "epoch") if meets(score, v, limit)), math.inf)

    pace, *others = values = [statistics.median(map(epochs, arm.outcomes)) for arm in arms]
    here = f"epochs, medians: {'; '.join(map(number, values))}"
    return _settled(arms, [value <= pace for value in others]), here


def _settled(arms: Arms, cases: Sequence[bool]) -> Cases:
    """A comparison is open as long as a run is."""
    return [None] * len(cases) if None in map(_not, _each(arms)) else cases


def inside(claim: Claim, studies: Sequence[Sequence[Mapping[str, Any]]]) -> Found:
    """Each measured spectrum lies in the finite interval, each worst case above the paper's end."""
    (lines,) = studies
    spectra = [line["finite"]["inside"] for line in lines if {"network", "finite"} <= line.keys()]
    worst = [line["sigma"][-1] >= line["paper"] for line in lines if line["kind"] == "worst-case"]
    here = f"{sum(spectra)} of {len(spectra)} spectra; {sum(worst)} of {len(worst)} worst cases"
    return spectra + worst, here


_ALL = (reaches, fails, ends, beats, keeps_pace, inside)
RULES: dict[str, Callable[[Claim, Sequence[Any]], Found]] = {
    rule.__name__.replace("_", " "): rule for rule in _ALL
}
RULES["within"] = reaches  # a tolerance of the threshold


def verdict(cases: Cases, need: str = "all") -> str:
    """The word for some cases, if it is the same whatever the open ones bring."""
    words = set()
    for hope in (False, True):
        held = [hope if case is None else case for case in cases]
        good = any(held) and (need == "any" or all(held))
        words.add("reproduced" if good else f"{'partly' if any(held) else 'not'} reproduced")
    return words.pop() if len(words) == 1 else "unfinished"


def judge(claim: Claim, records: Records) -> list[str]:
    """A row of the table of claims: place, what the paper says, what was measured, the verdict."""
    places = [place.partition("/")[::2] for place in claim["runs"]]
    arms = [records.get(f, {}).get(name) if name else records.get(f) for f, name in places]
    if not all(arms):
        return [claim["place"], claim["says"], "", "not run"]
    cases, here = RULES[claim["rule"]](claim, arms)
    found = verdict(cases, need := claim.get("need", "all"))
    if need == "all" and any(cases) and found != "unfinished" and _shorter(*places[0]):
        found += " (fewer steps than the paper)"
    return [claim["place"], claim["says"], here, found]


def _shorter(figure: str, name: str) -> bool:
    """Whether the plan trains these runs for less than the paper says it does."""
    planned = [e for e in entries(figure) if e["name"] == name] if figure in FIGURES else []
    return any(e["change"].get("train.length", 1e9) < e.get("paper_length", 0) for e in planned)
