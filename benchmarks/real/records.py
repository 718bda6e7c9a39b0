"""Records of the benchmark on real series: a line of JSON for each set, system and seed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from roann.serialization import write_atomically

Row = dict[str, Any]
NEEDED = {"set", "kind", "system", "seed", "score", "seconds", "parameters"}


def key(row: Row) -> tuple[str, str, int]:
    """What a record is about; a later one takes the place of an earlier."""
    return row["set"], row["system"], row["seed"]


def read(folder: Path) -> list[Row]:
    """All records of a folder, by set, system and seed."""
    found: dict[tuple[str, str, int], Row] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            if not isinstance(row, dict) or not row.keys() >= NEEDED:
                raise ValueError(f"{path}, line {number}: not a record of this benchmark.")
            found[key(row)] = row
    return [found[k] for k in sorted(found)]


def add(folder: Path, rows: Iterable[Row]) -> None:
    """Write records to the files of their sets, in place of older ones about the same."""
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        path = folder / f"{row['set']}.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        kept = [other for line in lines if key(other := json.loads(line)) != key(row)]
        text = "".join(json.dumps(r, sort_keys=True) + "\n" for r in sorted([*kept, row], key=key))
        write_atomically(path, text.encode())
