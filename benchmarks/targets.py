"""What the project set out to reach (`targets.toml`), and whether a record says that it did."""

from __future__ import annotations

import operator
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.record import Record, Row

_MET: dict[str, Callable[[float, float], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "above": operator.gt,
    "below": operator.lt,
}


def _flatness(record: Record, *rows: Row) -> float:
    """The largest time per step over the smallest."""
    times = [row.per_step for row in rows]
    return max(times) / min(times)


MEASURES: dict[str, Callable[..., float | None]] = {
    "of limit": lambda record, ours: record.of_limit(ours),
    "faster": lambda record, ours, other: other.per_step / ours.per_step,
    "slower": lambda record, ours, other: ours.per_step / other.per_step,
    "percent over": lambda record, ours, other: 100 * (ours.per_step / other.per_step - 1),
    "megabytes": lambda record, ours: ours.extra_bytes / 1e6,
    "flatness": _flatness,
}
"""From a record and the rows of it that a target names, or all of its case if it names none."""


@dataclass(frozen=True)
class Target:
    """A number to reach, and the rows of a record that it is measured from."""

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
        rows: list[Row | None] = [row for row in record.rows if row.case == self.case]
        if self.ours:
            names = filter(None, (self.ours, self.other))
            rows = [record.find(self.case, self.work, name) for name in names]
        return MEASURES[self.measure](record, *rows) if rows and None not in rows else None

    def needs(self, record: Record) -> float | None:
        """The part of the limit at which the target would be met, all else as measured."""
        value, ours = self.value(record), record.find(self.case, self.work, self.ours)
        part = None if ours is None else record.of_limit(ours)
        if self.measure != "faster" or value is None or part is None:
            return None
        return part * self.bound / value

    def verdict(self, record: Record) -> str:
        """Computed, never typed. The sizes of a quick run are not those the targets speak of."""
        value = None if record.settings["quick"] else self.value(record)
        if value is None:
            return "not measured"
        return "met" if _MET[self.sense](value, self.bound) else "not met"


_ROWS = tomllib.loads(Path(__file__).with_name("targets.toml").read_text(encoding="utf-8"))
TARGETS = [Target(**row) for row in _ROWS["target"]]
