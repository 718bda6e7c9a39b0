"""How tasks learn that they must stop. Ray gets this as it is: its process needs no torch."""

from __future__ import annotations


class Bell:
    """An actor that knows which runs must stop; a task asks it now and then."""

    def __init__(self) -> None:
        self._stopped: set[str] = set()

    def ring(self, run: str) -> None:
        """A run must stop."""
        self._stopped.add(run)

    def still(self, run: str) -> None:
        """A run starts again."""
        self._stopped.discard(run)

    def rings(self, run: str) -> bool:
        """Whether a run must stop."""
        return run in self._stopped
