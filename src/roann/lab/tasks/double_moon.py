"""The double moon: regression on Haykin's two half-rings (Section II-C, Fig. 1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated

import torch
from torch import Tensor

from roann.lab import limits
from roann.lab.limits import LENGTH, Range, Settings
from roann.lab.streams import generator
from roann.lab.tasks.base import Batch, EpochTask

WINDOW = ((-20.0, 30.0), (-15.0, 20.0))  # of the paper's decision surfaces: x₁, x₂


class DoubleMoonConfig(Settings):
    """Settings of the double-moon task."""

    points: Annotated[int, Range(2, LENGTH)] = 1000  # number of points, half of them on each moon.
    radius: Annotated[float, Range(1e-3, 1e6)] = 10.0  # radius of the middle line of a moon.
    width: float = 6.0  # width of a moon across the ring.
    # how far the lower moon is moved down; negative values interlock the moons.
    distance: Annotated[float, Range(-1e6, 1e6)] = -5.0
    batch_size: int = 100  # number of points in a batch; it must divide `points`.
    # seed of the points; runs of any seed share them.
    data_seed: Annotated[int, Range(0, 2**63 - 1)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.real("width", self.width, 0, 2 * self.radius)
        limits.whole("batch_size", self.batch_size, 1, self.points)
        if self.points % 2:
            limits.fail("points", "an even number", self.points, "the moons share them equally")
        if self.points % self.batch_size:
            limits.fail("batch_size", f"a divisor of points={self.points}", self.batch_size)


class DoubleMoon(EpochTask):
    """Points of the upper moon are labelled −1, those of the lower moon +1.

    The upper moon is a half ring about the origin; the lower one is the upper one turned over,
    moved right by the radius and down by `distance`. Inputs are (B, 2), targets (B, 1). The data
    set is fixed; the set "eval" is all of it: the paper's curves are of the training points.
    """

    name = stream = "double-moon"
    primary = "mse"
    better = "lower"
    input_size, output_size = 2, 1
    horizon = None
    readout = "none"
    trivial: Mapping[str, float] = {"mse": 1.0, "accuracy": 0.5}

    def __init__(self, config: DoubleMoonConfig, device: torch.device | str = "cpu") -> None:
        super().__init__(config, device)
        self.epoch_steps = config.points // config.batch_size
        self.points = self._draw()

    def global_batch(self, seed: int, step: int) -> Batch:
        """The next points in the order of this epoch."""
        chosen = self.chosen(seed, step)
        return Batch(self.points.inputs[chosen], self.points.targets[chosen])

    def evaluate_sets(self, seed: int, step: int) -> dict[str, Iterable[Batch]]:
        """All the training points, whatever the step."""
        return {"eval": [self.points]}

    @torch.no_grad()
    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """The mean squared error, and the share of points on the right side of zero."""
        return {
            "mse": float(self.loss(prediction, targets)),
            "accuracy": float((prediction * targets > 0).double().mean()),
        }

    def _draw(self) -> Batch:
        c = self.config
        half = c.points // 2
        rng = generator(c.data_seed, "double-moon", "points")
        radius = c.radius + c.width * (torch.rand(c.points, generator=rng) - 0.5)
        angle = math.pi * torch.rand(c.points, generator=rng)
        x = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=1)
        # The lower moon turns the upper one about the point (r/2, −d/2).
        x[half:] = torch.tensor([c.radius, -c.distance]) - x[half:]
        labels = torch.ones(c.points, 1)
        labels[:half] = -1
        return Batch(x.to(self.device), labels.to(self.device))
