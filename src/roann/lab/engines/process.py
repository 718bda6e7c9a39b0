"""One run in a process of its own, forked from a server that has torch loaded.

All engines train in such processes: a crash costs one run, and no run sees another's settings.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path

from roann.lab.checkpoint import BusyError
from roann.lab.files import RunFileError
from roann.lab.progress import logging_to_file, printable
from roann.lab.run import LOG, execute, result_of
from roann.lab.stop import InterruptedRun, Stop, UnfinishedRun

# A server imports these once and forks for every run; torch's optimisers import the second.
PRELOAD = ["roann.lab.engines.process", "torch._dynamo"]
PATIENCE = 60.0  # seconds to wait for a process that still writes to a run directory
_BUSY, _INTERRUPTED, _FAILED = 40, 41, 42  # exit codes of the processes
_STATUSES = {_BUSY: "busy", _INTERRUPTED: "interrupted", _FAILED: "failed"}
_log = logging.getLogger(__name__)


class RunProcess:
    """The process of one run, started at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(PRELOAD)
        self._words, child = context.Pipe(duplex=False)
        with child, _without_main():
            start_server()
            self._process = context.Process(target=work, args=(folder, child))
            self._process.start()

    @property
    def sentinel(self) -> int:
        """What `multiprocessing.connection.wait` waits for."""
        return self._process.sentinel

    @property
    def pid(self) -> int:
        """The number of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def ask_to_stop(self) -> None:
        """Let it commit a checkpoint and end."""
        self._process.terminate()

    def alive(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.is_alive()

    def status(self) -> str:
        """What became of the run, once the process has ended."""
        return status_of(self.folder, self._process.exitcode)

    def words(self) -> str:
        """Why the run failed, if it did."""
        try:
            return str(self._words.recv()) if self._words.poll() else ""
        except EOFError:
            return ""


def persist(folder: Path) -> Iterator[RunProcess]:
    """Start the process of a run, and again while another process still writes to its directory.

    That is one whose driver or machine has died: it notices, and lets go. The caller waits for each
    process to end before it asks for the next.
    """
    end = time.monotonic() + PATIENCE
    while True:
        process = RunProcess(folder)
        yield process
        if process.status() != "busy" or time.monotonic() >= end:
            return
        time.sleep(0.5)


def status_of(folder: Path, code: int | None) -> str:
    """The status of a run whose process has ended with this exit code, if there was one."""
    result = result_of(folder)
    if result is not None:
        return str(result["status"])
    return "interrupted" if code is None else _STATUSES.get(code, "killed")


@cache
def start_server() -> None:
    """Start the process that starts the others; it ignores Ctrl-C.

    A terminal sends it to all of them, and this one would die of it while it loads torch. Once: a
    Ctrl-C meanwhile is lost.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited, and it stays so there
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module, which every process would import again: Ray's takes half a second."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def work(folder: Path, words: Connection | None = None) -> None:
    """The whole life of one process: one run. Why it failed is sent, or printed."""
    parent = multiprocessing.parent_process()
    stop = Stop(orphaned=None if parent is None else lambda: not parent.is_alive())
    logging.getLogger("roann").setLevel(logging.INFO)
    with stop.listening():
        try:
            execute(folder, stop)
        except BusyError:
            sys.exit(_BUSY)
        except InterruptedRun:
            sys.exit(_INTERRUPTED)
        except (RunFileError, UnfinishedRun) as error:
            _tell(words, str(error))
            sys.exit(_INTERRUPTED if isinstance(error, UnfinishedRun) else _FAILED)
        except Exception as error:
            with logging_to_file(folder / LOG):
                _log.exception("the run failed")
            _tell(words, f"{folder}: {error}")
            sys.exit(_FAILED)


def _tell(words: Connection | None, text: str) -> None:
    if words is None:
        print(f"roann: {printable(text)}", file=sys.stderr)
    else:
        words.send(text)
