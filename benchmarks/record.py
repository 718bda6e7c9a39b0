"""What was measured: one JSON file, from which every table, figure and verdict is derived."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One contender in one case."""

    case: str
    work: str  # "forward" (no graph), "train" (with gradients zeroed), or another way to call it
    contender: str
    seconds: float  # the best sample
    steps: int  # of the recurrence, or layers, that the seconds bought
    samples: list[float] = field(default_factory=list)  # seconds of one call in each round
    calls: int = 1  # how many calls each sample is the mean of
    versus: str | None = None  # the contender of the same case and work to be compared with
    flops: int | None = None  # operations in products with N × N matrices
    difference: float | None = None  # relative, from the result of the contender it must equal
    extra_bytes: int | None = None  # peak memory above what was there before the call
    sizes: dict[str, int] = field(default_factory=dict)  # T, B, N, I, depth, …
    notes: list[str] = field(default_factory=list)  # warnings that the call gave

    @property
    def median(self) -> float:
        """The median sample."""
        return statistics.median(self.samples or [self.seconds])

    @property
    def per_step(self) -> float:
        """Seconds per step."""
        return self.seconds / self.steps

    def pooled(self, other: Row) -> Row:
        """The rounds of both; the largest of what must be small."""
        made: dict[str, Any] = {"samples": self.samples + other.samples}
        made |= {"notes": list(dict.fromkeys(self.notes + other.notes))}
        for name in ("difference", "extra_bytes"):
            values = [getattr(self, name), getattr(other, name)]
            made[name] = max((v for v in values if v is not None), default=None)
        return replace(self, seconds=min(self.seconds, other.seconds), **made)


@dataclass(frozen=True)
class Record:
    """One run of the benchmark."""

    environment: dict[str, Any]  # of `machine.describe`
    settings: dict[str, Any]  # passes, rounds, threads, quick, cases
    rows: list[Row] = field(default_factory=list)  # in the order they were first made
    skipped: dict[str, str] = field(default_factory=dict)  # what was not measured → why

    def find(self, case: str, work: str, contender: str) -> Row | None:
        """That row, or None if it was not measured."""
        key = (case, work, contender)
        return next((r for r in self.rows if (r.case, r.work, r.contender) == key), None)

    def add(self, rows: Iterable[Row]) -> None:
        """Take in what a pass measured; rounds of a contender that is there already are pooled.

        A machine that others use is fast for some minutes and slow for some. Passes through all
        cases spread the rounds of each over the whole run, so that everyone has had both.
        """
        for row in rows:
            there = self.find(row.case, row.work, row.contender)
            if there is None:
                self.rows.append(row)
            else:
                self.rows[self.rows.index(there)] = there.pooled(row)

    def by_medians(self) -> Record:
        """The same with the median of all samples in place of the best: what noise does to it."""
        return replace(self, rows=[replace(row, seconds=row.median) for row in self.rows])

    def groups(self) -> Iterator[tuple[str, str, list[Row]]]:
        """(case, work, rows) in order."""
        for case, work in dict.fromkeys((row.case, row.work) for row in self.rows):
            yield case, work, [row for row in self.rows if (row.case, row.work) == (case, work)]

    def of_limit(self, row: Row, name: str = "limit") -> float | None:
        """The part of `torch.mm`'s speed, or of the "peak", that the row reaches with its FLOPs."""
        limit = self.find(row.case, row.work, name)
        if limit is None or not limit.flops or row.flops is None:
            return None
        return limit.seconds * row.flops / limit.flops / row.seconds

    def times_faster(self, row: Row) -> float | None:
        """How many times faster, per step, than the contender it is compared with."""
        other = None if row.versus is None else self.find(row.case, row.work, row.versus)
        return None if other is None else other.per_step / row.per_step

    def to_json(self) -> str:
        """The file's text; equal for equal records."""
        rows = [
            {name: value for name, value in vars(row).items() if value not in (None, [], {})}
            for row in self.rows
        ]
        found = {"schema": SCHEMA, "environment": self.environment, "settings": self.settings}
        found |= {"skipped": self.skipped, "rows": rows}
        return json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class RecordError(ValueError):
    """A file that holds no record."""


class SkippedError(Exception):
    """Why something cannot be measured on this machine."""


def read(path: Path) -> Record:
    """The record that `Record.to_json` wrote to a file."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.pop("schema") == SCHEMA:
            return Record(**found | {"rows": [Row(**row) for row in found["rows"]]})
        got = "another schema"
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        got = f"something else ({type(error).__name__}: {error})"
    wanted = f"a benchmark record of schema {SCHEMA}"
    raise RecordError(f"{path}: expected {wanted}, got {got}; measure again with this version")
