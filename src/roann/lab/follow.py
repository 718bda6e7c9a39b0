"""What a run in progress has recorded so far, read by another process from its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from roann.lab.config import Experiment
from roann.lab.files import parse_object
from roann.lab.records import is_number


class Follower:
    """Reads the records of a run, each time from where the last look ended.

    Attributes:
        step: the step of the last record, 0 if there is none.
        scores: the primary score of the first evaluation set, by step.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start()

    def _start(self) -> None:
        self._offset = 0
        self.step, self.scores = 0, dict[int, float]()
        self._epoch: float | None = None
        self._seconds = 0.0
        self._facts: dict[str, Any] = {}
        self._set = ""

    def look(self) -> Follower:
        """Read what is new; a run that was resumed has cut its records off, and is read again."""
        try:
            with open(self._path, "rb") as file:
                file.seek(0, 2)
                if file.tell() < self._offset:
                    self._start()
                file.seek(self._offset)
                data = file.read()
        except OSError:
            return self
        end = data.rfind(b"\n") + 1
        damaged = self._take_all(data[:end])
        if damaged and self._offset:  # perhaps another line begins here now
            self._start()
            return self.look()
        self._offset += end
        return self

    def _take_all(self, data: bytes) -> int:
        """Take every record; returns how many lines are none."""
        damaged = 0
        for line in data.splitlines():
            try:
                if line.strip(b" "):
                    self._take(parse_object(line))
            except ValueError:
                damaged += 1
        return damaged

    def _take(self, record: dict[str, Any]) -> None:
        step, seconds = record.get("step"), record.get("seconds")
        if not isinstance(step, int) or not is_number(seconds):
            raise ValueError("not a record")
        self.step, self._epoch, self._seconds = step, record.get("epoch"), seconds
        if record.get("event") == "start":
            self._facts = record
        if record.get("kind") == "eval":
            self._set = self._set or str(record.get("set"))
            score = record.get(self.primary)
            if record.get("set") == self._set and is_number(score):
                self.scores[step] = score

    @property
    def primary(self) -> str:
        """The name of the score that counts, as soon as it is known."""
        return str(self._facts.get("primary", ""))

    @property
    def better(self) -> Literal["lower", "higher"]:
        """Which scores are better."""
        return "higher" if self._facts.get("better") == "higher" else "lower"

    @property
    def best(self) -> float | None:
        """The best score so far."""
        choose = max if self.better == "higher" else min
        return choose(self.scores.values(), default=None)

    def words(self) -> str:
        """The best score so far, with its name."""
        return "" if self.best is None else f"{self._set} {self.primary} {self.best:.4g}"

    def total(self, experiment: Experiment) -> float | None:
        """The seconds that all of the training takes at the speed so far."""
        plan = experiment.train
        done = self._epoch if plan.unit == "epoch" else self.step
        if not done or not self._seconds:
            return None
        return self._seconds * max(1.0, plan.length / done)

    def left(self, experiment: Experiment) -> float | None:
        """The seconds left at the speed so far."""
        total = self.total(experiment)
        return None if total is None else total - self._seconds
