"""What a task is: data as a pure function of (seed, step), a loss, scores, and what to beat."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from roann.lab import limits
from roann.lab.streams import generator

Readout = Literal["last", "all", "none"]


@dataclass(frozen=True)
class Batch:
    """Inputs and what should come out."""

    inputs: Tensor  # (T, B, I) for sequences, (B, I) for feed-forward tasks.
    targets: Tensor  # class indices (T, B) or (B,), or numbers (B, O).

    @property
    def examples(self) -> int:
        """B: the weight of this batch in an average over batches."""
        return self.inputs.shape[-2]


class Task(ABC):
    """A task: everything the training loop must know, and nothing about any model.

    Steps count updates from 0. `global_batch` and `evaluate_sets` draw from private streams, so any
    step can be had at any time, in any order, in any process, with the same bits. A task is built
    from its config and a device (``Copying(CopyingConfig(), device="cpu")``) and gives batches
    there. `EndlessTask` and `EpochTask` draw the batches of tasks without and with a data set.
    """

    name: str  # its name in the table `roann.lab.tasks.TASKS`.
    input_size: int  # I.
    output_size: int  # O, the number of classes or of predicted numbers.
    horizon: int | None  # the denominator of α = ρ / horizon; None if it is the model's depth.
    # which states the head reads: "last", "all", or "none" for a feed-forward task.
    readout: Readout
    batch_size: int  # B of a training batch.
    epoch_steps: int | None  # updates in an epoch; None where data are drawn without end.
    # the scores of a model that learned nothing but the statistics of the targets.
    trivial: Mapping[str, float]
    primary: ClassVar[str]  # the score people look at.
    # whether that score should be "lower" or "higher".
    better: ClassVar[Literal["lower", "higher"]]

    def __init__(self, config: Any, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)
        self.batch_size = config.batch_size

    @abstractmethod
    def global_batch(self, seed: int, step: int) -> Batch:
        """The training batch of update `step`, all of it."""

    def batch(self, seed: int, step: int, rank: int = 0, world: int = 1) -> Batch:
        """The part of the global batch of update `step` that process `rank` of `world` trains on.

        The parts of all ranks, one after the other, are the global batch. If `world` does not
        divide the batch, sizes differ by one: weight losses and scores by `Batch.examples`.
        """
        limits.whole("world", world, 1, self.batch_size)
        limits.whole("rank", rank, 0, world - 1)
        batch = self.global_batch(seed, step)
        if world == 1:
            return batch
        along = 1 if self.readout == "all" else 0  # where the targets have their examples
        return Batch(
            batch.inputs.tensor_split(world, -2)[rank].contiguous(),
            batch.targets.tensor_split(world, along)[rank].contiguous(),
        )

    @abstractmethod
    def evaluate_sets(self, seed: int, step: int) -> dict[str, Iterable[Batch]]:
        """The batches to score after `step` updates, by name of the set."""

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """The training loss, a scalar with a graph. Predictions are (T, B, O) or (B, O).

        The mean squared error of numbers, or the cross-entropy of classes, over all steps.
        """
        if targets.is_floating_point():
            return mse_loss(prediction, targets)
        return cross_entropy(prediction.flatten(0, -2), targets.flatten())

    @abstractmethod
    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """The scores of one batch. Each is a mean over examples; see `mean_scores`."""


class EndlessTask(Task):
    """A task whose sequences are drawn fresh for every batch; its config has `eval_batches`."""

    epoch_steps = None

    @abstractmethod
    def draw(self, rng: torch.Generator) -> Batch:
        """A batch from this generator."""

    def global_batch(self, seed: int, step: int) -> Batch:
        """Fresh sequences for update `step`."""
        return self.draw(generator(seed, self.name, "train", step))

    def evaluate_sets(self, seed: int, step: int) -> dict[str, Iterable[Batch]]:
        """Fresh sequences, never those of training."""
        batches = range(self.config.eval_batches)
        return {"eval": (self.draw(generator(seed, self.name, "eval", step, i)) for i in batches)}


class EpochTask(Task):
    """A task with a data set, whose examples are shuffled again in every epoch."""

    stream: ClassVar[str]  # name of the random stream of the order.
    epoch_steps: int
    _order: tuple[tuple[int, int], Tensor] | None = None

    def chosen(self, seed: int, step: int) -> Tensor:
        """The examples of update `step`."""
        epoch, k = divmod(step, self.epoch_steps)
        # The last order is kept: to draw 60,000 places again for each batch would cost 1 ms.
        if self._order is None or self._order[0] != (seed, epoch):
            order = self.order(generator(seed, self.stream, "order", epoch))
            self._order = (seed, epoch), order.to(self.device)
        return self._order[1][k * self.batch_size : (k + 1) * self.batch_size]

    def order(self, rng: torch.Generator) -> Tensor:
        """The examples of an epoch, one batch after another."""
        return torch.randperm(self.epoch_steps * self.batch_size, generator=rng)


def mean_scores(parts: Iterable[tuple[Mapping[str, float], int]]) -> dict[str, float]:
    """The scores of a set from those of its batches, weighted by their numbers of examples."""
    totals: dict[str, float] = {}
    examples = 0
    for scores, count in parts:
        examples += count
        for name, value in scores.items():
            totals[name] = totals.get(name, 0.0) + value * count
    return {name: total / examples for name, total in totals.items()}
