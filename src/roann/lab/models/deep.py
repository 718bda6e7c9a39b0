"""Networks for the study of depth: a linear map in, many maps of one kind, a linear readout."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Annotated, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import LENGTH, OneOf, Range, Settings, Width
from roann.lab.models.base import Chain, Demand, Model, Row, Streams
from roann.lab.models.heads import make_head
from roann.nn import RoaFNN


class Kind(NamedTuple):
    """One kind of maps from N to N neurons.

    Attributes:
        next: from x, the affine maps of x (all branches in one) and φ to the next x.
        branches: how many affine maps a map has.
        bias: where the bias of the last branch starts; that of others at 0.
    """

    next: Callable[[Tensor, Tensor, Callable[[Tensor], Tensor]], Tensor]
    branches: int = 1
    bias: float = 0.0


def _highway(x: Tensor, y: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    H, gate = y.chunk(2, -1)
    return torch.lerp(x, phi(H), torch.sigmoid(gate))


KINDS = {
    "plain": Kind(lambda x, y, phi: phi(y)),
    "residual": Kind(lambda x, y, phi: x + phi(y)),
    "highway": Kind(_highway, branches=2, bias=-2.0),  # as published: gates nearly shut
}


class DeepConfig(Settings):
    """Settings of a network for the study of depth."""

    # kind of the maps: roa (our layers by the recipe), plain, residual or highway.
    kind: Annotated[str, OneOf(("roa", *KINDS))] = "roa"
    maps: Annotated[int, Range(1, LENGTH)] = 10  # number of maps between the linear ones.
    width: Width = 64  # number of neurons of each.
    rho: Annotated[float, Range(0, 1e6)] = 1.0  # ρ of kind roa; α = ρ / maps.
    nonlinearity: Annotated[str, OneOf(ACTIVATIONS)] = "tanh"  # activation function φ.


class Stack(nn.Module):
    """Maps of one kind, W ~ N(0, 1/N).

    Example:
        >>> _ = torch.manual_seed(0)
        >>> Stack(DeepConfig("residual", 5, 4), torch.Generator())(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """

    def __init__(self, config: DeepConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.kind, N = KINDS[config.kind], config.width
        self.phi = ACTIVATIONS[config.nonlinearity].value
        rows = self.kind.branches * N
        W = torch.randn(config.maps, rows, N, generator=generator) * N**-0.5
        b = torch.zeros(config.maps, rows)
        b[:, -N:] = self.kind.bias
        self.W, self.b = nn.Parameter(W), nn.Parameter(b)

    def chain(self) -> list[Callable[[Tensor], Tensor]]:
        """Every map, from (…, N) to (…, N)."""
        # Unbound once: the gradient of every W[k] on its own would be an array as large as W.
        maps = zip(self.W.unbind(0), self.b.unbind(0), strict=True)
        return [partial(self._map, W, b) for W, b in maps]

    def forward(self, x: Tensor) -> Tensor:
        """From (B, N) to (B, N)."""
        return reduce(lambda x, layer: layer(x), self.chain(), x)

    def _map(self, W: Tensor, b: Tensor, x: Tensor) -> Tensor:
        return self.kind.next(x, F.linear(x, W, b), self.phi)


class Deep(Model):
    """A linear map in, N(0, 1/I); the maps, which are what diagnostics follow; a readout.

    Args:
        W_in: the weights of the map in, (N, I).
        maps: from (B, N) to (B, N).
        head: the readout.
    """

    def __init__(self, W_in: Tensor, maps: RoaFNN | Stack, head: nn.Module) -> None:
        super().__init__()
        self.W_in, self.b_in = nn.Parameter(W_in), nn.Parameter(W_in.new_zeros(len(W_in)))
        self.maps, self.head = maps, head

    def forward(self, inputs: Tensor) -> Tensor:
        return self.read(self.maps(self.enter(inputs)))

    def enter(self, inputs: Tensor) -> Tensor:
        return F.linear(inputs, self.W_in, self.b_in)

    def chain(self) -> Chain:
        return self.maps.chain() if isinstance(self.maps, Stack) else self.maps

    def read(self, output: Tensor) -> Tensor:
        prediction: Tensor = self.head(output)
        return prediction


def deep(config: DeepConfig, demand: Demand, streams: Streams) -> Deep:
    """A network for the study of depth; its readout starts at zero."""
    rng, N, I = streams("weights"), config.width, demand.input_size
    W_in = torch.randn(N, I, generator=rng) * I**-0.5
    maps: RoaFNN | Stack
    if config.kind == "roa":
        sizes, phi = [N] * (config.maps + 1), config.nonlinearity
        maps = RoaFNN(sizes, nonlinearity=phi, rho=config.rho, generator=rng)
    else:
        maps = Stack(config, rng)
    return Deep(W_in, maps, make_head(N, 0, demand.output_size, "zero", streams("head")))


DEEP = Row("depth", DeepConfig, deep, DeepConfig("roa", 6, 3))
