"""The adding problem: the sum of two marked numbers in a long noise (Section IV-B, Fig. 3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import torch
from torch import Tensor

from roann.lab.limits import LENGTH, Batches, OneOf, Range, Settings, Width
from roann.lab.tasks.base import Batch, EndlessTask

Rule = Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]


def _halves(T: int, B: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    first = torch.randint(T // 2, (B,), generator=rng)
    return first, torch.randint(T // 2, T, (B,), generator=rng)


def _equal_halves(T: int, B: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    both = torch.randint(T // 2, (2, B), generator=rng)
    return both[0], both[1] + T // 2


def _anywhere(T: int, B: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    first = torch.randint(T, (B,), generator=rng)
    # A shift of 1 … T − 1 around the circle: uniform over the other T − 1 places.
    return first, (first + torch.randint(1, T, (B,), generator=rng)) % T


# A rule gives the two marked places of each sequence, counted from 0.
MARKER_RULES: dict[str, Rule] = {
    # One in the first ⌊T/2⌋ steps, one in the others: the paper, coRNN, LEM.
    "paper": _halves,
    # One in the first ⌊T/2⌋ steps, one in the next ⌊T/2⌋ (an odd T leaves its last step out): uRNN.
    "urnn": _equal_halves,
    # Both anywhere, without replacement: TCN.
    "anywhere": _anywhere,
}


class AddingConfig(Settings):
    """Settings of the adding problem."""

    length: Annotated[int, Range(2, LENGTH)] = 200  # sequence length T.
    batch_size: Width = 50  # number of sequences in a batch.
    # where the two marked numbers are: paper (one in each half), urnn (one in each of two equal
    # halves) or anywhere.
    markers: Annotated[str, OneOf(MARKER_RULES)] = "paper"
    eval_batches: Batches = 1  # number of batches in an evaluation.


class Adding(EndlessTask):
    """u = (a, b): a uniform in [0, 1], b zero but for two ones; predict the sum of the marked a.

    Inputs are (T, B, 2), targets (B, 1), read at the last step. α = ρ / T. To predict the mean, 1,
    leaves the variance of a sum of two uniform numbers: 1/6.
    """

    name = "adding"
    primary = "mse"
    better = "lower"
    input_size, output_size = 2, 1
    readout = "last"
    trivial: Mapping[str, float] = {"mse": 1 / 6}

    def __init__(self, config: AddingConfig, device: torch.device | str = "cpu") -> None:
        super().__init__(config, device)
        self.horizon = config.length

    @torch.no_grad()
    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """The mean squared error."""
        return {"mse": float(self.loss(prediction, targets))}

    def draw(self, rng: torch.Generator) -> Batch:
        """Fresh sequences."""
        T, B = self.config.length, self.config.batch_size
        a = torch.rand(T, B, generator=rng)
        first, second = MARKER_RULES[self.config.markers](T, B, rng)
        column = torch.arange(B)
        inputs = torch.zeros(T, B, 2)
        inputs[..., 0] = a
        inputs[first, column, 1] = 1
        inputs[second, column, 1] = 1
        targets = (a[first, column] + a[second, column]).unsqueeze(-1)
        return Batch(inputs.to(self.device), targets.to(self.device))
