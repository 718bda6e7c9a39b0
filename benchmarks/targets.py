"""What the project set out to reach (`targets.toml`), and whether a record says that it did."""

from __future__ import annotations

import operator
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from benchmarks.record import Record

Verdict = Literal["met", "not met", "not measured"]
_MET: dict[str, Callable[[float, float], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "above": operator.gt,
    "below": operator.lt,
}


@dataclass(frozen=True)
class Target:
    """A number to reach.

    Attributes:
        what: in words.
        sense: whether `bound` is the least or the most allowed, or must be passed.
        bound: the number.
        measure: how the number of a record is found, a name in `MEASURES`.
        case, ours, other, work: the rows of the record that it is found from.
    """

    what: str
    sense: str
    bound: float
    measure: str
    case: str
    ours: str = ""
    other: str = ""
    work: str = "train"

    def value(self, record: Record) -> float | None:
        """The number of a record, None if it was not measured."""
        return MEASURES[self.measure](record, self)

    def needs(self, record: Record) -> float | None:
        """The part of the limit at which the target would be met, all else as measured."""
        part = _of_limit(record, self) if self.measure == "faster" else None
        value = self.value(record)
        return None if part is None or value is None else part * self.bound / value

    def verdict(self, record: Record) -> Verdict:
        """Computed, never typed. The sizes of a quick run are not those the targets speak of."""
        value = None if record.quick else self.value(record)
        if value is None:
            return "not measured"
        return "met" if _MET[self.sense](value, self.bound) else "not met"


def _of_limit(record: Record, target: Target) -> float | None:
    row = record.find(target.case, target.work, target.ours)
    return None if row is None else record.of_limit(row)


def _per_step(name: str, record: Record, target: Target) -> float | None:
    """Time per step, ours over the other's, or as much of it as the measure says."""
    ours, other = (record.find(target.case, target.work, n) for n in (target.ours, target.other))
    if ours is None or other is None:
        return None
    ratio = ours.per_step / other.per_step
    return {"slower": ratio, "faster": 1 / ratio, "percent over": 100 * (ratio - 1)}[name]


def _megabytes(record: Record, target: Target) -> float | None:
    row = record.find(target.case, target.work, target.ours)
    return None if row is None or row.extra_bytes is None else row.extra_bytes / 1e6


def _flatness(record: Record, target: Target) -> float | None:
    """The largest time per step of an axis over the smallest."""
    times = [row.per_step for row in record.rows if row.case == target.case]
    return max(times) / min(times) if times else None


MEASURES: dict[str, Callable[[Record, Target], float | None]] = {
    "of limit": _of_limit,
    **{name: partial(_per_step, name) for name in ("faster", "slower", "percent over")},
    "megabytes": _megabytes,
    "flatness": _flatness,
}
_ROWS = tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
TARGETS = [Target(**row) for row in _ROWS["target"]]
