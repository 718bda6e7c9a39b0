"""AntisymmetricRNN: a stable differential equation, with or without a gate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, NonNegative
from roann.lab.models.base import Preset, adagrad
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, parameter, row
from roann.lab.models.skew import skew, skew_size


@dataclass(frozen=True)
class AntisymmetricRnnConfig(HiddenSettings):
    """Settings of the AntisymmetricRNN.

    Attributes:
        epsilon: ε, the step size of the Euler scheme.
        gamma: γ, the damping that keeps the Euler scheme stable.
        gated: whether a learned gate multiplies each update.
        sigma_w: scale of the initial recurrent weights, drawn from N(0, sigma_w² / N).
    """

    epsilon: NonNegative = 0.01
    gamma: NonNegative = 0.01
    gated: bool = False
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

    Start: W ~ N(0, σ_w²/N), that is W − Wᵀ with twice this variance; V ~ N(0, 1/I), b = 0.

    Example:
        >>> system = AntisymmetricRnn(1, AntisymmetricRnnConfig(8), dtype=torch.float64)
        >>> real = torch.linalg.eigvals(system.recurrent_matrix()).real
        >>> bool((real + system.config.gamma).abs().max() < 1e-13)
        True
    """

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.A = parameter(skew_size(N), **factory)
        # With a gate, its rows follow: [V; V_z] and [b; b_z].
        rows = 2 * N if self.config.gated else N
        self.V = parameter(rows, self.input_size, **factory)
        self.b = parameter(rows, **factory)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        std = self.config.sigma_w * math.sqrt(2 / self.state_size)
        nn.init.normal_(self.A, 0, std, generator=generator)
        nn.init.normal_(self.V, 0, self.input_size**-0.5, generator=generator)
        nn.init.zeros_(self.b)

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


PRESETS = [
    # The paper searched SGD and Adagrad, lr from 0.1 to 1, ε and γ from 0.001 to 1.
    Preset("psmnist", AntisymmetricRnnConfig(128), 9_674, adagrad(0.1, batch_size=128)),
    # github.com/KurochkinAlexey/AntisymmetricRNN
    Preset(
        "psmnist",
        AntisymmetricRnnConfig(128, gated=True),
        9_930,
        adagrad(0.1, batch_size=128, epochs=46),
        name="psmnist-gated",
    ),
]
ROW = row(AntisymmetricRnn, AntisymmetricRnnConfig(5, gated=True), PRESETS)
