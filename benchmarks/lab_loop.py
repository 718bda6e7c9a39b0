"""What the lab's loop adds to a bare training step, at the size of psMNIST. Needs `roann[lab]`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.peers import Sequences
from benchmarks.timing import Contender
from roann.lab.config import Train
from roann.lab.models import Model, build_model
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
        """One batch; the loop is stopped before it evaluates."""
        return {"eval": [self.batch(seed, step)]}

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy."""
        return cross_entropy(prediction, targets)

    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """Cross-entropy and accuracy."""
        with torch.no_grad():
            return {
                "cross_entropy": float(self.loss(prediction, targets)),
                "accuracy": float((prediction.argmax(-1) == targets).double().mean()),
            }


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
    with tempfile.TemporaryDirectory() as folder:
        records = Records(Path(folder) / "metrics.jsonl")
        try:
            yield [
                Contender(BARE, _bare(task, _model(task, case), updates)),
                Contender(LAB, _lab(task, _model(task, case), updates, records)),
            ]
        finally:
            records.close()


def _model(task: Task, case: Sequences) -> Model:
    return build_model("roa-rnn", RoaRnnConfig(hidden_size=case.N, rho=case.rho), task, seed=0)


def _plan() -> Train:
    # Everything the loop does at an update, and nothing it does now and then.
    return Train(lr=1e-6, length=10**9, eval_every=10**9, checkpoint_seconds=1e9)


def _bare(task: Task, model: Model, updates: int) -> Callable[[], object]:
    batches = [task.batch(0, step) for step in range(updates)]
    optimizer = make_optimizer(model, _plan())

    def run() -> None:
        for batch in batches:
            loss = task.loss(model(batch.inputs), batch.targets)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()

    return run


def _lab(task: Task, model: Model, updates: int, records: Records) -> Callable[[], object]:
    optimizer, context = make_optimizer(model, _plan()), _Context(records, updates)

    def run() -> None:
        try:
            train(task, model, optimizer, _plan(), State(measured=0), context, dict)
        except _EnoughError:
            return

    return run
