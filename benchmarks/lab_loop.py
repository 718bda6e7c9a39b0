"""What the lab's loop adds to a bare training step, at the size of psMNIST. Needs `roann[lab]`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.peers import Sequences
from benchmarks.timing import Contender
from roann.lab.config import Train
from roann.lab.models import build_model
from roann.lab.models.roa import RoaRnnConfig
from roann.lab.progress import Progress
from roann.lab.records import Records
from roann.lab.tasks.base import Batch, Task
from roann.lab.train import State, make_optimizer, train

BARE, LAB = "bare loop", "roann.lab.train"


class _DrawnImages(Task):
    """Random bytes in the place of images, made into batches as psMNIST's are."""

    primary: ClassVar[str] = "cross_entropy"
    better: ClassVar[Literal["lower", "higher"]] = "lower"

    def __init__(self, case: Sequences, images: int) -> None:
        rng = torch.Generator().manual_seed(0)
        self.name, self.readout = "drawn", "last"
        self.input_size, self.output_size, self.horizon = case.I, 10, case.horizon
        self.batch_size, self.epoch_steps = case.B, max(1, images // case.B)
        self.trivial = {"cross_entropy": 0.0}
        self._pixels = torch.randint(256, (images, case.T), generator=rng, dtype=torch.uint8)
        self._labels = torch.randint(10, (images,), generator=rng)
        self._order = torch.randperm(images, generator=rng)

    def global_batch(self, seed: int, step: int) -> Batch:
        """The images of one update."""
        start = step % self.epoch_steps * self.batch_size if self.epoch_steps else 0
        chosen = self._order[start : start + self.batch_size]
        u = self._pixels[chosen].t().contiguous().float() / 255
        return Batch(u.unsqueeze(-1), self._labels[chosen])

    def evaluate_sets(self, seed: int, step: int) -> dict[str, Iterable[Batch]]:
        """None: the loop is stopped before it evaluates."""
        return {}

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy."""
        return cross_entropy(prediction, targets)

    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """Cross-entropy."""
        return {"cross_entropy": float(self.loss(prediction, targets).detach())}


class _EnoughError(Exception):
    """The loop has done the updates it was to do."""


class _Context:
    """Writes records to a real file, and stops the loop after a number of updates."""

    def __init__(self, records: Records, updates: int) -> None:
        self.records = records
        self.progress = Progress("bench", updates, "cross_entropy", 0.0)
        self.updates = updates

    def pause(self, state: State) -> None:
        if state.step >= self.updates:
            raise _EnoughError

    def keep(self, state: State) -> None:
        """It never evaluates."""

    def poll(self) -> None:
        """Nobody interrupts it."""

    def show(self, state: State, loss: float) -> None:
        self.progress.step(state.step, loss)

    def show_scores(self, scores: dict[str, dict[str, float]]) -> None:
        self.progress.scores(scores)


@contextmanager
def contenders(case: Sequences, updates: int, *, images: int) -> Iterator[list[Contender]]:
    """The bare loop, its batches ready, and the lab's, which makes them; `updates` a call."""
    task = _DrawnImages(case, images)
    # Everything the loop does at an update, and nothing it does now and then.
    plan = Train(lr=1e-6, length=10**9, eval_every=10**9, checkpoint_seconds=1e9)
    config = RoaRnnConfig(hidden_size=case.N, rho=case.rho)
    one, two = (build_model("roa-rnn", config, task, seed=0) for _ in range(2))
    optimizers = make_optimizer(one, plan), make_optimizer(two, plan)
    batches = [task.batch(0, step) for step in range(updates)]

    def bare() -> None:
        for batch in batches:
            loss = task.loss(one(batch.inputs), batch.targets)
            optimizers[0].zero_grad()
            torch.autograd.backward(loss)
            optimizers[0].step()

    def lab() -> None:
        with suppress(_EnoughError):
            train(task, two, optimizers[1], plan, State(measured=0), context, dict)

    with tempfile.TemporaryDirectory() as folder:
        records = Records(Path(folder) / "metrics.jsonl")
        context = _Context(records, updates)
        try:
            yield [Contender(BARE, bare), Contender(LAB, lab)]
        finally:
            records.close()
