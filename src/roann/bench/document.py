"""A record as a page of the documentation: no number on it is typed by hand."""

from __future__ import annotations

from roann.bench import table
from roann.bench.record import Record
from roann.bench.targets import TARGETS

_INTRODUCTION = """\
---
orphan: true
---

# Benchmark

This page is written by `python -m roann.bench --write-docs RECORD docs/benchmark.md` from one
record of `python -m roann.bench`; no number on it is typed by hand.

The rules: one run; contenders take turns, each round begun by another, and the best round counts
("median" says how far above it the median round was); all cases are gone through in *passes*,
because a shared machine is fast for some minutes and slow for some; the same number of threads and
processors and flushed denormals for everyone; warm-up apart. "forward" builds no graph; "train" is
forward and backward with gradients zeroed, from a given gradient of the output, so that no loss
costs time. Contenders of the same update are first checked to give the same result.

*The limit* is the time `torch.mm` at 1024³ needs for as many operations as the products with
$N \\times N$ matrices have: per step and sequence, for a dense filter, $2N^2$ for each of $Wx$ and
$Ox$, for each of their transposes in backward, and for the gradient of $W$. The input projection
is not counted. "of the limit" gives every contender its own number of operations.
"""

_TARGETS = """\
Full training steps of the `qr` filter, unless it is said otherwise, on two processors. The verdicts
are computed from the best times of the record; beside them stands what the medians say, which
tells how much the machine did meanwhile. What a training step spends where, and how far each part
is from the limit, is under *profile*, by torch's profiler; the limit there is that of one product
per step. A roaRNN has five products per step where `nn.RNN` has three: the row *limit* of a case
says how many times faster than `nn.RNN` it could be if its products ran at the limit and nothing
else cost anything. For targets that name another contender, *takes of the limit* is the part of
the limit at which a roaRNN would meet them, the other being as fast as it was.
"""


def page(record: Record) -> str:
    """The whole page; equal for equal records."""
    parts = [_INTRODUCTION]
    if record.quick:
        parts.append("**From a quick run: sizes are small, and the numbers mean nothing.**\n")
    parts += ["## Machine\n", table.markdown(_machine(record)), ""]
    parts += ["## Targets\n", _TARGETS, table.markdown(targets_table(record)), ""]
    parts += [f"{line}\n" for line in shortfalls(record)]
    parts += ["## Measurements\n"]
    if not record.rows:
        parts.append("None.\n")
    for case, work, rows in record.groups():
        parts += [f"### {case}, {work}\n", f"{table.sizes_text(rows[0].sizes)}\n"]
        parts += [table.markdown(table.of_group(record, rows)), ""]
        parts += [f"{row.contender}: {note}\n" for row in rows for note in row.notes]
    if record.skipped:
        parts += ["## Not measured\n"]
        parts += [f"- {what}: {why}" for what, why in record.skipped.items()]
    return "\n".join(parts).rstrip("\n") + "\n"


def targets_table(record: Record) -> table.Table:
    """Every target beside what was measured."""
    body, medians = [], record.by_medians()
    for target in TARGETS:
        verdict = target.verdict(record)
        value = None if verdict == "not measured" else target.value(record)
        wanted = f"{target.sense} {table.ratio_text(target.bound)}"
        middle = None if value is None else target.value(medians)
        needs = None if value is None else target.needs(record)
        texts = [table.ratio_text(number) for number in (value, middle, needs)]
        body.append([target.what, wanted, *texts, verdict])
    return ["what", "target", "measured", "by medians", "takes of the limit", "verdict"], body


def shortfalls(record: Record) -> list[str]:
    """Of every training step that misses its target, what the profile says of its parts."""
    lines = []
    for target in TARGETS:
        reached, needed = target.reaches(record), target.needs(record)
        if target.verdict(record) != "not met" or target.of is None or reached is None:
            continue
        N, filter = target.of
        rows = [row for row in record.rows if (row.case, row.work) == (f"profile-{N}", filter)]
        shares = [(row.contender, record.of_limit(row)) for row in rows if row.contender != "limit"]
        parts = [f"{name} {table.ratio_text(s)}" for name, s in shares if s is not None]
        line = f"*{target.what}*: to meet it takes {table.ratio_text(needed)} of the limit, and "
        line += f"the step reaches {table.ratio_text(reached)}."
        if parts:
            line += f" By the profile, its parts are at these shares of it: {', '.join(parts)}."
        lines.append(line)
    return lines


def _machine(record: Record) -> table.Table:
    found = record.environment
    memory = found["memory_bytes"]
    kernel = f"{found['kernel']} ({found['isa'] or found['why_not_native']})"
    rows = {
        "processor": found["cpu"],
        "processors used": str(record.settings["threads"]),
        "memory": "unknown" if memory is None else f"{memory / 1e9:.0f} GB",
        "system": f"{found['system']} {found['machine']}, Python {found['python']}",
        "torch": found["torch"] + (" with MKL" if found["mkl"] else ""),
        "roann": f"{found['roann']}, commit {found.get('commit', 'unknown')}",
        "kernel of roann": kernel,
        "denormals flushed in every thread": "yes" if found["flushes_denormals"] else "no",
        "load before the run": "unknown" if found["load_before"] is None else found["load_before"],
        "passes": str(record.settings.get("passes", 1)),
        "rounds of a pass, at least": str(record.settings["rounds"]),
        **found["guests"],
    }
    return ["", ""], [[name, str(value)] for name, value in rows.items()]
