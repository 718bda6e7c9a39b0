"""Residual MLP: layers that add to what they get."""

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

SCALINGS: dict[str, float] = {"none": 0.0, "sqrt": -0.5, "depth": -1.0}  # powers of the depth


@dataclass(frozen=True)
class ResidualMlpConfig:
    """Settings of a residual MLP.

    Attributes:
        layers: L, counted in layers of neurons: input, hidden ones, output. L − 1 maps.
        width: neurons in each hidden layer.
        nonlinearity: φ.
        scaling: s = 1 ("none"), 1/√(layers of the trunk) ("sqrt") or 1/(them) ("depth").
    """

    layers: int = 50
    width: int = 50
    nonlinearity: str = "tanh"
    scaling: str = "none"

    def __post_init__(self) -> None:
        limits.whole("layers", self.layers, 3, 10_000)
        limits.whole("width", self.width, 1, limits.WIDTH)
        limits.choice("nonlinearity", self.nonlinearity, ACTIVATIONS)
        limits.choice("scaling", self.scaling, SCALINGS)


class ResidualMlp(DeepModel):
    r"""Residual MLP, after `He et al. 2016 <https://arxiv.org/abs/1512.03385>`_.

        x' = x + s φ(W x + b)

    The Jacobian of a layer is I + s D W. With W ~ N(0, 1) and s = 1 its norm over L layers explodes
    (and with tanh the state may grow by 1 in every layer); s = 1/√depth and 1/depth are the arms
    that do not.

    Count: N² + N per layer, as a plain network: 291 for the double moon's 48 layers of width 2 and
    output map.

    Start: all weights and biases N(0, 1), as the plain network it is compared with.

    Args:
        sizes: of the layers of neurons, input and output included.
        config: see `ResidualMlpConfig`.
        generator: the source of the first values.

    Example:
        >>> net = ResidualMlp([4, 4, 4, 1], ResidualMlpConfig(4, 4))
        >>> _ = [nn.init.zeros_(p) for p in net.parameters()]
        >>> x = torch.randn(3, 4)
        >>> bool((net.trunk(x) - x).abs().max() == 0)
        True
    """

    def __init__(
        self,
        sizes: list[int],
        config: ResidualMlpConfig,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__(sizes, config.nonlinearity, **factory)
        self.scale = max(self.depth, 1) ** SCALINGS[config.scaling]
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values."""
        for p in self.parameters():
            nn.init.normal_(p, generator=generator)

    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """x + s φ(W x + b)."""
        return torch.add(x, self.phi(x @ W.mT + b), alpha=self.scale)


def residual_mlp(config: ResidualMlpConfig, demand: Demand, streams: Streams) -> ResidualMlp:
    """A residual MLP for a task."""
    sizes = layer_sizes(config.layers, config.width, demand)
    return ResidualMlp(sizes, config, streams("weights"))


ROW = Row(
    "depth",
    ResidualMlpConfig,
    residual_mlp,
    ResidualMlpConfig(5, 3),
    # None is published for this task.
    {
        "deep": Preset("double-moon", ResidualMlpConfig(50, 2), 291),
        "deep-scaled": Preset("double-moon", ResidualMlpConfig(50, 2, scaling="depth"), 291),
    },
)
