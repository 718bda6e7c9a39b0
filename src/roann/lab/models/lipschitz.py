"""Lipschitz RNN: a linear and a nonlinear part, each with a controlled symmetric part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.lab import limits
from roann.lab.models.base import Preset, Row
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, builder, parameter


@dataclass(frozen=True)
class LipschitzRnnConfig:
    """Settings of the Lipschitz RNN.

    Attributes:
        hidden_size: N.
        epsilon: ε, the step of the Euler scheme.
        beta: β, from symmetric (0.5 is a free matrix) to skew (1).
        gamma: γ, the damping.
        init_std: N times the standard deviation of the first entries of M_A and M_W.
    """

    hidden_size: int = 128
    epsilon: float = 0.03
    beta: float = 0.75
    gamma: float = 0.001
    init_std: float = 0.1

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, 1, limits.WIDTH)
        limits.real("epsilon", self.epsilon, 0, 1e6)
        limits.real("beta", self.beta, 0, 1)
        limits.real("gamma", self.gamma, 0, 1e6)
        limits.real("init_std", self.init_std, 0, 1e6)


class LipschitzRnn(DrivenSystem):
    r"""Lipschitz RNN, `Erichson et al. 2021 <https://arxiv.org/abs/2006.12070>`_.

        S(M) = β(M − Mᵀ) + (1 − β)(M + Mᵀ) − γI,   A = S(M_A),   W = S(M_W)
        h' = h + ε A h + ε tanh(W h + U x + b)

    the forward Euler scheme of ḣ = A h + tanh(W h + U x + b). The symmetric part of A is
    (1 − β)(M + Mᵀ) − γI, so that max Re λ(A) ≤ (1 − β) λ_max(M + Mᵀ) − γ. The Jacobian is
    I + εA + εD W.

    Count: 2N² + N·I + N, and 10N + 10 for a readout: 34,314 at N = 128, the table's 34k.

    Start: M entries N(0, (init_std/N)²) — over N, not over √N —, U and b as torch.nn.Linear.
    Public code writes h @ A, so that its skew part has the other sign.

    Args:
        input_size: I.
        config: see `LipschitzRnnConfig`.
        generator: the source of the first values.

    Example:
        >>> system = LipschitzRnn(1, LipschitzRnnConfig(8, beta=1.0, gamma=0.5))
        >>> A, _ = system.matrices()
        >>> bool((A + A.mT + torch.eye(8)).abs().max() < 1e-6)
        True
    """

    def __init__(
        self,
        input_size: int,
        config: LipschitzRnnConfig,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        N = config.hidden_size
        super().__init__(input_size, N)
        self.config = config
        self.M_A = parameter(N, N, **factory)
        self.M_W = parameter(N, N, **factory)
        self.U = parameter(N, input_size, **factory)
        self.b = parameter(N, **factory)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values."""
        std, bound = self.config.init_std / self.state_size, self.input_size**-0.5
        for M in (self.M_A, self.M_W):
            nn.init.normal_(M, 0, std, generator=generator)
        for p in (self.U, self.b):
            nn.init.uniform_(p, -bound, bound, generator=generator)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """A = S(M_A) and W = S(M_W)."""
        beta, gamma = self.config.beta, self.config.gamma
        M = torch.stack([self.M_A, self.M_W])
        damping = gamma * torch.eye(self.state_size, dtype=M.dtype, device=M.device)
        A, W = beta * (M - M.mT) + (1 - beta) * (M + M.mT) - damping
        return A, W

    def drive(self, u: Tensor) -> Tensor:
        """U u + b."""
        return u @ self.U.mT + self.b

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


ROW = Row(
    "sequence",
    LipschitzRnnConfig,
    builder(LipschitzRnn),
    LipschitzRnnConfig(5),
    {
        # github.com/erichson/LipschitzRNN: README, driver.py; lr × 0.1 at epoch 90.
        "psmnist": Preset(
            "psmnist",
            LipschitzRnnConfig(128, 0.03, 0.75, 0.001),
            34_314,
            {"optimizer": "adam", "lr": 0.0035, "batch_size": 128, "epochs": 100},
        ),
    },
)
