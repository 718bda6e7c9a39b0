"""Runs that differ in nothing but the seed, and what they scored together."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roann.lab.report.goal import Goal
from roann.lab.report.outcome import Outcome
from roann.lab.report.runs import Run


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but the seed.

    Attributes:
        label: model, and what sets it apart from other arms of the same model.
        outcomes: one per run, by seed.
        left_out: how many runs of the same seeds did not go as far.
    """

    label: str
    outcomes: tuple[Outcome, ...]
    left_out: int = 0

    @property
    def model(self) -> Mapping[str, Any]:
        """The table `[model]` of its runs."""
        return self.outcomes[0].run.model

    @property
    def goal(self) -> Goal:
        """What its runs are judged by."""
        return self.outcomes[0].goal

    @property
    def runs(self) -> list[Run]:
        """Its runs, by seed."""
        return [outcome.run for outcome in self.outcomes]

    @property
    def diverged(self) -> int:
        """How many runs ended in a non-finite number."""
        return sum(run.status == "diverged" for run in self.runs)

    @property
    def collapsed(self) -> int:
        """How many runs had learned and lost it again, at some time."""
        return sum(bool(outcome.collapses) for outcome in self.outcomes)

    @property
    def seconds(self) -> float:
        """Wall time of all its runs."""
        return sum(run.seconds for run in self.runs)

    @property
    def best(self) -> float | None:
        """The best score of any seed at any time: what papers print."""
        return self.goal.best([o.best for o in self.outcomes if o.best is not None])

    def median(self, which: str) -> float | None:
        """The median over seeds of "best" or "last"; diverged runs count as worst.

        None if half the runs diverged, or if any has not been evaluated yet.
        """
        worst = float("-inf") if self.goal.better == "higher" else float("inf")
        values = []
        for outcome in self.outcomes:
            value = getattr(outcome, which)
            if value is None and outcome.run.status != "diverged":
                return None
            values.append(worst if value is None else value)
        middle = statistics.median(values)
        return None if middle in (worst, -worst) or middle != middle else middle
