"""Highway network."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import OneOf, Range
from roann.lab.models.depth import DeepConfig, DeepModel, deep_row
from roann.lab.models.recurrence import Source


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


HIGHWAY = deep_row(Highway, HighwayConfig(5, 3))
