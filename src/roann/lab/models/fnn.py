"""The plain feed-forward network of Fig. 1: every neuron, the output's too, has its φ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Annotated

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import Range, Width
from roann.lab.models.base import Model, Preset
from roann.lab.models.depth import DeepConfig, deep_row


@dataclass(frozen=True)
class FnnConfig(DeepConfig):
    """Settings of a plain feed-forward network."""

    layers: Annotated[int, Range(2, 10_000)] = 3
    width: Width = 72


class Fnn(Model):
    """x[l+1] = φ(W[l] x[l] + b[l]), all weights and biases drawn from N(0, 1).

    Args:
        sizes: of the layers of neurons, input and output included.
        nonlinearity: φ.
        generator: draws the parameters.
    """

    def __init__(self, sizes: list[int], nonlinearity: str, generator: torch.Generator) -> None:
        super().__init__()
        self.phi = ACTIVATIONS[nonlinearity]
        self.maps = nn.ModuleList(
            nn.Linear(n_in, n_out, device="meta").to_empty(device="cpu")
            for n_in, n_out in pairwise(sizes)
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=generator)

    def forward(self, inputs: Tensor) -> Tensor:
        return reduce(lambda x, layer: layer(x), self.chain(), inputs)

    def chain(self) -> list[Callable[[Tensor], Tensor]]:
        """Every layer."""
        return [partial(self._layer, affine) for affine in self.maps]

    def _layer(self, affine: nn.Module, x: Tensor) -> Tensor:
        return self.phi.value(affine(x))


PRESETS = [
    Preset("double-moon", FnnConfig(3, 72), 289, {"batch_size": 100}, "shallow"),
    Preset("double-moon", FnnConfig(50, 2), 291, {"batch_size": 100}, "deep"),
]
FNN = deep_row(lambda sizes, c, rng: Fnn(sizes, c.nonlinearity, rng), FnnConfig(4, 3), PRESETS)
