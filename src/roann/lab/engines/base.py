"""What an engine is: it executes the runs that a sweep or a search hands to it."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from roann.lab.checkpoint import BusyError
from roann.lab.config import Experiment, Resources
from roann.lab.files import OWN

SLOTS = 256  # runs that are handed to a cluster at a time, if the user does not say


@dataclass(frozen=True)
class Home:
    """Where the runs of a driver are: its lock file, and the word in it that is its own."""

    lock: Path
    word: str


@dataclass(frozen=True)
class Setup:
    """What an engine needs to know."""

    home: Home
    jobs: int | None = None
    address: str | None = None
    resources: Resources = field(default_factory=Resources)


class Engine(Protocol):
    """Executes runs in processes of their own, here or elsewhere.

    A status is that of the run's result ("finished" or "diverged"), or "interrupted", "busy" (in
    another process), "failed" (see its run.log) or "killed" (the process, or its machine).
    """

    slots: int  # how many runs it takes at a time

    def start(self, folder: Path, experiment: Experiment) -> None:
        """Take a run directory, and execute its run as soon as there is room."""

    def ended(self, seconds: float) -> dict[Path, str]:
        """The runs that have ended since the last call, waiting up to `seconds` for one."""

    def stop(self, folder: Path) -> None:
        """Ask a run to commit a checkpoint and end; may be called again."""

    def close(self) -> None:
        """Let go of everything, of runs in progress too."""


@contextmanager
def sole_driver(lock: Path) -> Iterator[Home]:
    """Be the only driver of a sweep or a search; its lock file is gone at the end."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with open(os.open(lock, os.O_RDWR | os.O_CREAT | OWN, 0o644), "r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BusyError(
                    f"{lock.parent}: another driver is at work on these runs; wait for it or "
                    "stop it."
                ) from None
            if not _is_there(file.fileno(), lock):
                continue  # the last driver has just removed it
            home = Home(lock.absolute(), uuid.uuid4().hex)
            file.truncate(0)
            file.write(home.word)
            file.flush()
            os.fsync(file.fileno())
            try:
                yield home
            finally:
                lock.unlink(missing_ok=True)
            return


def _is_there(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def sees(home: Home) -> bool:
    """Whether this process has the directory of the driver, and its locks, before it.

    The driver holds the lock: where it can be taken, locks do not reach from machine to machine.
    """
    try:
        with open(os.open(home.lock, os.O_RDWR | OWN), "r+") as file:
            if file.read() != home.word:
                return False
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
