"""Residual MLP: layers that add to what they get."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from roann.lab.limits import OneOf
from roann.lab.models.base import Preset
from roann.lab.models.depth import DeepConfig, DeepModel, deep_row

SCALINGS: dict[str, float] = {"none": 0.0, "sqrt": -0.5, "depth": -1.0}  # powers of the depth


@dataclass(frozen=True)
class ResidualMlpConfig(DeepConfig):
    """Settings of a residual MLP: those of `DeepConfig`, and the scaling.

    Attributes:
        scaling: factor s on what a layer adds: 1 ("none"), 1/√depth ("sqrt") or 1/depth ("depth"),
            where depth is the number of layers that add.
    """

    scaling: Annotated[str, OneOf(SCALINGS)] = "none"


class ResidualMlp(DeepModel[ResidualMlpConfig]):
    r"""Residual MLP, after `He et al. 2016 <https://arxiv.org/abs/1512.03385>`_.

        x' = x + s φ(W x + b)

    The Jacobian of a layer is I + s D W. With W ~ N(0, 1) and s = 1 its norm over L layers explodes
    (and with tanh the state may grow by 1 in every layer); s = 1/√depth and 1/depth are the arms
    that do not.

    Count: N² + N per layer, as a plain network: 291 for the double moon's 48 layers of width 2 and
    output map.

    Start: all weights and biases N(0, 1), as the plain network it is compared with.

    Example:
        >>> net = ResidualMlp([4, 4, 4, 1], ResidualMlpConfig(4, 4))
        >>> _ = [nn.init.zeros_(p) for p in net.parameters()]
        >>> x = torch.randn(3, 4)
        >>> bool((net.trunk(x) - x).abs().max() == 0)
        True
    """

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for p in self.parameters():
            nn.init.normal_(p, generator=generator)

    def equation(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """x + s φ(W x + b)."""
        scale = max(self.depth, 1) ** SCALINGS[self.config.scaling]
        return torch.add(x, self.phi(x @ W.mT + b), alpha=scale)


# None is published for this task.
PRESETS = {
    "deep": Preset("double-moon", ResidualMlpConfig(50, 2), 291),
    "deep-scaled": Preset("double-moon", ResidualMlpConfig(50, 2, scaling="depth"), 291),
}
ROW = deep_row(ResidualMlp, ResidualMlpConfig(5, 3), PRESETS)
