"""What the lab's loop adds to a bare training step, at the size of psMNIST. Needs `roann[lab]`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.contenders import Sequences
from benchmarks.timing import Contender
from roann.lab.config import Train
from roann.lab.models import build_model
from roann.lab.models.roa import RoaRnnConfig
from roann.lab.progress import Progress
from roann.lab.records import Records
from roann.lab.tasks.mnist import PsMnistConfig, SequentialMnist
from roann.lab.train import State, make_optimizer, train

BARE = "bare loop"


class DrawnImages(SequentialMnist):
    """Random bytes in the place of images, made into batches as psMNIST's are."""

    def __init__(self, case: Sequences, images: int) -> None:
        rng = torch.Generator().manual_seed(0)
        self.config, self.name = PsMnistConfig(), "drawn"
        self.readout, self.device = "last", torch.device("cpu")
        self.input_size, self.output_size, self.horizon = case.I, 10, case.horizon
        self.batch_size, self.epoch_steps = case.B, max(1, images // case.B)
        self.trivial = {"accuracy": 0.1}
        pixels = torch.randint(256, (images, case.T), generator=rng, dtype=torch.uint8)
        self._train, self._order = (pixels, torch.randint(10, (images,), generator=rng)), None


class EnoughError(Exception):
    """The loop has done the updates it was to do."""


@contextmanager
def contenders(case: Sequences, updates: int, images: int) -> Iterator[list[Contender]]:
    """The bare loop, its batches ready, and the lab's, which makes them; `updates` a call."""
    task = DrawnImages(case, images)
    # Everything the loop does at an update, and nothing it does now and then.
    plan = Train(lr=1e-6, length=10**9, eval_every=10**9, checkpoint_seconds=1e9)
    config = RoaRnnConfig(hidden_size=case.N, rho=case.rho)
    one, two = (build_model("roa-rnn", config, task, seed=0) for _ in range(2))
    optimizers = make_optimizer(one, plan), make_optimizer(two, plan)
    batches = [task.batch(0, step) for step in range(updates)]
    progress = Progress("bench", updates, "cross_entropy", 0.0)

    def bare() -> None:
        for batch in batches:
            loss = task.loss(one(batch.inputs), batch.targets)
            optimizers[0].zero_grad()
            torch.autograd.backward(loss)
            optimizers[0].step()

    def stop(state: State) -> None:
        if state.step >= updates:
            raise EnoughError

    def lab() -> None:
        with suppress(EnoughError):
            train(task, two, optimizers[1], plan, State(measured=0), context, dict)

    with tempfile.TemporaryDirectory() as folder:
        records = Records(Path(folder) / "metrics.jsonl")
        context: Any = SimpleNamespace(records=records, progress=progress, pause=stop)
        try:
            yield [Contender(BARE, bare), Contender("roann.lab.train", lab)]
        finally:
            records.close()
