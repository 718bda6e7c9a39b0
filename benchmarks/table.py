"""A record as Markdown, for a terminal and for the page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.record import Record, Row
from benchmarks.timing import SETTLED_ROUNDS, settled

Table = tuple[list[str], list[list[str]]]


def seconds_text(seconds: float) -> str:
    """Seconds in a unit that suits them, with four digits.

    Example:
        >>> seconds_text(0.01234), seconds_text(2), seconds_text(5e-6)
        ('12.34 ms', '2.000 s', '5.000 µs')
    """
    factor, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    value = seconds * factor
    return f"{value:.{3 if value < 10 else 2 if value < 100 else 1}f} {unit}"


def bytes_text(size: int) -> str:
    """Bytes in megabytes (10⁶).

    Example:
        >>> bytes_text(1_500_000)
        '1.5 MB'
    """
    return f"{size / 1e6:,.1f} MB"


def ratio_text(ratio: float | None) -> str:
    """A ratio with three digits; a dash if there is none.

    Example:
        >>> ratio_text(0.6543), ratio_text(123.4), ratio_text(None)
        ('0.654', '123', '–')
    """
    if ratio is None:
        return "–"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.3g}"


def sizes_text(sizes: dict[str, int]) -> str:
    """As "T = 784, B = 100"."""
    return ", ".join(f"{name.replace('_', ' ')} = {n:,}" for name, n in sizes.items())


def of_group(record: Record, rows: Sequence[Row]) -> Table:
    """The table of one case and work: only columns that say something."""
    limits = [record.of_limit(row) for row in rows]
    faster = [ratio_text(record.times_faster(row)) for row in rows]
    extra = ["–" if row.extra_bytes is None else bytes_text(row.extra_bytes) for row in rows]
    others = {row.versus: None for row in rows if row.versus is not None}
    than = f" than {next(iter(others))}" if len(others) == 1 else ""
    columns = [
        ("contender", [row.contender for row in rows], True),
        ("seconds", [seconds_text(row.seconds) for row in rows], True),
        ("median", [_spread_text(row) for row in rows], any(len(r.samples) > 1 for r in rows)),
        ("per step", [seconds_text(row.per_step) for row in rows], any(r.steps > 1 for r in rows)),
        ("of the limit", list(map(ratio_text, limits)), limits.count(None) < len(rows)),
        (f"times faster{than}", faster, bool(others)),
        ("peak extra memory", extra, extra.count("–") < len(rows)),
    ]
    kept = [(head, cells) for head, cells, says_something in columns if says_something]
    body = zip(*(cells for _, cells in kept), strict=True)
    return [head for head, _ in kept], list(map(list, body))


def _spread_text(row: Row) -> str:
    """How far the median lies above the best, and whether the best was falling to the end."""
    text = f"+{100 * row.spread:.0f} %"
    few = len(row.samples) <= SETTLED_ROUNDS
    return text if few or settled(row.samples) else text + ", unsettled"


def markdown(table: Table) -> str:
    """A table of a Markdown page."""
    head, body = table
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *body])


def text(record: Record) -> str:
    """The whole record, case by case."""
    parts = []
    for case, work, rows in record.groups():
        parts += [f"### {case}, {work}\n", f"{sizes_text(rows[0].sizes)}\n"]
        parts += [markdown(of_group(record, rows)) + "\n"]
        parts += [f"{row.contender}: {note}\n" for row in rows for note in row.notes]
    parts += [f"- not measured: {what}: {why}\n" for what, why in record.skipped.items()]
    return "\n" + "\n".join(parts)
