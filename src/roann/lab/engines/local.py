"""Runs in a few processes of this machine."""

from __future__ import annotations

import logging
from multiprocessing.connection import wait
from pathlib import Path

from roann.lab.config import Experiment
from roann.lab.engines.base import Setup
from roann.lab.engines.process import RunProcess, start_server

_log = logging.getLogger(__name__)


class Local:
    """`Setup.jobs` processes at a time, one by default."""

    def __init__(self, setup: Setup) -> None:
        self.slots = setup.jobs or 1
        self._running: dict[Path, RunProcess] = {}
        start_server()

    def start(self, folder: Path, experiment: Experiment) -> None:
        """Start the process of a run."""
        self._running[folder] = RunProcess(folder)

    def ended(self, seconds: float) -> dict[Path, str]:
        """The runs whose processes have ended, with their statuses."""
        wait([process.sentinel for process in self._running.values()], timeout=seconds)
        found = {}
        for folder in [f for f, process in self._running.items() if not process.alive()]:
            process = self._running.pop(folder)
            found[folder] = process.status()
            if words := process.words():
                _log.error("%s", words)
        return found

    def stop(self, folder: Path) -> None:
        """Ask a run to stop."""
        self._running[folder].ask_to_stop()

    def close(self) -> None:
        """Nothing is left: no run outlives the loop that waits for it."""
