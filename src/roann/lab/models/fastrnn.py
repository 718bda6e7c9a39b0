"""FastRNN: a residual with two learned scalars."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Unpack

import torch
from torch import nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import HiddenSettings, OneOf, Range
from roann.lab.models.base import Preset, adam
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, parameter, row


@dataclass(frozen=True)
class FastRnnConfig(HiddenSettings):
    """Settings of FastRNN.

    Attributes:
        nonlinearity: activation function φ.
        a: initial value of a; σ(a) multiplies the update, and σ(−3) = 0.047.
        c: initial value of c; σ(c) multiplies the state, and σ(3) = 0.953.
        learn_scalars: whether a and c are trained; if not and c = −a, this is eyeRNN.
    """

    nonlinearity: Annotated[str, OneOf(("tanh", "relu", "sigmoid"))] = "tanh"
    a: Annotated[float, Range(-100, 100)] = -3.0
    c: Annotated[float, Range(-100, 100)] = 3.0
    learn_scalars: bool = True


class FastRnn(DrivenSystem[FastRnnConfig]):
    r"""FastRNN, `Kusupati et al. 2018 <https://arxiv.org/abs/1901.02358>`_.

        h' = σ(c) h + σ(a) φ(U h + W x + b)

    a and c are trained scalars; they start at −3 and +3, so that the two weights sum to 1. Frozen
    at a = logit(α), c = logit(1 − α) this is the additive network with the filter O = I (eyeRNN).
    The Jacobian is σ(c)I + σ(a)D U. Ports without sigmoids multiply the state by ±3 and diverge.

    Count: N² + N·I + N + 2, and 10N + 10 for a readout: 17,932 at N = 128 (the table has none).

    Start: U, W ~ N(0, 0.1²), b = 1.

    Example:
        >>> system = FastRnn(1, FastRnnConfig(8))
        >>> bool((torch.sigmoid(system.a) + torch.sigmoid(system.c) - 1).abs() < 1e-6)
        True
    """

    input_map = ("W", "b")

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.U = parameter(N, N, **factory)
        self.W = parameter(N, self.input_size, **factory)
        self.b = parameter(N, **factory)
        self.a = parameter(**factory)
        self.c = parameter(**factory)
        for scalar in (self.a, self.c):
            scalar.requires_grad_(self.config.learn_scalars)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for matrix in (self.U, self.W):
            nn.init.normal_(matrix, 0, 0.1, generator=generator)
        nn.init.ones_(self.b)
        nn.init.constant_(self.a, self.config.a)
        nn.init.constant_(self.c, self.config.c)

    def transition(self) -> Transition:
        """h, d ↦ σ(c) h + σ(a) φ(U h + d)."""
        U_t, phi = self.U.mT, ACTIVATIONS[self.config.nonlinearity].value
        keep, take = torch.sigmoid(self.c), torch.sigmoid(self.a)
        return lambda h, d: torch.addcmul(keep * h, take, phi(h @ U_t + d))


PRESETS = [
    # github.com/microsoft/EdgeML's example (lr ÷ 10 every 200 epochs); none is published for this.
    Preset("psmnist", FastRnnConfig(128), 17_932, adam(0.01, batch_size=100, epochs=300)),
]
ROW = row(FastRnn, FastRnnConfig(5), PRESETS)
