"""The figure of a record, and the generated parts of `docs/benchmark.md`."""

from __future__ import annotations

from pathlib import Path

from benchmarks import compare, table
from benchmarks.record import Record
from benchmarks.targets import TARGETS


def blocks(record: Record) -> dict[str, str]:
    """By name what stands between the markers of the page; equal for equal records."""
    parts = []
    for case, work, rows in record.groups():
        parts += [f"### {case}, {work}\n", f"{table.sizes_text(rows[0].sizes)}\n"]
        parts += [table.markdown(table.of_group(record, rows)) + "\n"]
        parts += [f"{row.contender}: {note}\n" for row in rows for note in row.notes]
    parts += [f"- not measured: {what}: {why}\n" for what, why in record.skipped.items()]
    return {
        "machine": table.markdown(_machine(record)) + "\n",
        "targets": table.markdown(targets_table(record)) + "\n",
        "measurements": "\n" + "\n".join(parts),
        "compare": compare.recorded(),
    }


def targets_table(record: Record) -> table.Table:
    """Every target, and what was measured."""
    body, medians = [], record.by_medians()
    for target in TARGETS:
        verdict = target.verdict(record)
        known = verdict != "not measured"
        numbers = (target.value(record), target.value(medians), target.needs(record))
        texts = (table.ratio_text(number if known else None) for number in numbers)
        wanted = f"{target.sense} {table.ratio_text(target.bound)}"
        body.append([target.what, wanted, *texts, verdict])
    return ["what", "target", "measured", "by medians", "needs of the limit", "verdict"], body


def _machine(record: Record) -> table.Table:
    found = record.environment
    memory = found["memory_bytes"]
    rows = {
        "processor": found["cpu"],
        "processors used": record.settings["threads"],
        "memory": "unknown" if memory is None else f"{memory / 1e9:.0f} GB",
        "system": f"{found['system']} {found['machine']}, Python {found['python']}",
        "torch": found["torch"] + (" with MKL" if found["mkl"] else ""),
        "roann": f"{found['roann']}, commit {found.get('commit', 'unknown')}",
        "kernel of roann": f"{found['kernel']} ({found['isa'] or found['why_not_native']})",
        "denormals flushed in every thread": "yes" if found["flushes_denormals"] else "no",
        "load before the run": "unknown" if found["load_before"] is None else found["load_before"],
        "passes": record.settings.get("passes", 1),
        "rounds of a pass, at least": record.settings["rounds"],
        "sizes": "small, from a quick run: the numbers mean nothing" if record.quick else "full",
        **found["guests"],
    }
    return ["", ""], [[name, str(value)] for name, value in rows.items()]


def ratios(record: Record) -> list[tuple[str, float, float]]:
    """(label, our seconds, the peer's) of every training step of a task."""
    ours = {r.case: r for r in record.rows if (r.work, r.contender) == ("train", "roann qr")}
    return [
        (f"{row.case}: {row.contender}", ours[row.case].seconds, row.seconds)
        for row in record.rows
        if row.work == "train" and row.case in ours
        if row.contender != "limit" and not row.contender.startswith("roann ")
    ]


def draw(record: Record, path: Path) -> str | None:
    """Draw how many times faster than each peer; returns why not, if it could not be."""
    timings = ratios(record)
    if not timings:
        return "none of the cases measured has peers to draw"
    try:
        from roann.lab.figures import Timing, bench_ratios, save
    except ImportError as error:
        return f"{error.name} is not installed (roann[lab] brings it)"
    title = f"full training step, {record.settings['threads']} threads"
    save(bench_ratios([Timing(*t) for t in timings], other="the peer named", title=title), path)
    return None
