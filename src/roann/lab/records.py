"""`metrics.jsonl`: what a run measured, one JSON object a line, append-only."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from roann.lab.files import OWN, parse_object, read_plain

Kind = Literal["train", "eval", "probe", "leap", "event"]
KINDS = get_args(Kind)
DAMAGED = "metrics.damaged.jsonl"
FLUSH_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Sink:
    """Drops every record: the base, and what processes get that do not lead a run."""

    def write(
        self, kind: Kind, step: int, epoch: float | None, seconds: float, values: Mapping[str, Any]
    ) -> None:
        """Take one record."""

    def sync(self) -> int:
        """See that every record is safe; returns the offset a checkpoint must hold."""
        return 0

    def close(self) -> None:
        """Take no more."""


class Records(Sink):
    """An append-only writer that a full disk or a crash cannot confuse.

    Lines wait in memory for about a second, then go to the file at a known offset: after a failed
    or partial write the same bytes are written again to the same place, so nothing is doubled or
    lost. A resumed run passes the offset in its checkpoint; what came after it is cut off, and
    measured again.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        self.offset = offset
        self._pending = bytearray()
        self._flushed = time.monotonic()
        self._file = _own(path, os.O_CREAT)
        os.ftruncate(self._file, offset)

    def write(
        self, kind: Kind, step: int, epoch: float | None, seconds: float, values: Mapping[str, Any]
    ) -> None:
        """Append one record; numbers JSON cannot say (nan, inf) become null."""
        record = {"kind": kind, "step": step, "epoch": epoch, "seconds": round(seconds, 3)}
        self._pending += encoded({**record, **values})
        if time.monotonic() - self._flushed >= FLUSH_SECONDS:
            self._flushed = time.monotonic()
            try:
                self.flush()
            except OSError as error:
                again = "training goes on, and writing is tried again"
                _log.warning("%s: %s; %s.", self.path.name, error.strerror, again)

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
    """Every whole JSON object of a file; a last line cut short by a crash is left out.

    A damaged line is a ValueError, or, if not `strict`, left out with a warning. Blank lines are
    those that `set_damaged_aside` has taken out.
    """
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        if not line.strip(b" "):
            continue
        try:
            found.append(parse_object(line))
        except ValueError as error:
            if strict:
                raise
            _log.warning("%s: line %d is damaged and left out (%s).", path.name, number, error)
    return found


def set_damaged_aside(path: Path, size: int) -> int:
    """Move every line that is not a record to `DAMAGED` in the same folder; returns how many.

    In the file their place is blanked: the offsets that checkpoints hold stay right. What is beyond
    `size` will be cut off, and is not looked at.
    """
    lines = read_plain(path)[:size].split(b"\n") if size else []
    damaged, at = {}, 0
    for number, line in enumerate(lines, 1):
        if why := _damage(line, whole=number < len(lines)):
            _log.warning(
                "%s: line %d is damaged (%s); it is moved to %s.", path, number, why, DAMAGED
            )
            damaged[at] = line
        at += len(line) + 1
    if not damaged:
        return 0
    with open(_own(path.with_name(DAMAGED), os.O_CREAT | os.O_APPEND), "ab") as aside:
        aside.write(b"".join(line + b"\n" for line in damaged.values()))
        aside.flush()
        os.fsync(aside.fileno())
    with open(_own(path), "r+b") as file:
        for start, line in damaged.items():
            end = b"\n" if start + len(line) == size else b""  # the line feed itself was damaged
            os.pwrite(file.fileno(), b" " * (len(line) - len(end)) + end, start)
        os.fsync(file.fileno())
    return len(damaged)


def _own(path: Path, flags: int = 0) -> int:
    return os.open(path, os.O_RDWR | flags | OWN, 0o644)


def _damage(line: bytes, whole: bool) -> str:
    """Why a line is not a record; nothing if it is one, or blank."""
    if not line.strip(b" "):
        return ""
    try:
        check(parse_object(line))
    except ValueError as error:
        return str(error)
    return "" if whole else "it does not end"


def check(record: Mapping[str, Any]) -> None:
    """Raise a ValueError unless this is a record as `Records.write` makes them."""
    if record.get("kind") not in KINDS:
        raise ValueError(f"it has no kind of {', '.join(KINDS)}")
    step, epoch, seconds = (record.get(key) for key in ("step", "epoch", "seconds"))
    if not isinstance(step, int) or isinstance(step, bool) or step < 0:
        raise ValueError("it has no step")
    if "epoch" not in record or not (epoch is None or is_number(epoch)) or not is_number(seconds):
        raise ValueError("it has no epoch or no seconds")
    if record["kind"] == "eval" and not isinstance(record.get("set"), str):
        raise ValueError("it is an evaluation without a set")
    if record["kind"] == "event" and not isinstance(record.get("event"), str):
        raise ValueError("it is an event without a name")
    if not _within(record):
        raise ValueError("it has a number that is too large")


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a finite number, and not true or false."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _within(value: Any) -> bool:
    """Whether all numbers are finite and all integers have at most 64 bits."""
    if isinstance(value, dict):
        return all(map(_within, value.values()))
    if isinstance(value, list):
        return all(map(_within, value))
    if isinstance(value, int):
        return abs(value) < 2**63
    return not isinstance(value, float) or math.isfinite(value)


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
        scored = [
            sets for sets in evaluations.values() if is_number(sets.get(name, {}).get(primary))
        ]
        return min(scored, key=lambda sets: sign * sets[name][primary], default={name: {}})

    final = evaluations[max(evaluations)]
    return {
        "final": final,
        "best": {name: best(name)[name] for name in final},
        "selected": best(next(iter(final))),
    }


def encoded(*records: Mapping[str, Any]) -> bytes:
    """Records as lines of JSON; numbers it cannot say (nan, inf) become null."""
    plain_ones = (plain(dict(record)) for record in records)
    options: dict[str, Any] = {"allow_nan": False, "separators": (",", ":")}
    return "".join(json.dumps(record, **options) + "\n" for record in plain_ones).encode()


def plain(value: Any) -> Any:
    """A value JSON can say: numbers that are not finite become None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
