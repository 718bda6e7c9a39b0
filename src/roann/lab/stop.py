"""How a run stops before its end: by a signal, or because its end could not be written."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from roann.lab.exits import CTRL_C, INTERRUPTED, LabError


class UnfinishedRun(LabError):  # noqa: N818 - not an error: the run can be resumed
    """The end of the run could not be written; once it can, the run is resumed."""

    code = INTERRUPTED

    def __init__(self, folder: Path, what: str, error: OSError) -> None:
        super().__init__(
            f"{folder}: the run has not ended: {what} could not be written ({error.strerror}); "
            f"free some space, then continue with: roann resume {folder}"
        )


class InterruptedRun(LabError):  # noqa: N818 - not an error: the run can be resumed
    """The run was asked to stop by the signal of this number, and did."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
        self.code = CTRL_C if number == signal.SIGINT else INTERRUPTED


class Stop:
    """Notes SIGINT and SIGTERM; the handlers set a flag only, the loop looks at it.

    `orphaned` returns whether the process that started the run has died; polled now and then.
    """

    def __init__(self, orphaned: Callable[[], bool] | None = None) -> None:
        self.number = 0
        self._orphaned = orphaned
        self._ask = 0.0

    def poll(self) -> None:
        """Raise `InterruptedRun` if the run must stop."""
        if self.asked():
            raise InterruptedRun(self.number)

    def asked(self) -> int:
        """The number of the signal to stop; 0 if there was none."""
        if self._orphaned is not None and time.monotonic() >= self._ask:
            self._ask = time.monotonic() + 0.5
            if self._orphaned():
                self.number = signal.SIGTERM
        return self.number

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have the handlers in place."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._note) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
