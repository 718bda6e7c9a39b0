"""The runs of a sweep or a search while they run: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from roann.lab.config import Experiment
from roann.lab.follow import Follower
from roann.lab.progress import clock, counted, printable
from roann.lab.run import METRICS

NEWS_SECONDS = 30.0
_log = logging.getLogger(__name__)


class Line(NamedTuple):
    """One run in progress, in words."""

    name: str
    step: str
    score: str
    left: str


class Board:
    """Shows nothing: the base, and what `--quiet` gets."""

    interval = float("inf")

    def __init__(self) -> None:
        self._next = time.monotonic() + self.interval
        self._followed: dict[Path, Follower] = {}

    def show(self, running: Mapping[Path, Experiment], waiting: int, ended: int) -> None:
        """Show what is going on, if it is time to."""
        now = time.monotonic()
        if now < self._next or not running:
            return
        self._next = now + self.interval
        self._followed = {f: self._followed.get(f) or Follower(f / METRICS) for f in running}
        lines, totals, lefts = [], [], []
        for folder, experiment in running.items():
            seen = self._followed[folder].look()
            left, total = seen.left(experiment), seen.total(experiment)
            totals += [] if total is None else [total]
            lefts += [] if left is None else [left]
            length = f"/{experiment.train.length}" if experiment.train.unit == "iteration" else ""
            words = "-:--" if left is None else clock(left)
            lines.append(Line(folder.name, f"{seen.step}{length}", seen.words(), words))
        head = f"{counted(len(running), 'run')} in progress, {waiting} waiting, {ended} ended"
        if totals:  # runs that have not begun take as long as those in progress
            mean = sum(totals) / len(totals)
            work = sum(lefts) + mean * (waiting + len(running) - len(lefts))
            head += f", about {clock(max(work / len(running), *lefts))} left"
        self.draw(head, lines)

    def draw(self, head: str, lines: list[Line]) -> None:
        """Show it."""

    def close(self) -> None:
        """Leave the terminal as it was."""


class News(Board):
    """A line now and then: for log files."""

    interval = NEWS_SECONDS
    most = 5  # runs that are named

    def draw(self, head: str, lines: list[Line]) -> None:
        """Log it."""
        named = [f"{line.name} at step {line.step}" for line in lines[: self.most]]
        scores = [f" ({line.score})" if line.score else "" for line in lines]
        shown = ", ".join(name + score for name, score in zip(named, scores, strict=False))
        more = f" and {len(lines) - self.most} more" if len(lines) > self.most else ""
        _log.info("%s; running: %s%s.", head, shown, more)


class Table(Board):
    """A live table: for terminals. Honours NO_COLOR, as rich does."""

    interval = 1.0

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.live import Live

        self._next = 0.0
        self._live = Live(console=Console(stderr=True), transient=True, auto_refresh=False)
        self._live.start()

    def draw(self, head: str, lines: list[Line]) -> None:
        """Redraw it, with as many runs as the terminal has lines for."""
        from rich.console import Group
        from rich.table import Table as Grid
        from rich.text import Text

        room = max(1, self._live.console.height - 5)
        grid = Grid(box=None, pad_edge=False)
        grid.add_column("run", overflow="ellipsis", no_wrap=True)
        for name in ("step", "best", "left"):
            grid.add_column(name, justify="right", no_wrap=True)
        for line in lines[:room]:
            grid.add_row(*(Text(printable(word)) for word in line))
        if len(lines) > room:
            grid.add_row(f"and {len(lines) - room} more", "", "", "")
        self._live.update(Group(Text(head), grid), refresh=True)

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()


def board(quiet: bool) -> Board:
    """The kind of board that suits stderr."""
    if quiet:
        return Board()
    return Table() if sys.stderr.isatty() else News()
