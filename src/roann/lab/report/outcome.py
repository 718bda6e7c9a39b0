"""What a run scored: the one model of a result, for the report and the tables of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from roann.lab import records
from roann.lab.report.goal import Goal
from roann.lab.report.runs import Run

LEARNED = 0.5
"""A run has learned once it is this much of the way from guessing to perfect."""
LOST = 0.1
"""A run is lost if it ends with less than this of the way."""


class Collapse(NamedTuple):
    """A run that had learned, and lost it again.

    Attributes:
        held: step of the last evaluation at which it had learned.
        gone: step of the first evaluation at which it was lost, or of the last finite update.
        diverged: whether it ended in numbers that are not finite.
    """

    held: int
    gone: int
    diverged: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one run scored.

    Attributes:
        run: the run.
        goal: what it is judged by.
    """

    run: Run
    goal: Goal

    @cached_property
    def _summary(self) -> dict[str, Any]:
        return records.summary(self.run.records, self.goal.score, self.goal.better)

    def _score(self, when: str) -> float | None:
        value = self._summary[when].get(self.goal.set, {}).get(self.goal.score)
        return None if value is None else float(value)

    @property
    def best(self) -> float | None:
        """Best primary score; None if never evaluated."""
        return self._score("best")

    @property
    def best_step(self) -> int | None:
        """The step of the best score."""
        step: int | None = self._summary["best"].get(self.goal.set, {}).get("step")
        return step

    @property
    def last(self) -> float | None:
        """Final primary score; None if the run diverged or was never evaluated."""
        return None if self.run.status == "diverged" else self._score("final")

    @property
    def selected(self) -> float | None:
        """Test score at the best validation score; None without a validation set."""
        return self._score("selected") if "validation" in self._summary["final"] else None

    def curve(self, score: str | None = None) -> list[tuple[int, float]]:
        """(step, value) of a score at every evaluation of the set shown; by default the primary."""
        name = score or self.goal.score
        return [
            (line["step"], float(line[name]))
            for line in self.run.records
            if line["kind"] == "eval"
            and line["set"] == self.goal.set
            and isinstance(line.get(name), int | float)
        ]

    @property
    def lost(self) -> bool:
        """Whether the run diverged or ended at guessing; an unfinished run is not judged."""
        if self.run.status != "finished":
            return self.run.status == "diverged"
        end = None if self.last is None else self.goal.progress(self.last)
        return end is None or end < LOST

    @cached_property
    def collapses(self) -> list[Collapse]:
        """Every time the run had learned and lost it again."""
        found = []
        held: int | None = None
        for step, value in self.curve():
            way = self.goal.progress(value)
            if way is not None and way > LEARNED:
                held = step
            elif way is not None and way < LOST and held is not None:
                found.append(Collapse(held, step))
                held = None
        if held is not None and self.run.status == "diverged":
            found.append(Collapse(held, self.run.steps, diverged=True))
        return found
