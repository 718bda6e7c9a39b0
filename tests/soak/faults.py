"""Faults for the long proof: kill -9, flipped bits, a disk without a free byte."""

import errno
import os
import random
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roann.lab import checkpoint
from roann.lab.run import BEST, CHECKPOINTS, METRICS

DISK = "16m"
FILLER = "filler"


@contextmanager
def disk(place: Path) -> Iterator[bool]:
    """A small file system of its own, if this process may mount one; yields whether it may."""
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)
        shutil.rmtree(place)


def fill(place: Path) -> None:
    """Use up the last byte of a disk."""
    with open(place / FILLER, "ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while file.write(b"\0" * size) == size:
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise


def free(place: Path) -> None:
    """Give the room back."""
    (place / FILLER).unlink(missing_ok=True)


def flip(path: Path, rng: random.Random) -> bool:
    """Flip one bit of a file; returns whether there was one."""
    data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
    if not data:
        return False
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return True


def flip_somewhere(folder: Path, rng: random.Random) -> str | None:
    """Flip a bit in the newest checkpoint, the best one or the records; returns where."""
    what = rng.choice((CHECKPOINTS, BEST, METRICS))
    if what == METRICS:
        return what if flip(folder / METRICS, rng) else None
    for newest in checkpoint.committed(folder / what)[:1]:
        files = sorted(newest.iterdir()) if newest.is_dir() else []
        return what if files and flip(rng.choice(files), rng) else None
    return None


def kill(pid: int) -> bool:
    """Send kill -9 to a process and wait for its end; returns whether it was alive."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if select.select([handle], [], [], 0)[0]:
            return False  # it has ended, but nobody has asked how
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [], 30)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def session(leader: int) -> dict[int, int]:
    """The living processes of a session, each with its parent."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            state, parent, own = fields[0], int(fields[1]), int(fields[3])
            if own == leader and state not in "ZX":
                found[int(entry.name)] = parent
    return found
