"""What the project set out to reach (`targets.toml`), and a record as Markdown.

The tables are for a terminal and for `docs/benchmark.md`.
"""

from __future__ import annotations

import operator
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import compare
from benchmarks.record import Record, Row, read
from benchmarks.timing import SETTLED_ROUNDS, settled
from paper import ROOT
from paper.pages import Table, markdown

_MET: dict[str, Callable[[float, float], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "above": operator.gt,
    "below": operator.lt,
}


MEASURES: dict[str, Callable[..., float | None]] = {
    "of limit": lambda record, ours: record.of_limit(ours),
    "of peak": lambda record, ours: record.of_limit(ours, "peak"),
    "faster": lambda record, ours, other: other.per_step / ours.per_step,
    "slower": lambda record, ours, other: ours.per_step / other.per_step,
    "percent over": lambda record, ours, other: 100 * (ours.per_step / other.per_step - 1),
    "megabytes": lambda record, ours: ours.extra_bytes / 1e6,
    # The largest time per step over the smallest.
    "flatness": lambda record, *rows: max(r.per_step for r in rows) / min(r.per_step for r in rows),
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


_FILE = Path(__file__).with_name("targets.toml")
TARGETS = [Target(**row) for row in tomllib.loads(_FILE.read_text(encoding="utf-8"))["target"]]


def seconds_text(seconds: float) -> str:
    """Seconds in a unit that suits them, with four digits.

    Example:
        >>> seconds_text(0.01234), seconds_text(2), seconds_text(5e-6)
        ('12.34 ms', '2.000 s', '5.000 µs')
    """
    factor, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    value = seconds * factor
    return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f} {unit}"


def ratio_text(ratio: float | None) -> str:
    """A ratio with three digits; a dash if there is none.

    Example:
        >>> ratio_text(0.6543), ratio_text(123.4), ratio_text(None)
        ('0.654', '123', '–')
    """
    if ratio is None:
        return "–"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def of_group(record: Record, rows: Sequence[Row]) -> Table:
    """The table of one case and work: only columns that say something."""
    limits, peaks = ([record.of_limit(r, name) for r in rows] for name in ("limit", "peak"))
    faster = [ratio_text(record.times_faster(row)) for row in rows]
    extra = ["–" if r.extra_bytes is None else f"{r.extra_bytes / 1e6:,.1f} MB" for r in rows]
    others = {row.versus: None for row in rows if row.versus is not None}
    than = f" than {next(iter(others))}" if len(others) == 1 else ""
    columns = [
        ("contender", [row.contender for row in rows], True),
        ("seconds", [seconds_text(row.seconds) for row in rows], True),
        ("median", [_spread_text(row) for row in rows], any(len(r.samples) > 1 for r in rows)),
        ("per step", [seconds_text(row.per_step) for row in rows], any(r.steps > 1 for r in rows)),
        ("of the limit", list(map(ratio_text, limits)), limits.count(None) < len(rows)),
        ("of the peak", list(map(ratio_text, peaks)), peaks.count(None) < len(rows)),
        (f"times faster{than}", faster, bool(others)),
        ("peak extra memory", extra, extra.count("–") < len(rows)),
    ]
    kept = [(head, cells) for head, cells, says_something in columns if says_something]
    body = zip(*(cells for _, cells in kept), strict=True)
    return [head for head, _ in kept], list(map(list, body))


def _spread_text(row: Row) -> str:
    """How far the median lies above the best, and whether the best was falling to the end."""
    text = f"+{100 * (row.median / row.seconds - 1):.0f} %"
    few = len(row.samples) <= SETTLED_ROUNDS
    return text if few or settled(row.samples) else text + ", unsettled"


def text(record: Record, only: Callable[[str], bool] = lambda case: True) -> str:
    """The whole record, or some of its cases, one by one."""
    parts = []
    for case, work, rows in record.groups():
        if not only(case):
            continue
        sizes = (f"{name.replace('_', ' ')} = {n:,}" for name, n in rows[0].sizes.items())
        parts += [f"### {case}, {work}\n", ", ".join(sizes) + "\n"]
        parts += [markdown(of_group(record, rows), right=True)]
        parts += [f"{row.contender}: {note}\n" for row in rows for note in row.notes]
    parts += [
        f"- not measured: {what}: {why}\n" for what, why in record.skipped.items() if only(what)
    ]
    return "\n" + "\n".join(parts)


def blocks(record: Record) -> dict[str, str]:
    """By name what stands between the markers of the page; equal for equal records."""
    return {
        "machine": markdown(_machine(record), right=True),
        "targets": markdown(targets(record), right=True),
        "measurements": text(record, lambda case: not _streams(case)),
        "streams": streams(record),
        "compare": compare.recorded(),
    }


def _streams(case: str) -> bool:
    return case.startswith("stream-")


def streams(record: Record, folder: Path = ROOT / "results" / "bench") -> str:
    """Streams of a record, or of those that have nothing else (`--cases streaming`)."""
    found = [record] if any(_streams(row.case) for row in record.rows) else []
    found = found or [read(path) for path in sorted(folder.glob("*t-streaming.json"))]
    if not found:
        return "\nNot measured yet.\n"
    return "\n".join(f"\n{_place(one)}\n{text(one, _streams)}" for one in found)


def _place(record: Record) -> str:
    about, threads = record.environment, record.settings["threads"]
    return (
        f"{about['cpu']}, {threads} threads, load before the run {about['load_before']}, "
        f"commit {about.get('commit', 'unknown')}."
    )


def targets(record: Record) -> Table:
    """Every target, and what was measured."""
    body, medians = [], record.by_medians()
    for target in TARGETS:
        verdict = target.verdict(record)
        numbers = (target.value(record), target.value(medians), target.needs(record))
        texts = (ratio_text(None if verdict == "not measured" else n) for n in numbers)
        body.append([target.what, f"{target.sense} {ratio_text(target.bound)}", *texts, verdict])
    return ["what", "target", "measured", "by medians", "needs of the limit", "verdict"], body


def _machine(record: Record) -> Table:
    found, settings = record.environment, record.settings
    memory, load = found["memory_bytes"], found["load_before"]
    small = "small, from a quick run: the numbers mean nothing"
    rows = {
        "processor": found["cpu"],
        "processors used": settings["threads"],
        "memory": "unknown" if memory is None else f"{memory / 1e9:.0f} GB",
        "system": f"{found['system']} {found['machine']}, Python {found['python']}",
        "torch": found["torch"] + (" with MKL" if found["mkl"] else ""),
        "roann": f"{found['roann']}, commit {found.get('commit', 'unknown')}",
        "kernel of roann": f"{found['kernel']} ({found['isa'] or found['why_not_native']})",
        "denormals flushed in every thread": "yes" if found["flushes_denormals"] else "no",
        "load before the run": "unknown" if load is None else load,
        "passes": settings.get("passes", 1),
        "rounds of a pass, at least": settings["rounds"],
        "sizes": small if settings["quick"] else "full",
    }
    return ["", ""], [[name, str(value)] for name, value in rows.items()]
