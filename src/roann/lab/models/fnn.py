"""The plain feed-forward network of Fig. 1: every neuron, the output's too, has its φ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Annotated

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import Range, Width
from roann.lab.models.base import Demand, Model, Preset, Row, Streams
from roann.lab.models.depth import DeepConfig, layer_sizes


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
        """From (B, I) to (B, O)."""
        x = inputs
        for each in self.chain():
            x = each(x)
        return x

    def chain(self) -> list[Callable[[Tensor], Tensor]]:
        """Every layer."""
        return [partial(self._layer, affine) for affine in self.maps]

    def _layer(self, affine: nn.Module, x: Tensor) -> Tensor:
        return self.phi.value(affine(x))


def fnn(config: FnnConfig, demand: Demand, streams: Streams) -> Fnn:
    """A plain network for a task."""
    sizes = layer_sizes(config.layers, config.width, demand)
    return Fnn(sizes, config.nonlinearity, streams("weights"))


PRESETS = {
    "shallow": Preset("double-moon", FnnConfig(3, 72), 289, {"batch_size": 100}),
    "deep": Preset("double-moon", FnnConfig(50, 2), 291, {"batch_size": 100}),
}
FNN = Row("depth", FnnConfig, fnn, FnnConfig(4, 3), PRESETS)
