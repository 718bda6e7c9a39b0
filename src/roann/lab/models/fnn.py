"""The plain feed-forward network of Fig. 1."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Annotated

from torch import Tensor, nn

from roann.lab.limits import Range, Width
from roann.lab.models.depth import DeepConfig, LayeredModel, deep_row
from roann.lab.models.recurrence import Source


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


FNN = deep_row(Fnn, FnnConfig(4, 3))
