"""A run directory in pieces: for machines that do not share it.

A sender packs what has changed since the last time; a receiver keeps the pieces apart until all of
them have come, then puts them in place, in an order after which the directory is that of a run that
was killed, whatever happens in between: it can be resumed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from roann.lab import checkpoint
from roann.lab.files import sync_folder
from roann.lab.records import DAMAGED
from roann.lab.run import CONFIG, ENVIRONMENT, LOG, METRICS, RESULT
from roann.lab.run_context import BEST, BEST_COPY, CHECKPOINTS

PIECE = 8_000_000  # bytes
COMING = ".coming"  # folder of pieces that are not in place yet
# As they are read: where there is a result, the rest is final; records reach beyond checkpoints.
_FOLDERS = (CHECKPOINTS, BEST, BEST_COPY)
_FILES = (CONFIG, METRICS, DAMAGED, ENVIRONMENT, LOG)

Piece = tuple[str, int, bytes]  # name, offset, data
Names = list[str]
Stamps = dict[str, tuple[int, int]]


class Sender:
    """Packs a run directory, again and again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: Stamps = {}

    def pack(self) -> Iterator[Piece | Names]:
        """The pieces of what has changed, then the names of all there is; nothing if all is known.

        If a checkpoint is pruned meanwhile, the names do not come, and the pieces do not count.
        """
        try:
            stamps = {name: _stamp(self._folder / name) for name in _names(self._folder)}
            new = [name for name, stamp in stamps.items() if self._sent.get(name) != stamp]
            for name in new:
                yield from _pieces(self._folder, name)
        except FileNotFoundError:
            return
        self._sent = stamps
        if new:
            yield list(stamps)


def _names(folder: Path) -> Names:
    found = [RESULT] if (folder / RESULT).exists() else []
    for place in _FOLDERS:
        for path in checkpoint.committed(folder / place):
            found += [f"{place}/{path.name}/{file.name}" for file in sorted(path.iterdir())]
    return found + [name for name in _FILES if (folder / name).exists()]


def _stamp(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def _pieces(folder: Path, name: str) -> Iterator[Piece]:
    with open(folder / name, "rb") as file:
        offset = 0
        while data := file.read(PIECE):
            yield name, offset, data
            offset += len(data)
        if not offset:
            yield name, 0, b""


class Receiver:
    """Puts pieces in place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coming = folder / COMING
        shutil.rmtree(self._coming, ignore_errors=True)

    def take(self, item: Piece | Names) -> None:
        """Keep a piece, or put all of them in place."""
        if isinstance(item, list):
            self._place(item)
            return
        name, offset, data = item
        path = self._coming / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _place(self, names: Names) -> None:
        for name in reversed(names):  # records first, then checkpoints, the result last
            parts = name.rsplit("/", 2)
            # A checkpoint is renamed as a whole: it is there or it is not.
            what = "/".join(parts[:2]) if len(parts) == 3 else name
            coming, final = self._coming / what, self._folder / what
            if coming.exists():
                final.parent.mkdir(parents=True, exist_ok=True)
                if final.is_dir():
                    shutil.rmtree(final)
                coming.replace(final)
                sync_folder(final.parent)
        kept = {name.rpartition("/")[0] for name in names}
        for place in _FOLDERS:
            for path in checkpoint.committed(self._folder / place):
                if f"{place}/{path.name}" not in kept:
                    shutil.rmtree(path)
        shutil.rmtree(self._coming, ignore_errors=True)

    def close(self) -> None:
        """Drop pieces whose rest did not come."""
        with suppress(OSError):
            shutil.rmtree(self._coming)
