"""A record as a picture, if the lab's figures can be drawn here."""

from __future__ import annotations

from pathlib import Path

from benchmarks.record import Record

PEERS = (
    "nn.RNN",
    "nn.GRU",
    "nn.LSTM",
    "naive loop",
    "JAX lax.scan",
    "torchrecurrent FastRNN",
    "one module per layer",
)


def ratios(record: Record) -> list[tuple[str, float, float]]:
    """(label, our seconds, the peer's) of every training step of a task."""
    made = []
    for row in record.rows:
        if row.work != "train" or row.contender != "roann qr":
            continue
        for peer in PEERS:
            other = record.find(row.case, row.work, peer)
            if other is not None:
                made.append((f"{row.case}: {peer}", row.seconds, other.seconds))
    return made


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
