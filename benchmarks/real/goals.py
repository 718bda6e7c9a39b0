"""What the benchmark set out to reach, and what its records say. Verdicts are computed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.real.minirocket import NAME as MINIROCKET
from benchmarks.real.records import Row
from benchmarks.real.sets import CLASSIFY, SETS
from benchmarks.real.systems import FIXED, ROA
from paper.pages import Table

OURS, GATED = (FIXED, ROA), ("LSTM", "GRU")
POINTS = 4  # of accuracy below MiniRocket, at most
DIGITS = {"digits-mel": 0.97, "digits-samples": 0.85}
PARAMETERS = 150_000


def table(rows: Sequence[Row]) -> Table:
    """A goal, whether it was reached, and how far it got."""
    lines = [_gated(rows), _near(rows), _above(rows)]
    lines += [_digits(rows, name, least) for name, least in DIGITS.items()]
    return ("goal", "reached", "how far"), lines


def _mean(rows: Sequence[Row], name: str, system: str) -> float | None:
    found = [row["score"] for row in rows if (row["set"], row["system"]) == (name, system)]
    return fmean(found) if found else None


def _best(rows: Sequence[Row], name: str, systems: Sequence[str]) -> float | None:
    found = [_mean(rows, name, system) for system in systems]
    return max((mean for mean in found if mean is not None), default=None)


def _text(score: float, percent: bool) -> str:
    return (f"{100 * score:.1f}" if percent else f"{score:.2f}").replace("-", "−")


def _gated(rows: Sequence[Row]) -> list[str]:
    kinds = {row["set"]: row["kind"] for row in rows}
    sides: dict[str, list[str]] = {"above": [], "equal": [], "below": [], "not compared": []}
    for name in (name for name in SETS if name in kinds):
        ours, theirs = _best(rows, name, OURS), _best(rows, name, GATED)
        complete = all(_mean(rows, name, system) is not None for system in GATED)
        if ours is None or theirs is None or not complete:
            sides["not compared"].append(name)
            continue
        side = "above" if ours > theirs else "equal" if ours == theirs else "below"
        percent = kinds[name] == CLASSIFY
        pair = f" ({_text(ours, percent)} to {_text(theirs, percent)})"
        sides[side].append(name + pair * (side == "below"))
    said = "; ".join(f"{side}: {', '.join(names)}" for side, names in sides.items() if names)
    reached = list(filter(sides.get, sides)) == ["above"]
    return ["better than LSTM and GRU on every set", "yes" if reached else "no", said]


def _near(rows: Sequence[Row]) -> list[str]:
    names = [n for n in SETS if _mean(rows, n, MINIROCKET) is not None and _classified(rows, n)]
    goal = f"mean over classification sets at most {POINTS} points below MiniRocket"
    pairs = [(_best(rows, n, (FIXED,)), _mean(rows, n, MINIROCKET)) for n in names]
    full = [(100 * ours, 100 * theirs) for ours, theirs in pairs if ours and theirs]
    if not full or len(full) < len(names):
        return [goal, "not measured", ""]
    ours, theirs = (fmean(column) for column in zip(*full, strict=True))
    said = f"{ours:.1f} to {theirs:.1f} over {', '.join(names)}"
    return [goal, "yes" if ours >= theirs - POINTS else "no", said]


def _above(rows: Sequence[Row]) -> list[str]:
    """The longest set that MiniRocket takes stands for order over long spans."""
    ours, theirs = _best(rows, "ACSF1", OURS), _mean(rows, "ACSF1", MINIROCKET)
    goal = "above MiniRocket where order over long spans matters"
    if ours is None or theirs is None:
        return [goal, "not measured", ""]
    said = f"{_text(ours, True)} to {_text(theirs, True)} on ACSF1, the longest set it takes"
    return [goal, "yes" if ours > theirs else "no", said]


def _digits(rows: Sequence[Row], name: str, least: float) -> list[str]:
    found = [row for row in rows if (row["set"], row["system"]) == (name, FIXED)]
    goal = f"{name}: {100 * least:.0f} % with at most {PARAMETERS:,} parameters"
    if not found:
        return [goal, "not measured", ""]
    mean, count = fmean(row["score"] for row in found), found[0]["parameters"]
    said = f"{_text(mean, True)}, {count:,} learned, {len(found)} seeds"
    return [goal, "yes" if mean >= least and count <= PARAMETERS else "no", said]


def _classified(rows: Sequence[Row], name: str) -> bool:
    return any(row["set"] == name and row["kind"] == CLASSIFY for row in rows)
