"""Progress of a run: a live bar on a terminal, a plain line now and then elsewhere.

Everything goes to stderr; results alone go to stdout.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roann.lab.files import OWN

if TYPE_CHECKING:
    from rich.progress import TaskID

_BAR = 12  # columns of a bar


def printable(text: str) -> str:
    """The text without control and format characters (line feeds stay), safe for a terminal."""
    # C: control, format, surrogate, private; a bidirectional override makes a name read as another.
    return "".join(c for c in text if c == "\n" or unicodedata.category(c)[0] != "C")


def counted(number: int, noun: str) -> str:
    """A number and its noun."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def clock(duration: float) -> str:
    """Seconds as hours, minutes and seconds."""
    minutes, seconds = divmod(int(duration), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class _Stderr(logging.Handler):
    """Whatever stderr is at the time: a live display puts lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


class _LogFile(logging.Handler):
    """A log that a full disk costs a line, never the run."""

    def __init__(self, file: int) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            os.write(self._file, f"{self.format(record)}\n".encode(errors="backslashreplace"))


@contextmanager
def _logging_to(handler: logging.Handler, form: str) -> Iterator[logging.Logger]:
    logger = logging.getLogger("roann")
    handler.setFormatter(_Plain(form))
    logger.addHandler(handler)
    try:
        yield logger
    finally:
        logger.removeHandler(handler)


@contextmanager
def logging_to_stderr(level: int) -> Iterator[None]:
    """Send the package's log to stderr, one plain line each."""
    handler = _Stderr()
    handler.setLevel(level)
    with _logging_to(handler, "roann: %(message)s") as logger:
        before = logger.level, logger.propagate
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.setLevel(before[0])
            logger.propagate = before[1]


@contextmanager
def logging_to_file(path: Path) -> Iterator[None]:
    """Send the package's log to a file too; a link in its place is not followed."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | OWN, 0o644)
    try:
        with _logging_to(_LogFile(file), "%(asctime)s %(levelname)s %(message)s"):
            yield
    finally:
        os.close(file)


class Progress:
    """Shows nothing: the base, and what `--quiet` gets."""

    interval = float("inf")

    def __init__(self, name: str, last: int, primary: str, trivial: float) -> None:
        self.name = printable(name)
        self.last = last
        self._primary, self._trivial = primary, f"trivial {trivial:.4g}"
        self._score = f"{primary} –"
        self._next = self._speed = 0.0
        self._from: tuple[float, int] | None = None

    def step(self, step: int, loss: float) -> None:
        """After an update; costs a look at the clock unless it is time to show something."""
        now = time.monotonic()
        if self._from is None:
            self._from = now, step
        if now < self._next:
            return
        self._next = now + self.interval
        if now > self._from[0]:
            self._speed = (step - self._from[1]) / (now - self._from[0])
        speed = f", {self._speed:.3g} steps/s" if self._speed > 0 else ""
        self.draw(step, f"loss {loss:.4g}, {self._score}, {self._trivial}{speed}")

    def scores(self, sets: dict[str, dict[str, float]]) -> None:
        """After an evaluation; the first set counts."""
        name, scores = next(iter(sets.items()))
        self._score = f"{name} {self._primary} {scores[self._primary]:.4g}"

    def draw(self, step: int, words: str) -> None:
        """Show it."""

    def close(self) -> None:
        """Leave the terminal as it was."""

    def left(self, step: int) -> str:
        """The time left at the present speed."""
        if self._speed <= 0:
            return "-:--"
        return clock((self.last - step) / self._speed)


class Lines(Progress):
    """One plain line every few seconds: for log files."""

    interval = 5.0

    def draw(self, step: int, words: str) -> None:
        """Print it."""
        line = f"{self.name}: step {step}/{self.last}, {words}, {self.left(step)} left"
        print(line, file=sys.stderr, flush=True)


class Bar(Progress):
    """A live bar: for terminals. Honours NO_COLOR, as rich does."""

    interval = 0.2

    def __init__(self, name: str, last: int, primary: str, trivial: float) -> None:
        super().__init__(name, last, primary, trivial)
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Live

        self._live = Live(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_BAR),
            TextColumn("{task.fields[words]}", markup=False),
            console=Console(stderr=True),
            transient=True,
            auto_refresh=False,
        )
        self._row: TaskID = self._live.add_task(f"0/{last}", total=last, words="")
        self._live.start()

    def draw(self, step: int, words: str) -> None:
        """Redraw it; where the terminal is narrow, without the name, then with fewer words."""
        head = f"{step}/{self.last}, {self.left(step)} left"
        room = self._live.console.width - len(head) - _BAR - 2
        named = f"{self.name}: {words}"
        words = next((w for w in (named, words) if len(w) <= room), words[: max(0, room - 1)] + "…")
        self._live.update(self._row, description=head, completed=step, words=words, refresh=True)

    def close(self) -> None:
        """Take the bar away."""
        self._live.stop()


def watcher(quiet: bool) -> type[Progress]:
    """The kind of progress that suits stderr."""
    if quiet:
        return Progress
    return Bar if sys.stderr.isatty() else Lines
