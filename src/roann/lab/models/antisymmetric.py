"""AntisymmetricRNN."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from roann.lab.limits import HiddenSettings, NonNegative
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row
from roann.lab.models.skew import skew, skew_size


class AntisymmetricRnnConfig(HiddenSettings):
    """Settings of the AntisymmetricRNN."""

    epsilon: NonNegative = 0.01  # ε, the step size of the Euler scheme.
    gamma: NonNegative = 0.01  # γ, the damping that keeps the Euler scheme stable.
    gated: bool = False  # whether a learned gate multiplies each update.
    # scale of the initial recurrent weights, drawn from N(0, sigma_w² / N).
    sigma_w: NonNegative = 1.0


class AntisymmetricRnn(DrivenSystem[AntisymmetricRnnConfig]):
    r"""AntisymmetricRNN, `Chang et al. 2019 <https://arxiv.org/abs/1902.09689>`_.

        M = W − Wᵀ − γI
        h' = h + ε tanh(M h + V x + b)                                plain
        h' = h + ε σ(M h + V_z x + b_z) ⊙ tanh(M h + V x + b)         gated, one M in both

    Every eigenvalue of M has the real part −γ. Euler is stable in the linear regime if
    γ ≥ ε(γ² + ω²)/2 for every eigenvalue −γ ± iω, so γ = 0 is unstable. Plain Jacobian: I + εD M.

    Count: N(N−1)/2 + N·I + N (gate: + N·I + N), and 10N + 10 for a readout: 9,674 at N = 128,
    gated 9,930. The upper triangle of W − Wᵀ is stored, so the stored number is the effective one;
    a full W would hold 17,930 numbers and move W − Wᵀ twice as fast under the same SGD.

    Example:
        >>> system = AntisymmetricRnn(1, AntisymmetricRnnConfig(8), dtype=torch.float64)
        >>> real = torch.linalg.eigvals(system.recurrent_matrix()).real
        >>> bool((real + system.config.gamma).abs().max() < 1e-13)
        True
    """

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.A = new.normal(self.config.sigma_w * math.sqrt(2 / N), skew_size(N))
        # With a gate, its rows follow: [V; V_z] and [b; b_z].
        rows = 2 * N if self.config.gated else N
        self.V = new.normal(self.input_size**-0.5, rows, self.input_size)
        self.b = new.constant(0, rows)

    def recurrent_matrix(self) -> Tensor:
        """M = W − Wᵀ − γI."""
        eye = torch.eye(self.state_size, dtype=self.A.dtype, device=self.A.device)
        return skew(self.A, self.state_size) - self.config.gamma * eye

    def transition(self) -> Transition:
        M_t, eps = self.recurrent_matrix().mT, self.config.epsilon

        def plain(h: Tensor, d: Tensor) -> Tensor:
            return torch.add(h, torch.tanh(h @ M_t + d), alpha=eps)

        def gated(h: Tensor, d: Tensor) -> Tensor:
            pre, (d_h, d_z) = h @ M_t, d.chunk(2, -1)
            return torch.addcmul(h, torch.tanh(pre + d_h), torch.sigmoid(pre + d_z), value=eps)

        return gated if self.config.gated else plain


ANTISYMMETRIC = row(AntisymmetricRnn, AntisymmetricRnnConfig(5, gated=True))
