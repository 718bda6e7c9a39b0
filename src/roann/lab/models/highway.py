"""Highway network: layers that carry what their gate does not transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import OneOf, Range
from roann.lab.models.base import Preset
from roann.lab.models.depth import DeepConfig, DeepModel, deep_row
from roann.lab.models.recurrence import uniform_


@dataclass(frozen=True)
class HighwayConfig(DeepConfig):
    """Settings of a highway network: those of `DeepConfig`, and the gate's.

    Attributes:
        gate_bias: initial bias of the gate T; negative, or every layer halves the signal.
    """

    nonlinearity: Annotated[str, OneOf(ACTIVATIONS)] = "relu"
    gate_bias: Annotated[float, Range(-1000, 1000)] = -2.0


class Highway(DeepModel[HighwayConfig]):
    r"""Highway network, `Srivastava, Greff & Schmidhuber 2015 <https://arxiv.org/abs/1505.00387>`_.

        y = T ⊙ H + (1 − T) ⊙ x,    H = φ(W_H x + b_H),    T = σ(W_T x + b_T)

    The Jacobian of a layer is diag(T)D_H W_H + diag(1 − T) + diag((H − x) ⊙ T(1 − T))W_T. b_T → −∞
    is the identity, b_T → +∞ a plain layer.

    Count: 2(N² + N) per layer; 579 for the double moon's 48 layers of width 2 and output map.

    Start: W_H, W_T, and the maps in and out U(±1/√fan-in), b_H = 0, b_T = −2.

    Example:
        >>> net = Highway([4, 4, 4, 1], HighwayConfig(4, 4, gate_bias=-100.0))
        >>> x = torch.randn(3, 4)
        >>> bool((net.trunk(x) - x).abs().max() < 1e-6)
        True
    """

    branches = 2  # H and T one above the other: one product serves both

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                uniform_(p.shape[-1] ** -0.5, generator, p)
            else:
                nn.init.zeros_(p)
        nn.init.zeros_(self.b[:, : self.width])
        nn.init.constant_(self.b[:, self.width :], self.config.gate_bias)

    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """T ⊙ H + (1 − T) ⊙ x."""
        H, T = (x @ W.mT + b).chunk(2, -1)
        return torch.lerp(x, self.phi(H), torch.sigmoid(T))


# No setting is published for this task; the paper's MNIST study has widths 50 to 71.
PRESETS = {"deep": Preset("double-moon", HighwayConfig(50, 2, "tanh"), 579)}
ROW = deep_row(Highway, HighwayConfig(5, 3), PRESETS)
