"""Highway network: layers that carry what their gate does not transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab import limits
from roann.lab.models.base import Demand, Preset, Row, Streams
from roann.lab.models.depth import DeepModel
from roann.lab.models.fnn import layer_sizes
from roann.lab.models.recurrence import Factory


@dataclass(frozen=True)
class HighwayConfig:
    """Settings of a highway network.

    Attributes:
        layers: L, counted in layers of neurons: input, hidden ones, output. L − 1 maps.
        width: neurons in each hidden layer.
        nonlinearity: φ.
        gate_bias: the first b_T; negative, or the signal is halved by every layer.
    """

    layers: int = 50
    width: int = 50
    nonlinearity: str = "relu"
    gate_bias: float = -2.0

    def __post_init__(self) -> None:
        limits.whole("layers", self.layers, 3, 10_000)
        limits.whole("width", self.width, 1, limits.WIDTH)
        limits.choice("nonlinearity", self.nonlinearity, ACTIVATIONS)
        limits.real("gate_bias", self.gate_bias, -1000, 1000)


class Highway(DeepModel):
    r"""Highway network, `Srivastava, Greff & Schmidhuber 2015 <https://arxiv.org/abs/1505.00387>`_.

        y = T ⊙ H + (1 − T) ⊙ x,    H = φ(W_H x + b_H),    T = σ(W_T x + b_T)

    The Jacobian of a layer is diag(T)D_H W_H + diag(1 − T) + diag((H − x) ⊙ T(1 − T))W_T. b_T → −∞
    is the identity, b_T → +∞ a plain layer.

    Count: 2(N² + N) per layer; 579 for the double moon's 48 layers of width 2 and output map.

    Start: W_H, W_T, and the maps in and out U(±1/√fan-in), b_H = 0, b_T = −2.

    Args:
        sizes: of the layers of neurons, input and output included.
        config: see `HighwayConfig`.
        generator: the source of the first values.

    Example:
        >>> net = Highway([4, 4, 4, 1], HighwayConfig(4, 4, gate_bias=-100.0))
        >>> x = torch.randn(3, 4)
        >>> bool((net.trunk(x) - x).abs().max() < 1e-6)
        True
    """

    def __init__(
        self,
        sizes: list[int],
        config: HighwayConfig,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        # H and T one above the other: one product serves both.
        super().__init__(sizes, config.nonlinearity, branches=2, **factory)
        self.gate_bias = config.gate_bias
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values."""
        for p in self.parameters():
            if p.dim() > 1:
                bound = p.shape[-1] ** -0.5
                nn.init.uniform_(p, -bound, bound, generator=generator)
            else:
                nn.init.zeros_(p)
        nn.init.zeros_(self.b[:, : self.width])
        nn.init.constant_(self.b[:, self.width :], self.gate_bias)

    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """T ⊙ H + (1 − T) ⊙ x."""
        H, T = (x @ W.mT + b).chunk(2, -1)
        return torch.lerp(x, self.phi(H), torch.sigmoid(T))


def highway(config: HighwayConfig, demand: Demand, streams: Streams) -> Highway:
    """A highway network for a task."""
    sizes = layer_sizes(config.layers, config.width, demand)
    return Highway(sizes, config, streams("weights"))


ROW = Row(
    "depth",
    HighwayConfig,
    highway,
    HighwayConfig(5, 3),
    # No setting is published for this task; the paper's MNIST study has widths 50 to 71.
    {"deep": Preset("double-moon", HighwayConfig(50, 2, "tanh"), 579)},
)
