"""FastRNN."""

from __future__ import annotations

from typing import Annotated

import torch

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import HiddenSettings, OneOf, Range
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


class FastRnnConfig(HiddenSettings):
    """Settings of FastRNN."""

    # activation function φ.
    nonlinearity: Annotated[str, OneOf(("tanh", "relu", "sigmoid"))] = "tanh"
    # initial value of a; σ(a) multiplies the update, and σ(−3) = 0.047.
    a: Annotated[float, Range(-100, 100)] = -3.0
    # initial value of c; σ(c) multiplies the state, and σ(3) = 0.953.
    c: Annotated[float, Range(-100, 100)] = 3.0
    learn_scalars: bool = True  # whether a and c are trained; if not and c = −a, this is eyeRNN.


class FastRnn(DrivenSystem[FastRnnConfig]):
    r"""FastRNN, `Kusupati et al. 2018 <https://arxiv.org/abs/1901.02358>`_.

        h' = σ(c) h + σ(a) φ(U h + W x + b)

    a and c are trained scalars; they start at −3 and +3, so that the two weights sum to 1. Frozen
    at a = logit(α), c = logit(1 − α) this is the additive network with the filter O = I (eyeRNN).
    The Jacobian is σ(c)I + σ(a)D U. Ports without sigmoids multiply the state by ±3 and diverge.

    Count: N² + N·I + N + 2, and 10N + 10 for a readout: 17,932 at N = 128 (the table has none).

    Example:
        >>> system = FastRnn(1, FastRnnConfig(8))
        >>> bool((torch.sigmoid(system.a) + torch.sigmoid(system.c) - 1).abs() < 1e-6)
        True
    """

    input_map = ("W", "b")

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.U = new.normal(0.1, N, N)
        self.W = new.normal(0.1, N, self.input_size)
        self.b = new.constant(1, N)
        self.a = new.constant(self.config.a).requires_grad_(self.config.learn_scalars)
        self.c = new.constant(self.config.c).requires_grad_(self.config.learn_scalars)

    def transition(self) -> Transition:
        """h, d ↦ σ(c) h + σ(a) φ(U h + d)."""
        U_t, phi = self.U.mT, ACTIVATIONS[self.config.nonlinearity].value
        keep, take = torch.sigmoid(self.c), torch.sigmoid(self.a)
        return lambda h, d: torch.addcmul(keep * h, take, phi(h @ U_t + d))


FASTRNN = row(FastRnn, FastRnnConfig(5))
