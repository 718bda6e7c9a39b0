"""What a record says: best and last scores, when a goal was met, what a probe saw."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

from roann.lab import records
from roann.lab.report import Run

Better = Literal["lower", "higher"]
LOST = 0.1
"""A run is lost if it ends with less than this of the way from guessing to perfect."""
ALIKE = 0.01
"""Scores within this part of the way are not told apart."""
HALF = 0.5
"""A run has learnt if it is so much of the way."""


class Fall(NamedTuple):
    """A run that had learnt, and had not any more.

    Attributes:
        held: the last evaluation at which it had.
        gone: the first at which it was lost, or the step whose numbers were not finite.
        diverged: the latter.
    """

    held: int
    gone: int
    diverged: bool = False


@dataclass(frozen=True)
class Reading:
    """One run, read.

    Attributes:
        run: its record.
    """

    run: Run

    @property
    def primary(self) -> str:
        """The score people look at."""
        return str(self.run.facts["primary"])

    @property
    def better(self) -> Better:
        """Which way it should go."""
        return "higher" if self.run.facts["better"] == "higher" else "lower"

    @property
    def trivial(self) -> Mapping[str, float]:
        """Scores of a model that learnt nothing."""
        found: Mapping[str, float] = self.run.facts["trivial"]
        return found

    @cached_property
    def _summary(self) -> dict[str, Any]:
        return records.summary(self.run.records, self.primary, self.better)

    @property
    def set(self) -> str | None:
        """The evaluation set shown: the test set, if there is one."""
        final = self._summary["final"]
        return "test" if "test" in final else next(iter(final), None)

    def score(self, when: Literal["best", "final", "selected"]) -> float | None:
        """The primary score at the best or last evaluation, or where validation selects."""
        if when == "final" and self.run.status == "diverged":
            return None
        value = self._summary[when].get(self.set, {}).get(self.primary)
        return None if value is None else float(value)

    @property
    def validated(self) -> bool:
        """Whether there is a validation set to select by."""
        return "validation" in self._summary["final"]

    def curve(self, score: str) -> list[tuple[int, float]]:
        """(step, value) of a score at every evaluation of the set shown."""
        return [
            (line["step"], float(line[score]))
            for line in self.run.records
            if line["kind"] == "eval"
            and line["set"] == self.set
            and isinstance(line.get(score), int | float)
        ]

    def first(self, score: str, limit: float, better: Better, in_a_row: int = 1) -> int | None:
        """The first evaluation at which a score is, or has been so often, as good as `limit`."""
        met = 0
        for step, value in self.curve(score):
            met = met + 1 if (value <= limit if better == "lower" else value >= limit) else 0
            if met == in_a_row:
                return step
        return None

    def progress(self, value: float) -> float:
        """How much of the way from guessing (0) to perfect (1) a primary score is."""
        trivial, perfect = self.trivial[self.primary], 1.0 if self.better == "higher" else 0.0
        return (value - trivial) / (perfect - trivial)

    @property
    def lost(self) -> bool:
        """Whether the run diverged or ended at guessing; an unfinished run is not judged."""
        if self.run.status != "finished":
            return self.run.status == "diverged"
        last = self.score("final")
        return last is None or self.progress(last) < LOST

    def until(self, step: int) -> Reading:
        """The run as it was after so many updates; as it is if it has not got so far."""
        if self.run.steps <= step:
            return self
        lines = [line for line in self.run.records if line["step"] <= step]
        ended = {"status": "finished", "steps": step}
        return Reading(replace(self.run, records=lines, result=ended))

    @property
    def falls(self) -> list[Fall]:
        """Every time it had learnt and lost it again."""
        found = []
        held: int | None = None
        for step, value in self.curve(self.primary):
            if self.progress(value) > HALF:
                held = step
            elif held is not None and self.progress(value) < LOST:
                found.append(Fall(held, step))
                held = None
        if held is not None and self.run.status == "diverged":
            found.append(Fall(held, self.run.steps, diverged=True))
        return found

    @property
    def epochs(self) -> int:
        """Whole passes over the data so far: one under way has not been evaluated."""
        return max((int(line.get("epoch") or 0) for line in self.run.records), default=0)

    def after(self, epoch: int) -> float | None:
        """The primary score of the set shown after so many passes."""
        for line in self.run.records:
            if line["kind"] == "eval" and line["set"] == self.set and line["epoch"] == epoch:
                return float(line[self.primary])
        return None

    @property
    def training_seconds(self) -> float:
        """Wall time until the last update that was recorded: without a probe at the end."""
        times = [line["seconds"] for line in self.run.records if line["kind"] == "train"]
        return float(times[-1]) if times else self.run.seconds

    @property
    def step_seconds(self) -> float | None:
        """Time of an update: the median over the stretches of the records without evaluations."""
        lines = [line for line in self.run.records if line["kind"] in ("train", "eval")]
        times = {0: 0.0} | {line["step"]: line["seconds"] for line in lines}
        # The time of an evaluation's record is that of its beginning.
        measured = {line["step"] for line in lines if line["kind"] == "eval"}
        rates = [
            (times[after] - times[before]) / (after - before)
            for before, after in pairwise(sorted(times))
            if before not in measured
        ]
        return statistics.median(rates) if rates else None

    @property
    def probes(self) -> list[dict[str, Any]]:
        """Its probes, by step."""
        return [line for line in self.run.records if line["kind"] == "probe"]

    def norm_W_after(self, step: int) -> float | None:
        """‖W‖ after so many updates, if a probe was there."""
        for probe in self.probes:
            if probe["step"] == step and isinstance(probe.get("norm_W"), float):
                return float(probe["norm_W"])
        return None

    def norm_W(self, upto: int | None = None) -> float | None:
        """The largest ‖W‖ that a probe saw after the first update, and until a step."""
        norms = [
            probe["norm_W"]
            for probe in self.probes
            if isinstance(probe.get("norm_W"), float)
            and 0 < probe["step"] <= (math.inf if upto is None else upto)
        ]
        return max(norms, default=None)


def spread(probe: Mapping[str, Any]) -> tuple[float, float] | None:
    """The smallest and largest ln σ of a probe. JSON has no −∞, and says null."""
    sigma = probe.get("sigma")
    if "sigma_max" in probe:
        sigma = [probe["sigma_min"], probe["sigma_max"]]
    if not sigma:
        return None
    values = [-math.inf if value is None else float(value) for value in sigma]
    return min(values), max(values)


def arms_of(runs: Iterable[Run]) -> dict[str, list[Reading]]:
    """Readings by arm, which is a run's name without its seed."""
    arms: dict[str, list[Reading]] = {}
    for run in runs:
        arms.setdefault(re.sub(r"-s\d+$", "", run.name), []).append(Reading(run))
    return {name: sorted(arm, key=lambda r: r.run.seed) for name, arm in arms.items()}


def best_of(arm: Sequence[Reading], when: Literal["best", "final", "selected"]) -> float | None:
    """The best score of any seed."""
    values = [value for r in arm if (value := r.score(when)) is not None]
    return (max if arm[0].better == "higher" else min)(values) if values else None


def median_of(arm: Sequence[Reading], when: Literal["best", "final", "selected"]) -> float | None:
    """The median over seeds; a run without such a score counts as the worst of all."""
    worst = -math.inf if arm[0].better == "higher" else math.inf
    scores = [r.score(when) for r in arm]
    middle = statistics.median([worst if value is None else value for value in scores])
    return middle if math.isfinite(middle) else None
