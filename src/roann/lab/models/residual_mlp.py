"""Residual MLP."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from roann.lab.limits import OneOf
from roann.lab.models.depth import DeepConfig, DeepModel, deep_row
from roann.lab.models.recurrence import Source

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


RESIDUAL_MLP = deep_row(ResidualMlp, ResidualMlpConfig(5, 3))
