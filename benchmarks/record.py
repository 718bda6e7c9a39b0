"""What was measured: one JSON file, from which every table, figure and verdict is derived."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Row:
    """One contender in one case.

    Attributes:
        case: a name in `cases.CASES`.
        work: what was timed: "forward" (no graph), "train" (forward, backward, gradients zeroed),
            or another way to call it, named.
        contender: who did it.
        seconds: the best sample.
        steps: how many steps of the recurrence (or layers) the seconds bought.
        samples: seconds of one call in each round.
        calls: how many calls each sample is the mean of.
        versus: the contender of the same case and work to be compared with.
        flops: floating-point operations in products with N × N matrices; see `flops`.
        difference: relative distance of the result from that of the contender it must equal.
        extra_bytes: peak memory above what was there before the call.
        sizes: T, B, N, I, depth, …
        notes: warnings that the call gave.
    """

    case: str
    work: str
    contender: str
    seconds: float
    steps: int
    samples: list[float] = field(default_factory=list)
    calls: int = 1
    versus: str | None = None
    flops: int | None = None
    difference: float | None = None
    extra_bytes: int | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def spread(self) -> float:
        """How far the median sample lies above the best one, relatively."""
        return statistics.median(self.samples) / self.seconds - 1 if self.samples else 0.0

    @property
    def per_step(self) -> float:
        """Seconds per step."""
        return self.seconds / self.steps


@dataclass(frozen=True)
class Record:
    """One run of the benchmark.

    Attributes:
        environment: the machine and the software; see `machine.describe`.
        settings: passes, rounds, threads, quick, cases.
        rows: all measurements, in the order they were first made.
        skipped: what could not be measured → why.
    """

    environment: dict[str, Any]
    settings: dict[str, Any]
    rows: list[Row] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def quick(self) -> bool:
        """Whether sizes were small, and the numbers mean nothing."""
        return bool(self.settings["quick"])

    def find(self, case: str, work: str, contender: str) -> Row | None:
        """That row, or None if it was not measured."""
        key = (case, work, contender)
        return next((r for r in self.rows if (r.case, r.work, r.contender) == key), None)

    def add(self, rows: Sequence[Row]) -> None:
        """Take in what a pass measured; rounds of a contender that is there already are pooled.

        A machine that others use is fast for some minutes and slow for some. Passes through all
        cases spread the rounds of each over the whole run, so that everyone has had both.
        """
        for row in rows:
            there = self.find(row.case, row.work, row.contender)
            if there is None:
                self.rows.append(row)
            else:
                self.rows[self.rows.index(there)] = _pooled(there, row)

    def by_medians(self) -> Record:
        """The same with the median of all samples in place of the best: what noise does to it."""
        rows = [
            dataclasses.replace(row, seconds=statistics.median(row.samples or [row.seconds]))
            for row in self.rows
        ]
        return dataclasses.replace(self, rows=rows)

    def groups(self) -> Iterator[tuple[str, str, list[Row]]]:
        """(case, work, rows) in order."""
        keys = dict.fromkeys((row.case, row.work) for row in self.rows)
        for case, work in keys:
            yield case, work, [row for row in self.rows if (row.case, row.work) == (case, work)]

    def of_limit(self, row: Row) -> float | None:
        """The part of `torch.mm`'s speed that the row reaches with its own FLOPs."""
        limit = self.find(row.case, row.work, "limit")
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
            {k: v for k, v in dataclasses.asdict(row).items() if v not in (None, [], {})}
            for row in self.rows
        ]
        tables = {
            "schema": SCHEMA,
            "environment": self.environment,
            "settings": self.settings,
            "skipped": self.skipped,
            "rows": rows,
        }
        return json.dumps(tables, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _pooled(a: Row, b: Row) -> Row:
    """The rounds of both; the largest of what must be small."""
    return dataclasses.replace(
        a,
        seconds=min(a.seconds, b.seconds),
        samples=a.samples + b.samples,
        difference=max((d for d in (a.difference, b.difference) if d is not None), default=None),
        extra_bytes=max((n for n in (a.extra_bytes, b.extra_bytes) if n is not None), default=None),
        notes=list(dict.fromkeys(a.notes + b.notes)),
    )


def parse(text: str) -> Record:
    """The record that `Record.to_json` wrote."""
    try:
        tables = json.loads(text)
        if tables["schema"] == SCHEMA:
            rows = [Row(**row) for row in tables["rows"]]
            return Record(tables["environment"], tables["settings"], rows, tables["skipped"])
        got = f"schema {tables['schema']}"
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        got = f"something else ({type(error).__name__}: {error})"
    raise ValueError(
        f"record: expected a benchmark record of schema {SCHEMA}, got {got}; measure again with "
        "this version"
    )


def read(path: Path) -> Record:
    """The record in a file."""
    return parse(path.read_text(encoding="utf-8"))
