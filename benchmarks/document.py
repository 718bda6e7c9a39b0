"""The generated parts of `docs/benchmark.md`."""

from __future__ import annotations

from benchmarks import compare, table
from benchmarks.record import Record
from benchmarks.targets import TARGETS


def blocks(record: Record) -> dict[str, str]:
    """By name what stands between the markers of the page; equal for equal records."""
    return {
        "machine": table.markdown(_machine(record)) + "\n",
        "targets": table.markdown(targets_table(record)) + "\n",
        "measurements": table.text(record),
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
    }
    return ["", ""], [[name, str(value)] for name, value in rows.items()]
