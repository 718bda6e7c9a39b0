"""Feed-forward networks: the plain one of Fig. 1, highway and residual ones between two maps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import partial, reduce
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Generic, TypeVar, Unpack

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import OneOf, Range, Settings, Width
from roann.lab.models.base import Demand, Model, Preset, Row, Streams, by_name
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


def deep_row(
    model: Callable[[list[int], Any, torch.Generator], Model],
    small: Any,
    presets: Iterable[Preset],
) -> Row:
    """The `Row` of a feed-forward model that is called as `DeepModel` is."""

    def build(config: Any, demand: Demand, streams: Streams) -> Model:
        return model(layer_sizes(config.layers, config.width, demand), config, streams("weights"))

    return Row("depth", type(small), build, small, by_name(presets))


class FnnConfig(DeepConfig):
    """Settings of a plain feed-forward network."""

    # number L of layers of neurons: input, hidden, output. There are L − 1 maps.
    layers: Annotated[int, Range(2, 10_000)] = 3
    width: Width = 72  # number of neurons in each hidden layer.


class Fnn(LayeredModel[FnnConfig]):
    """x[l+1] = φ(W[l] x[l] + b[l]), all weights and biases drawn from N(0, 1)."""

    def build(self, sizes: list[int], new: Source) -> None:
        self.maps = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, *pair, **new.factory)  # type: ignore[no-untyped-call]
            for pair in pairwise(sizes)
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, generator=new.generator)

    def chain(self) -> list[Callable[[Tensor], Tensor]]:
        """Every layer."""
        return [partial(self._layer, affine) for affine in self.maps]

    def _layer(self, affine: nn.Module, x: Tensor) -> Tensor:
        return self.phi(affine(x))


FNN_PRESETS = [
    Preset("double-moon", FnnConfig(3, 72), 289, {"batch_size": 100}, "shallow"),
    Preset("double-moon", FnnConfig(50, 2), 291, {"batch_size": 100}, "deep"),
]
FNN = deep_row(Fnn, FnnConfig(4, 3), FNN_PRESETS)


class HighwayConfig(DeepConfig):
    """Settings of a highway network: those of `DeepConfig`, and the gate's."""

    nonlinearity: Annotated[str, OneOf(ACTIVATIONS)] = "relu"  # activation function φ.
    # initial bias of the gate T; negative, or every layer halves the signal.
    gate_bias: Annotated[float, Range(-1000, 1000)] = -2.0


class Highway(DeepModel[HighwayConfig]):
    r"""Highway network, `Srivastava, Greff & Schmidhuber 2015 <https://arxiv.org/abs/1505.00387>`_.

        y = T ⊙ H + (1 − T) ⊙ x,    H = φ(W_H x + b_H),    T = σ(W_T x + b_T)

    The Jacobian of a layer is diag(T)D_H W_H + diag(1 − T) + diag((H − x) ⊙ T(1 − T))W_T. b_T → −∞
    is the identity, b_T → +∞ a plain layer.

    Count: 2(N² + N) per layer; 579 for the double moon's 48 layers of width 2 and output map.

    Example:
        >>> net = Highway([4, 4, 4, 1], HighwayConfig(4, 4, gate_bias=-100.0))
        >>> x = torch.randn(3, 4)
        >>> bool((net.trunk(x) - x).abs().max() < 1e-6)
        True
    """

    branches = 2  # H and T one above the other: one product serves both

    @torch.no_grad()
    def build(self, sizes: list[int], new: Source) -> None:
        super().build(sizes, new)
        self.b[:, : self.width] = 0
        self.b[:, self.width :] = self.config.gate_bias

    def first(self, new: Source, *shape: int) -> nn.Parameter:
        return new.uniform(shape[-1] ** -0.5, *shape) if shape[1:] else new.constant(0, *shape)

    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """T ⊙ H + (1 − T) ⊙ x."""
        H, T = (x @ W.mT + b).chunk(2, -1)
        return torch.lerp(x, self.phi(H), torch.sigmoid(T))


# No setting is published for this task; the paper's MNIST study has widths 50 to 71.
HIGHWAY_PRESETS = [Preset("double-moon", HighwayConfig(50, 2, "tanh"), 579, name="deep")]
HIGHWAY = deep_row(Highway, HighwayConfig(5, 3), HIGHWAY_PRESETS)


SCALINGS: dict[str, float] = {"none": 0.0, "sqrt": -0.5, "depth": -1.0}  # powers of the depth


class ResidualMlpConfig(DeepConfig):
    """Settings of a residual MLP: those of `DeepConfig`, and the scaling."""

    # factor s on what a layer adds: 1 ("none"), 1/√depth ("sqrt") or 1/depth ("depth"), where depth
    # is the number of layers that add.
    scaling: Annotated[str, OneOf(SCALINGS)] = "none"


class ResidualMlp(DeepModel[ResidualMlpConfig]):
    r"""Residual MLP, after `He et al. 2016 <https://arxiv.org/abs/1512.03385>`_.

        x' = x + s φ(W x + b)

    The Jacobian of a layer is I + s D W. With W ~ N(0, 1) and s = 1 its norm over L layers explodes
    (with tanh the state may grow by 1 per layer); with s = 1/√depth or 1/depth it does not.

    Count: N² + N per layer, as a plain network; 291 for the double moon, counted as for `Highway`.

    Example:
        >>> net = ResidualMlp([4, 4, 4, 1], ResidualMlpConfig(4, 4))
        >>> _ = [nn.init.zeros_(p) for p in net.parameters()]
        >>> x = torch.randn(3, 4)
        >>> bool((net.trunk(x) - x).abs().max() == 0)
        True
    """

    def first(self, new: Source, *shape: int) -> nn.Parameter:
        return new.normal(1, *shape)

    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """x + s φ(W x + b)."""
        scale = max(self.depth, 1) ** SCALINGS[self.config.scaling]
        return torch.add(x, self.phi(x @ W.mT + b), alpha=scale)


# None is published for this task.
RESIDUAL_MLP_PRESETS = [
    Preset("double-moon", ResidualMlpConfig(50, 2), 291, name="deep"),
    Preset("double-moon", ResidualMlpConfig(50, 2, scaling="depth"), 291, name="deep-scaled"),
]
RESIDUAL_MLP = deep_row(ResidualMlp, ResidualMlpConfig(5, 3), RESIDUAL_MLP_PRESETS)
