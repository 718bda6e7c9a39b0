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
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roann.lab.files import OWN

if TYPE_CHECKING:
    from rich.progress import TaskID

LINE_SECONDS = 5.0
BAR_SECONDS = 0.2
_BAR = 12  # columns of a bar


def printable(text: str) -> str:
    """The text without control and format characters (line feeds stay), safe for a terminal.

    Example:
        >>> printable("run\\x1b[31m \\u202egnp.exe")
        'run[31m gnp.exe'
    """
    # C: control, format, surrogate, private; a bidirectional override makes a name read as another.
    return "".join(c for c in text if c == "\n" or unicodedata.category(c)[0] != "C")


def counted(number: int, noun: str) -> str:
    """A number and its noun.

    Example:
        >>> counted(1, "run"), counted(2000, "step")
        ('1 run', '2,000 steps')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


class LogFile(logging.Handler):
    """A log that a full disk costs a line, never the run; a link in its place is not followed.

    Args:
        path: the file, made if absent.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | OWN, 0o644)

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line, if the disk takes it."""
        with suppress(OSError):
            os.write(self._file, f"{self.format(record)}\n".encode(errors="backslashreplace"))

    def close(self) -> None:
        """Close the file."""
        with self.lock or nullcontext():
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
        super().close()


@contextmanager
def logging_to_stderr(level: int) -> Iterator[None]:
    """Send the package's log to stderr, one plain line each."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Plain("roann: %(message)s"))
    handler.setLevel(level)
    logger = logging.getLogger("roann")
    before = logger.level, logger.propagate
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def log_to_file(path: Path) -> logging.Handler:
    """Send the package's log to a file too; remove the handler to end it."""
    handler = LogFile(path)
    handler.setFormatter(_Plain("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("roann").addHandler(handler)
    return handler


class Progress:
    """Shows nothing: the base, and what `--quiet` gets.

    Args:
        name: of the run.
        last: the step it ends at.
        primary: name of the main score.
        trivial: the score to beat.
    """

    interval = float("inf")

    def __init__(self, name: str, last: int, primary: str, trivial: float) -> None:
        self.name = printable(name)
        self.last = last
        self.primary = primary
        self._trivial = f"trivial {trivial:.4g}"
        self._score = f"{primary} –"
        self._next = 0.0
        self._speed = 0.0
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
        self.draw(step, f"loss {loss:.4g}", self._words())

    def scores(self, sets: dict[str, dict[str, float]]) -> None:
        """After an evaluation; the first set counts."""
        name, scores = next(iter(sets.items()))
        self._score = f"{name} {self.primary} {scores[self.primary]:.4g}"

    def draw(self, step: int, loss: str, rest: str) -> None:
        """Show it."""

    def close(self) -> None:
        """Leave the terminal as it was."""

    def _words(self) -> str:
        speed = f", {self._speed:.3g} steps/s" if self._speed > 0 else ""
        return f"{self._score}, {self._trivial}{speed}"

    def left(self, step: int) -> str:
        """The time left at the present speed."""
        if self._speed <= 0:
            return "-:--"
        minutes, seconds = divmod(int((self.last - step) / self._speed), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class Lines(Progress):
    """One plain line every few seconds: for log files."""

    interval = LINE_SECONDS

    def draw(self, step: int, loss: str, rest: str) -> None:
        """Print it."""
        line = f"{self.name}: step {step}/{self.last}, {loss}, {rest}, {self.left(step)} left"
        print(line, file=sys.stderr, flush=True)


class Bar(Progress):
    """A live bar: for terminals. Honours NO_COLOR, as rich does."""

    interval = BAR_SECONDS

    def __init__(self, name: str, last: int, primary: str, trivial: float) -> None:
        super().__init__(name, last, primary, trivial)
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Live

        self._console = Console(stderr=True)
        self._live = Live(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=_BAR),
            TextColumn("{task.fields[words]}", markup=False),
            console=self._console,
            transient=True,
            auto_refresh=False,
        )
        self._row: TaskID = self._live.add_task(f"0/{last}", total=last, words="")
        self._live.start()

    def draw(self, step: int, loss: str, rest: str) -> None:
        """Redraw it."""
        head = f"{step}/{self.last}, {self.left(step)} left"
        room = self._console.width - len(head) - _BAR - 2
        words = fitted(self.name, f"{loss}, {rest}", room)
        self._live.update(self._row, description=head, completed=step, words=words, refresh=True)

    def close(self) -> None:
        """Take the bar away."""
        self._live.stop()


def fitted(name: str, words: str, room: int) -> str:
    """The name of a run and what is said of it, on one line: where it is narrow, less of them.

    Example:
        >>> fitted("a-run", "loss 0.1", 20), fitted("a-run", "loss 0.1", 10)
        ('a-run: loss 0.1', 'loss 0.1')
        >>> fitted("a-run", "loss 0.1, mse 0.2", 10)
        'loss 0.1,…'
    """
    both = f"{name}: {words}"
    if len(both) <= room:
        return both
    return words if len(words) <= room else words[: max(0, room - 1)] + "…"


def watcher(quiet: bool) -> type[Progress]:
    """The kind of progress that suits stderr."""
    if quiet:
        return Progress
    return Bar if sys.stderr.isatty() else Lines
