"""Lipschitz RNN."""

from __future__ import annotations

import torch
from torch import Tensor

from roann.lab.limits import Fraction, HiddenSettings, NonNegative
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


class LipschitzRnnConfig(HiddenSettings):
    """Settings of the Lipschitz RNN."""

    epsilon: NonNegative = 0.03  # ε, the step size of the Euler scheme.
    # β, the weight of the skew-symmetric part: 0 symmetric, 0.5 a free matrix, 1 skew.
    beta: Fraction = 0.75
    gamma: NonNegative = 0.001  # γ, the damping.
    # N times the standard deviation of the initial entries of M_A and M_W.
    init_std: NonNegative = 0.1


class LipschitzRnn(DrivenSystem[LipschitzRnnConfig]):
    r"""Lipschitz RNN, `Erichson et al. 2021 <https://arxiv.org/abs/2006.12070>`_.

        S(M) = β(M − Mᵀ) + (1 − β)(M + Mᵀ) − γI,   A = S(M_A),   W = S(M_W)
        h' = h + ε A h + ε tanh(W h + U x + b)

    the forward Euler scheme of ḣ = A h + tanh(W h + U x + b). The symmetric part of A is
    (1 − β)(M + Mᵀ) − γI, so max Re λ(A) ≤ (1 − β) λ_max(M + Mᵀ) − γ. Jacobian: I + εA + εD W.

    Count: 2N² + N·I + N, and 10N + 10 for a readout: 34,314 at N = 128, the table's 34k.

    Public code writes h @ A, so that its skew part has the other sign.

    Example:
        >>> system = LipschitzRnn(1, LipschitzRnnConfig(8, beta=1.0, gamma=0.5))
        >>> A, _ = system.matrices()
        >>> bool((A + A.mT + torch.eye(8)).abs().max() < 1e-6)
        True
    """

    input_map = ("U", "b")

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.M_A = new.normal(self.config.init_std / N, N, N)  # over N, not over √N
        self.M_W = new.normal(self.config.init_std / N, N, N)
        self.U, self.b = new.linear(self.input_size, N)

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


LIPSCHITZ = row(LipschitzRnn, LipschitzRnnConfig(5))
