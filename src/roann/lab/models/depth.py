"""Deep feed-forward networks of one width: a map in, many equal layers, a map out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Unpack

from torch import Tensor

from roann.kernels.activations import ACTIVATIONS
from roann.lab.models.base import Model
from roann.lab.models.recurrence import Factory, parameter


class DeepModel(Model):
    """Abstract: φ(affine) to the width, unless the inputs have it; layers; φ(affine) out.

    With L layers of neurons there are L − 1 maps: one out, and before it either L − 2 layers, or
    one map in and L − 3 layers.

    Args:
        sizes: of the layers of neurons, input and output included; all hidden ones are equal.
        nonlinearity: φ, of every neuron, the output's too.
        branches: how many affine maps a layer has, one above the other in W and b.
    """

    def __init__(
        self, sizes: list[int], nonlinearity: str, branches: int = 1, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.width = sizes[-2]
        self.enters = sizes[0] != self.width
        self.depth = len(sizes) - 2 - self.enters
        self.phi: Callable[[Tensor], Tensor] = ACTIVATIONS[nonlinearity].value
        if self.enters:
            self.W_in = parameter(self.width, sizes[0], **factory)
            self.b_in = parameter(self.width, **factory)
        self.W = parameter(self.depth, branches * self.width, self.width, **factory)
        self.b = parameter(self.depth, branches * self.width, **factory)
        self.W_out = parameter(sizes[-1], self.width, **factory)
        self.b_out = parameter(sizes[-1], **factory)

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
