"""What feed-forward networks share: the chain of their maps, and layers between two maps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial, reduce
from typing import Annotated, Any, ClassVar, Generic, TypeVar, Unpack

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import OneOf, Range, Settings, Width
from roann.lab.models.base import Demand, Model, Row, Streams
from roann.lab.models.recurrence import Factory, Source


class DeepConfig(Settings):
    """Settings of every deep network."""

    # number L of layers of neurons: input, hidden, output. There are L − 1 maps.
    layers: Annotated[int, Range(3, 10_000)] = 50
    width: Width = 50  # number of neurons in each hidden layer.
    nonlinearity: Annotated[str, OneOf(ACTIVATIONS)] = "tanh"  # activation function φ.


C = TypeVar("C", bound=DeepConfig)


class LayeredModel(Model, Generic[C]):
    """Abstract: a feed-forward network, which is its `chain` of maps, one after the other.

    Args:
        sizes: of the layers of neurons, input and output included.
        config: the settings of the network, kept as its `config`.
        generator: the source of the first values; torch's own if not given.
        device, dtype: of parameters, as in torch.
    """

    def __init__(
        self,
        sizes: list[int],
        config: C,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        self.config = config
        self.phi: Callable[[Tensor], Tensor] = ACTIVATIONS[config.nonlinearity].value
        self.build(sizes, Source(generator, **factory))

    @abstractmethod
    def build(self, sizes: list[int], new: Source) -> None:
        """Make all parameters with their first values."""

    @abstractmethod
    def chain(self) -> list[Callable[[Tensor], Tensor]]: ...

    def forward(self, inputs: Tensor) -> Tensor:
        return reduce(lambda x, layer: layer(x), self.chain(), inputs)


class DeepModel(LayeredModel[C]):
    """Abstract: φ(affine) to the width, unless the inputs have it; layers; φ(affine) out.

    With L layers of neurons there are L − 1 maps: one out, and before it either L − 2 layers, or
    one map in and L − 3 layers. Every neuron, the output's too, has its φ; all hidden layers have
    one size.

    Attributes:
        branches: how many affine maps a layer has, one above the other in W and b.
    """

    branches: ClassVar[int] = 1

    def build(self, sizes: list[int], new: Source) -> None:
        self.width, rows = sizes[-2], self.branches * sizes[-2]
        self.enters = sizes[0] != self.width
        self.depth = len(sizes) - 2 - self.enters
        first = partial(self.first, new)
        if self.enters:
            self.W_in, self.b_in = first(self.width, sizes[0]), first(self.width)
        self.W, self.b = first(self.depth, rows, self.width), first(self.depth, rows)
        self.W_out, self.b_out = first(sizes[-1], self.width), first(sizes[-1])

    @abstractmethod
    def first(self, new: Source, *shape: int) -> nn.Parameter:
        """A weight (…, out, in) or a bias with its first values."""

    @abstractmethod
    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """One layer, from x (…, N) to (…, N)."""

    def layers(self) -> list[Callable[[Tensor], Tensor]]:
        """The maps from (…, N) to (…, N) between the map in and the map out."""
        # Unbound once: the gradient of every W[k] on its own would be an array as large as W.
        maps = zip(self.W.unbind(0), self.b.unbind(0), strict=True)
        return [partial(self.equation, W=W, b=b) for W, b in maps]

    def trunk(self, x: Tensor) -> Tensor:
        """All layers, from (…, N) to (…, N)."""
        return reduce(lambda x, layer: layer(x), self.layers(), x)

    def chain(self) -> list[Callable[[Tensor], Tensor]]:
        into = [partial(self._affine, self.W_in, self.b_in)] if self.enters else []
        return [*into, *self.layers(), partial(self._affine, self.W_out, self.b_out)]

    def _affine(self, W: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return self.phi(x @ W.mT + b)


def layer_sizes(layers: int, width: int, demand: Demand) -> list[int]:
    """The sizes of L layers of neurons between a task's inputs and outputs."""
    return [demand.input_size, *[width] * (layers - 2), demand.output_size]


def deep_row(model: Callable[[list[int], Any, torch.Generator], Model], small: Any) -> Row:
    """The `Row` of a feed-forward model that is called as `DeepModel` is."""

    def build(config: Any, demand: Demand, streams: Streams) -> Model:
        return model(layer_sizes(config.layers, config.width, demand), config, streams("weights"))

    return Row("depth", type(small), build, small)
