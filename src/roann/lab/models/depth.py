"""Feed-forward networks: their settings, and deep ones of equal layers between two maps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Generic, TypeVar, Unpack

import torch
from torch import Tensor

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import OneOf, Range, Settings, Width
from roann.lab.models.base import Demand, Model, Preset, Row, Streams
from roann.lab.models.recurrence import Factory, parameter


@dataclass(frozen=True)
class DeepConfig(Settings):
    """Settings of every deep network.

    Attributes:
        layers: number L of layers of neurons: input, hidden, output. There are L − 1 maps.
        width: number of neurons in each hidden layer.
        nonlinearity: activation function φ.
    """

    layers: Annotated[int, Range(3, 10_000)] = 50
    width: Width = 50
    nonlinearity: Annotated[str, OneOf(ACTIVATIONS)] = "tanh"


C = TypeVar("C", bound=DeepConfig)


class DeepModel(Model, Generic[C]):
    """Abstract: φ(affine) to the width, unless the inputs have it; layers; φ(affine) out.

    With L layers of neurons there are L − 1 maps: one out, and before it either L − 2 layers, or
    one map in and L − 3 layers. Every neuron, the output's too, has its φ.

    Args:
        sizes: of the layers of neurons, input and output included; all hidden ones are equal.
        config: the settings of the network, kept as its `config`.
        generator: the source of the first values; torch's own if not given.
        device, dtype: of parameters, as in torch.

    Attributes:
        branches: how many affine maps a layer has, one above the other in W and b.
    """

    branches: ClassVar[int] = 1

    def __init__(
        self,
        sizes: list[int],
        config: C,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        self.config, self.width = config, sizes[-2]
        self.enters = sizes[0] != self.width
        self.depth = len(sizes) - 2 - self.enters
        self.phi: Callable[[Tensor], Tensor] = ACTIVATIONS[config.nonlinearity].value
        rows = self.branches * self.width
        if self.enters:
            self.W_in = parameter(self.width, sizes[0], **factory)
            self.b_in = parameter(self.width, **factory)
        self.W = parameter(self.depth, rows, self.width, **factory)
        self.b = parameter(self.depth, rows, **factory)
        self.W_out = parameter(sizes[-1], self.width, **factory)
        self.b_out = parameter(sizes[-1], **factory)
        self.reset_parameters(generator)

    @abstractmethod
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values."""

    @abstractmethod
    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """One layer, from x (…, N) to (…, N)."""

    def chain(self) -> list[Callable[[Tensor], Tensor]]:
        """The map in, every layer, and the map out."""
        into = [partial(self._affine, self.W_in, self.b_in)] if self.enters else []
        layers = [partial(self.layer, k=k) for k in range(self.depth)]
        return [*into, *layers, partial(self._affine, self.W_out, self.b_out)]

    def layer(self, x: Tensor, k: int) -> Tensor:
        """From x (…, N) to the output (…, N) of layer k; safe under torch.func."""
        return self.equation(x, self.W[k], self.b[k])

    def trunk(self, x: Tensor) -> Tensor:
        """All layers, from (…, N) to (…, N)."""
        for W, b in zip(self.W.unbind(0), self.b.unbind(0), strict=True):
            x = self.equation(x, W, b)
        return x

    def forward(self, inputs: Tensor) -> Tensor:
        """From (B, I) to (B, O)."""
        x = self._affine(self.W_in, self.b_in, inputs) if self.enters else inputs
        return self._affine(self.W_out, self.b_out, self.trunk(x))

    def _affine(self, W: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return self.phi(x @ W.mT + b)


def layer_sizes(layers: int, width: int, demand: Demand) -> list[int]:
    """The sizes of L layers of neurons between a task's inputs and outputs."""
    return [demand.input_size, *[width] * (layers - 2), demand.output_size]


def deep_row(
    model: Callable[[list[int], Any, torch.Generator], Model],
    small: Any,
    presets: Mapping[str, Preset],
) -> Row:
    """The `Row` of a feed-forward model that is called as `DeepModel` is."""

    def build(config: Any, demand: Demand, streams: Streams) -> Model:
        return model(layer_sizes(config.layers, config.width, demand), config, streams("weights"))

    return Row("depth", type(small), build, small, presets)
