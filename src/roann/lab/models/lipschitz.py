"""Lipschitz RNN: a linear and a nonlinear part, each with a controlled symmetric part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.lab.limits import Fraction, HiddenSettings, NonNegative
from roann.lab.models.base import Preset, adam
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, parameter, row, uniform_


@dataclass(frozen=True)
class LipschitzRnnConfig(HiddenSettings):
    """Settings of the Lipschitz RNN.

    Attributes:
        epsilon: ε, the step size of the Euler scheme.
        beta: β, the weight of the skew-symmetric part: 0 symmetric, 0.5 a free matrix, 1 skew.
        gamma: γ, the damping.
        init_std: N times the standard deviation of the initial entries of M_A and M_W.
    """

    epsilon: NonNegative = 0.03
    beta: Fraction = 0.75
    gamma: NonNegative = 0.001
    init_std: NonNegative = 0.1


class LipschitzRnn(DrivenSystem[LipschitzRnnConfig]):
    r"""Lipschitz RNN, `Erichson et al. 2021 <https://arxiv.org/abs/2006.12070>`_.

        S(M) = β(M − Mᵀ) + (1 − β)(M + Mᵀ) − γI,   A = S(M_A),   W = S(M_W)
        h' = h + ε A h + ε tanh(W h + U x + b)

    the forward Euler scheme of ḣ = A h + tanh(W h + U x + b). The symmetric part of A is
    (1 − β)(M + Mᵀ) − γI, so max Re λ(A) ≤ (1 − β) λ_max(M + Mᵀ) − γ. Jacobian: I + εA + εD W.

    Count: 2N² + N·I + N, and 10N + 10 for a readout: 34,314 at N = 128, the table's 34k.

    Start: M entries N(0, (init_std/N)²) — over N, not over √N —, U and b as torch.nn.Linear.
    Public code writes h @ A, so that its skew part has the other sign.

    Example:
        >>> system = LipschitzRnn(1, LipschitzRnnConfig(8, beta=1.0, gamma=0.5))
        >>> A, _ = system.matrices()
        >>> bool((A + A.mT + torch.eye(8)).abs().max() < 1e-6)
        True
    """

    input_map = ("U", "b")

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.M_A = parameter(N, N, **factory)
        self.M_W = parameter(N, N, **factory)
        self.U = parameter(N, self.input_size, **factory)
        self.b = parameter(N, **factory)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for M in (self.M_A, self.M_W):
            nn.init.normal_(M, 0, self.config.init_std / self.state_size, generator=generator)
        uniform_(self.input_size**-0.5, generator, self.U, self.b)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """A = S(M_A) and W = S(M_W)."""
        beta, gamma = self.config.beta, self.config.gamma
        M = torch.stack([self.M_A, self.M_W])
        damping = gamma * torch.eye(self.state_size, dtype=M.dtype, device=M.device)
        A, W = beta * (M - M.mT) + (1 - beta) * (M + M.mT) - damping
        return A, W

    def transition(self) -> Transition:
        """h, d ↦ (I + εA) h + ε tanh(W h + d), both products in one."""
        A, W = self.matrices()
        eps = self.config.epsilon
        eye = torch.eye(self.state_size, dtype=A.dtype, device=A.device)
        both = torch.cat([eye + eps * A, W]).mT

        def advance(h: Tensor, d: Tensor) -> Tensor:
            linear, pre = (h @ both).chunk(2, -1)
            return torch.add(linear, torch.tanh(pre + d), alpha=eps)

        return advance


PRESETS = [
    # github.com/erichson/LipschitzRNN: README, driver.py; lr × 0.1 at epoch 90.
    Preset("psmnist", LipschitzRnnConfig(), 34_314, adam(0.0035, batch_size=128, epochs=100)),
]
ROW = row(LipschitzRnn, LipschitzRnnConfig(5), PRESETS)
