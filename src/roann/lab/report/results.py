"""What runs scored: the one model of a result, for the report and the tables of the paper."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from roann.lab import records
from roann.lab.figures.curves import Better, curve_of
from roann.lab.report.runs import Run

LEARNED = 0.5  # a run has learned once it is this much of the way from guessing to perfect
LOST = 0.1  # a run is lost if it ends with less than this of the way


@dataclass(frozen=True)
class Goal:
    """The main score of a task."""

    score: str
    better: Better
    trivial: Mapping[str, float]  # scores of a model that learned nothing, by name
    set: str | None  # the evaluation set shown

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Goal:
        """The goal of runs on one task."""
        facts = next((run.facts for run in runs if "primary" in run.facts), {})
        sets = [record.get("set") for run in runs for record in run.of_kind("eval")]
        return cls(
            score=str(facts.get("primary", "loss")),
            better="higher" if facts.get("better") == "higher" else "lower",
            trivial={k: float(v) for k, v in facts.get("trivial", {}).items()},
            # The paper's curves are of the test set; tasks without one have a single set.
            set="test" if "test" in sets else next((name for name in sets if name), None),
        )

    def progress(self, score: float) -> float | None:
        """How much of the way from trivial to perfect: 0 learned nothing, 1 solved."""
        trivial = self.trivial.get(self.score)
        perfect = 1.0 if self.better == "higher" else 0.0  # accuracies and errors
        if trivial is None or trivial == perfect:
            return None
        return (score - trivial) / (perfect - trivial)

    def best(self, scores: Sequence[float]) -> float | None:
        """The best of some scores; None if there are none."""
        return (max if self.better == "higher" else min)(scores, default=None)


@dataclass(frozen=True)
class Outcome:
    """What one run scored by a goal."""

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

    def curve(self, score: str | None = None, x: str = "step") -> list[tuple[float, float]]:
        """(x, value) of a score at every evaluation of the set shown; by default the primary."""
        found = curve_of(self.run.records, score or self.goal.score, set=self.goal.set, x=x)
        return list(zip(found.x, found.y, strict=True))

    @property
    def lost(self) -> bool:
        """Whether the run diverged or ended at guessing; an unfinished run is not judged."""
        if self.run.status != "finished":
            return self.run.status == "diverged"
        end = None if self.last is None else self.goal.progress(self.last)
        return end is None or end < LOST

    @cached_property
    def collapses(self) -> int:
        """How often the run had learned and lost it again."""
        count, held = 0, False
        for _, value in self.curve():
            way = self.goal.progress(value)
            if way is not None:
                count += held and way < LOST
                held = way > LEARNED or (held and way >= LOST)
        return count + (held and self.run.status == "diverged")


@dataclass(frozen=True)
class Arm:
    """Runs that differ in nothing but the seed."""

    label: str  # model, and what sets it apart from other arms of the same model
    outcomes: tuple[Outcome, ...]  # one per run, by seed
    left_out: int = 0  # how many runs of the same seeds did not go as far

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
        return sum(outcome.collapses > 0 for outcome in self.outcomes)

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
