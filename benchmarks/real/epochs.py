"""What an epoch costs where a network was not trained to the end: measured on a part of a set."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.real.sets import Set
from benchmarks.real.systems import BASES, PEERS, RATES, VALIDATION, network
from paper.pages import Table
from roann.serialization import write_atomically

PART = 10  # one series of so many
FILE = "epochs.json"


def measure(data: Set, system: str) -> dict[str, Any]:
    """Processor time of one epoch of a network on every tenth series."""
    assert data.y is not None
    some = replace(data, X=data.X[::PART], y=data.y[::PART], epochs=1)
    base = BASES[data.kind]
    model = network(PEERS.get((system, base), base), some, 0, RATES[0])
    start = time.process_time()
    model.fit(some.X, some.y)
    seconds = time.process_time() - start
    steps, all_steps = (sum(map(len, X)) for X in (some.X, data.X))
    about = {"set": data.name, "system": system, "series": len(some.X), "seconds": seconds}
    return about | {"steps": steps, "all_steps": all_steps, "epochs": data.epochs}


def read(folder: Path) -> list[dict[str, Any]]:
    """What was measured."""
    path = folder / FILE
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.is_file() else []
    return found


def add(folder: Path, row: dict[str, Any]) -> None:
    """Write what was measured, in place of an older row about the same."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = [r for r in read(folder) if (r["set"], r["system"]) != (row["set"], row["system"])]
    write_atomically(folder / FILE, (json.dumps([*kept, row], indent=1) + "\n").encode())


def table(rows: list[dict[str, Any]]) -> Table:
    """An epoch on all series, by their steps, and a search with one fit."""
    lines = []
    for row in rows:
        epoch = row["seconds"] * row["all_steps"] / row["steps"]
        fits = 1 + len(RATES) * (1 - VALIDATION)
        lines.append([
            row["set"], row["system"], str(row["series"]), f"{row['seconds']:.0f}",
            f"{epoch / 60:.1f}", f"{epoch * row['epochs'] * fits / 3600:.1f}",
        ])  # fmt: skip
    head = (
        "set",
        "system",
        "series",
        "seconds",
        "minutes of an epoch",
        "hours of a search and fit",
    )
    return head, lines
