"""FastRNN: a residual with two learned scalars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab import limits
from roann.lab.models.base import Preset, Row
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, builder, parameter


@dataclass(frozen=True)
class FastRnnConfig:
    """Settings of FastRNN.

    Attributes:
        hidden_size: N.
        nonlinearity: φ.
        a: the first value of a, before the sigmoid: σ(−3) = 0.047 multiplies the update.
        c: the first value of c: σ(3) = 0.953 multiplies the state.
        learn_scalars: whether a and c are trained; if not and c = −a, this is eyeRNN.
    """

    hidden_size: int = 128
    nonlinearity: str = "tanh"
    a: float = -3.0
    c: float = 3.0
    learn_scalars: bool = True

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, 1, limits.WIDTH)
        limits.choice("nonlinearity", self.nonlinearity, ("tanh", "relu", "sigmoid"))
        limits.real("a", self.a, -100, 100)
        limits.real("c", self.c, -100, 100)
        limits.flag("learn_scalars", self.learn_scalars)


class FastRnn(DrivenSystem):
    r"""FastRNN, `Kusupati et al. 2018 <https://arxiv.org/abs/1901.02358>`_.

        h' = σ(c) h + σ(a) φ(U h + W x + b)

    a and c are trained scalars; they start at −3 and +3, so that the two weights sum to 1. Frozen
    at a = logit(α), c = logit(1 − α) this is the additive network with the filter O = I (eyeRNN).
    The Jacobian is σ(c)I + σ(a)D U. Ports that leave out the sigmoids multiply the state by ±3 and
    diverge.

    Count: N² + N·I + N + 2, and 10N + 10 for a readout: 17,932 at N = 128 (the table has none).

    Start: U, W ~ N(0, 0.1²), b = 1.

    Args:
        input_size: I.
        config: see `FastRnnConfig`.
        generator: the source of the first values.

    Example:
        >>> system = FastRnn(1, FastRnnConfig(8))
        >>> bool((torch.sigmoid(system.a) + torch.sigmoid(system.c) - 1).abs() < 1e-6)
        True
    """

    def __init__(
        self,
        input_size: int,
        config: FastRnnConfig,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        N = config.hidden_size
        super().__init__(input_size, N)
        self.config = config
        self.U = parameter(N, N, **factory)
        self.W = parameter(N, input_size, **factory)
        self.b = parameter(N, **factory)
        self.a = parameter(**factory)
        self.c = parameter(**factory)
        for p in (self.a, self.c):
            p.requires_grad_(config.learn_scalars)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values."""
        nn.init.normal_(self.U, 0, 0.1, generator=generator)
        nn.init.normal_(self.W, 0, 0.1, generator=generator)
        nn.init.ones_(self.b)
        nn.init.constant_(self.a, self.config.a)
        nn.init.constant_(self.c, self.config.c)

    def drive(self, u: Tensor) -> Tensor:
        """W u + b."""
        return u @ self.W.mT + self.b

    def transition(self) -> Transition:
        """h, d ↦ σ(c) h + σ(a) φ(U h + d)."""
        U_t, phi = self.U.mT, ACTIVATIONS[self.config.nonlinearity].value
        keep, take = torch.sigmoid(self.c), torch.sigmoid(self.a)
        return lambda h, d: torch.addcmul(keep * h, take, phi(h @ U_t + d))


ROW = Row(
    "sequence",
    FastRnnConfig,
    builder(FastRnn),
    FastRnnConfig(5),
    {
        # github.com/microsoft/EdgeML, its example (lr ÷ 10 every 200 epochs): none is published
        # for these tasks.
        "psmnist": Preset(
            "psmnist",
            FastRnnConfig(128),
            17_932,
            {"optimizer": "adam", "lr": 0.01, "batch_size": 100, "epochs": 300},
        ),
    },
)
