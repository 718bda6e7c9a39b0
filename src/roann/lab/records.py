"""`metrics.jsonl`: what a run measured, one JSON object a line, append-only."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

Kind = Literal["train", "eval", "probe", "leap", "event"]
FLUSH_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Records:
    """An append-only writer that a full disk or a crash cannot confuse.

    Lines wait in memory for about a second, then go to the file at a known offset: after a failed
    or partial write the same bytes are written again to the same place, so nothing is doubled or
    lost. A resumed run passes the offset in its checkpoint; what came after it is cut off, and
    measured again.

    Args:
        path: the file; created if absent.
        offset: how many bytes of it to keep.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._pending = bytearray()
        self._flushed = time.monotonic()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.ftruncate(self._file, offset)

    def write(
        self,
        kind: Kind,
        step: int,
        epoch: float | None,
        seconds: float,
        values: Mapping[str, Any],
    ) -> None:
        """Append one record; numbers JSON cannot say (nan, inf) become null."""
        record = {"kind": kind, "step": step, "epoch": epoch, "seconds": round(seconds, 3)}
        line = json.dumps(plain({**record, **values}), allow_nan=False, separators=(",", ":"))
        self._pending += line.encode() + b"\n"
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flushed = time.monotonic()
            try:
                self.flush()
            except OSError as error:
                _log.warning(
                    "%s: %s; training goes on, and writing is tried again.",
                    self.path.name,
                    error.strerror,
                )

    def flush(self) -> None:
        """Hand every pending line to the system; after an OSError they are still pending."""
        while self._pending:
            written = os.pwrite(self._file, self._pending, self.offset)
            self.offset += written
            del self._pending[:written]

    def sync(self) -> int:
        """Wait until the disk has every record; returns the offset a checkpoint must hold."""
        self.flush()
        os.fsync(self._file)
        return self.offset

    def close(self) -> None:
        """Close the file; pending lines are lost unless `flush` was called."""
        os.close(self._file)


def read(path: Path, strict: bool = True) -> list[dict[str, Any]]:
    """Every whole record of a file; a last line cut short by a crash is left out.

    A damaged line is a ValueError, or, if not `strict`, left out with a warning.
    """
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            found.append(json.loads(line))
        except ValueError as error:
            if strict:
                raise
            _log.warning("%s: line %d is damaged and left out (%s).", path.name, number, error)
    return found


def summary(
    lines: list[dict[str, Any]], primary: str, better: Literal["lower", "higher"]
) -> dict[str, Any]:
    """What a run reached, from its records alone.

    Returns:
        ``final``: by set, the last scores; ``best``: by set, the scores of the best evaluation by
        `primary`; ``selected``: by set, the scores at the best evaluation of the first set, which
        is how a run is judged by validation. Each has its ``step``.
    """
    sign = 1 if better == "lower" else -1
    evaluations: dict[int, dict[str, dict[str, Any]]] = {}
    for line in lines:
        if line["kind"] == "eval":
            scores = {k: v for k, v in line.items() if k not in ("kind", "set", "seconds")}
            evaluations.setdefault(line["step"], {})[line["set"]] = scores
    if not evaluations:
        return {"final": {}, "best": {}, "selected": {}}

    def best(name: str) -> dict[str, dict[str, Any]]:
        scored = [sets for sets in evaluations.values() if sets[name].get(primary) is not None]
        return min(scored, key=lambda sets: sign * sets[name][primary], default={name: {}})

    final = evaluations[max(evaluations)]
    return {
        "final": final,
        "best": {name: best(name)[name] for name in final},
        "selected": best(next(iter(final))),
    }


def plain(value: Any) -> Any:
    """A value JSON can say: numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
