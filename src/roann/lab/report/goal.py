"""The main score of a task: which way it should go, and what guessing gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roann.lab.figures.curves import Better
from roann.lab.report.runs import Run


@dataclass(frozen=True)
class Goal:
    """The main score of a task.

    Attributes:
        score: name of the primary score.
        better: which way it should go.
        trivial: scores of a model that learned nothing, by name.
        set: the evaluation set shown.
    """

    score: str
    better: Better
    trivial: Mapping[str, float]
    set: str | None

    @classmethod
    def of(cls, runs: Sequence[Run]) -> Goal:
        """The goal of runs on one task."""
        facts = next((run.facts for run in runs if "primary" in run.facts), {})
        sets = [r.get("set") for run in runs for r in run.records if r["kind"] == "eval"]
        return cls(
            score=str(facts.get("primary", "loss")),
            better="higher" if facts.get("better") == "higher" else "lower",
            trivial={k: float(v) for k, v in facts.get("trivial", {}).items()},
            # The paper's curves are of the test set; tasks without one have a single set.
            set="test" if "test" in sets else next((name for name in sets if name), None),
        )

    @property
    def perfect(self) -> float:
        """The best score there is: 1 for accuracies, 0 for errors."""
        return 1.0 if self.better == "higher" else 0.0

    def progress(self, score: float) -> float | None:
        """How much of the way from trivial to perfect: 0 learned nothing, 1 solved."""
        trivial = self.trivial.get(self.score)
        if trivial is None or trivial == self.perfect:
            return None
        return (score - trivial) / (self.perfect - trivial)

    def best(self, scores: Sequence[float]) -> float | None:
        """The best of some scores; None if there are none."""
        return (max if self.better == "higher" else min)(scores, default=None)
