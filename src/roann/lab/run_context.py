"""What the training loop of one run calls: records, checkpoints, progress and stopping."""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roann.lab import checkpoint
from roann.lab.config import Train
from roann.lab.distributed import ALONE, Ranks
from roann.lab.models import Model
from roann.lab.progress import Progress
from roann.lab.records import Sink
from roann.lab.stop import Stop, UnfinishedRun
from roann.lab.train import DivergedError, State

CHECKPOINTS, BEST = "checkpoints", "best"
BEST_COPY = "best/copy"  # a second one: the weights of a past step cannot be had again
_log = logging.getLogger(__name__)


@dataclass
class RunContext:
    """Implements `roann.lab.train.Context` for a run directory."""

    folder: Path
    plan: Train
    digest: str  # of the config; kept in every checkpoint
    model: Model
    optimizer: torch.optim.Optimizer
    records: Sink
    stop: Stop
    progress: Progress
    ranks: Ranks = ALONE
    _tried: float = field(default_factory=time.monotonic, init=False)
    # The best checkpoint that is not on disk yet: a full disk must not lose it.
    _best: tuple[int, dict[str, Tensor], dict[str, Any]] | None = field(default=None, init=False)

    def poll(self) -> None:
        """Within an evaluation: raise if the run must stop."""
        self.stop.poll()

    def pause(self, state: State) -> None:
        """Between two updates: commit a checkpoint if one is due; raise if the run must stop."""
        every = self.plan.checkpoint_every
        late = time.monotonic() - self._tried >= self.plan.checkpoint_seconds
        due = late or bool(every and state.step and state.step % every == 0)
        # A signal to any process stops all of them; the clock is that of rank 0.
        asked, save = self.ranks.most(self.stop.asked(), due and self.ranks.leads)
        if asked:
            self.stop.number = asked
        if asked or self.ranks.world == 1:  # else a signal that came meanwhile waits until all know
            self.poll()
        if save:
            self.save(state)

    def save(self, state: State) -> None:
        """Commit a checkpoint. A full disk gives a warning, and the next one is tried."""
        self._check(state)
        if self.ranks.leads:
            try:
                self._commit(state)
            except OSError as error:
                self._warn(state, error)

    def finish(self, state: State) -> None:
        """Commit the last checkpoint: without it the run has not ended."""
        self._check(state)
        with self.ranks.together():
            if not self.ranks.leads:
                return
            try:
                self._commit(state)
            except OSError as error:
                raise UnfinishedRun(self.folder, "the last checkpoint", error) from error

    def keep(self, state: State) -> None:
        """After an evaluation better than all before: commit a checkpoint apart from the others."""
        if not self.ranks.leads:
            return
        tensors = checkpoint.pack(self.model, self.optimizer)
        self._best = state.step, tensors, asdict(state) | {"config": self.digest}
        try:
            self._commit_best()
        except OSError as error:
            self._warn(state, error)

    def _check(self, state: State) -> None:
        """Raise an error unless the weights are finite, and the same in all processes."""
        self._tried = time.monotonic()
        for name, parameter in self.model.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise DivergedError(f"update {state.step} made {name} non-finite")
        self.ranks.verify(self.model, f"after step {state.step}")

    def _commit(self, state: State) -> None:
        self._commit_best()  # first: where there is a checkpoint, its best one is there too
        extra = {"records": self.records.sync(), "config": self.digest}
        tensors = checkpoint.pack(self.model, self.optimizer)
        checkpoint.save(self.folder / CHECKPOINTS, state.step, tensors, asdict(state) | extra)

    def _commit_best(self) -> None:
        if self._best is not None:
            for place in (BEST, BEST_COPY):
                checkpoint.save(self.folder / place, *self._best)
            self._best = None

    def _warn(self, state: State, error: OSError) -> None:
        _log.warning(
            "step %d: no checkpoint could be written (%s); training goes on, and the next one is "
            "tried as usual.", state.step, error.strerror,
        )  # fmt: skip
