"""The claims of `claims.toml`, judged by the records: one table of rules."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from paper import ROOT
from paper.measure import best, evaluated, first, meets, number, shown
from paper.plan import FIGURES, entries
from roann.lab.report import Arm, Outcome

Claim = Mapping[str, Any]
Book = Mapping[str, Any]
"""Figure → arm → its runs; and under `bounds` the lines of that study."""
CLAIMS: dict[str, Any] = tomllib.loads((ROOT / "paper/claims.toml").read_text(encoding="utf-8"))


class Count(NamedTuple):
    """What a rule found: cases in which a claim holds, cases still open, all, and a few words."""

    good: int
    open: int
    total: int
    here: str


class Verdict(NamedTuple):
    """A claim beside what was measured."""

    place: str
    says: str
    here: str
    word: str


def _each(arms: Sequence[Arm]) -> list[Outcome]:
    return list(chain.from_iterable(arm.outcomes for arm in arms))


def _at(claim: Claim, outcome: Outcome) -> float | None:
    """The score a claim speaks of: after an epoch, or the best."""
    if "epoch" in claim:
        value: float | None = evaluated(outcome, epoch=claim["epoch"]).get(claim["metric"])
        return value
    return best(outcome, claim["metric"])


def _best(claim: Claim, arms: Sequence[Arm]) -> str:
    values = [value for o in _each(arms) if (value := _at(claim, o)) is not None]
    pick = max if "accuracy" in claim["metric"] else min
    return shown(claim["metric"], pick(values, default=None))


def _step(claim: Claim, outcome: Outcome) -> int | None:
    """The step at which a run does what the claim says; None if it does not."""
    score, limit = claim["metric"], claim["threshold"]
    limit = outcome.goal.trivial[score] if limit == "trivial" else limit
    if "epoch" in claim:
        return claim["epoch"] if meets(score, _at(claim, outcome), limit) else None
    step = first(outcome, score, limit)
    late = step is not None and step > claim.get("by", step)
    return None if late or (claim.get("kept") and outcome.collapses) else step


def _open(claim: Claim, outcome: Outcome) -> bool:
    early = outcome.run.steps < claim.get("by", float("inf"))
    known = "epoch" in claim and _at(claim, outcome) is not None
    return outcome.run.status == "unfinished" and early and not known


def reaches(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed's score gets to the threshold, in time, and stays if the claim says so."""
    steps = {id(o): _step(claim, o) for o in _each(arms)}
    good = [step for step in steps.values() if step is not None]
    waiting = sum(steps[id(o)] is None and _open(claim, o) for o in _each(arms))
    here = f"{len(good)} of {len(steps)} seeds"
    if good and ("by" in claim or "kept" in claim):
        here += f", earliest at step {min(good):,}"
    return Count(len(good), waiting, len(steps), f"{here}; best {_best(claim, arms)}")


def fails(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed's score stays short of the threshold."""
    good, waiting, total, here = reaches(claim, arms)
    return Count(total - good - waiting, waiting, total, here.replace(";", " get there;", 1))


def within(claim: Claim, arms: Sequence[Arm]) -> Count:
    """Each seed's best score comes as close to the paper's as the tolerance."""
    sign = -1 if "accuracy" in claim["metric"] else 1
    found = reaches({**claim, "threshold": claim["threshold"] + sign * claim["tolerance"]}, arms)
    return found._replace(here=f"{_best(claim, arms)}, best of {found.total}")


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
        steps = [first(o, claim["metric"], claim["threshold"]) for o in arm.outcomes]
        lines = [evaluated(o, step=s) for o, s in zip(arm.outcomes, steps, strict=True)]
        medians.append(statistics.median(line.get("epoch", float("inf")) for line in lines))
    good = sum(median <= medians[0] for median in medians[1:])
    here = "epochs, medians: " + "; ".join(map(number, medians))
    return _settled(arms, Count(good, 0, len(arms) - 1, here))


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


def _settled(arms: Sequence[Arm], count: Count) -> Count:
    """A comparison is open as long as a run is."""
    waiting = any(run.status == "unfinished" for arm in arms for run in arm.runs)
    return count._replace(good=0, open=count.total) if waiting else count


def word(count: Count, need: str = "all") -> str:
    """The verdict, if it is the same whatever the open cases bring; else "unfinished"."""

    def verdict(good: int) -> str:
        if not good:
            return "not reproduced"
        return "reproduced" if need == "any" or good == count.total else "partly reproduced"

    least, most = verdict(count.good), verdict(count.good + count.open)
    return least if least == most else "unfinished"


def judge(claim: Claim, book: Book) -> Verdict:
    """One claim."""
    places = [place.partition("/") for place in claim["runs"]]
    arms = [book.get(figure, {}).get(name) if name else book.get(figure)
            for figure, _, name in places]  # fmt: skip
    if not all(arms):
        return Verdict(claim["place"], claim["says"], "", "not run")
    count, need = RULES[claim["rule"]](claim, arms), claim.get("need", "all")
    found = word(count, need)
    if need == "all" and found in ("reproduced", "partly reproduced"):
        found += " (fewer steps than the paper)" * _shorter(*places[0][::2])
    return Verdict(claim["place"], claim["says"], count.here, found)


def _shorter(figure: str, name: str) -> bool:
    """Whether the plan trains these runs for less than the paper says it does."""
    planned = (
        [entry for entry in entries(figure) if entry.name == name] if figure in FIGURES else []
    )
    return any(
        e.paper_length and e.change.get("train.length", 1e9) < e.paper_length for e in planned
    )


def verdicts(book: Book, headlines: bool = False) -> Iterator[Verdict]:
    """Every claim, or those that the README shows."""
    for claim in CLAIMS["claim"]:
        if claim.get("headline") or not headlines:
            yield judge(claim, book)
