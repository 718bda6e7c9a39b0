"""Long expressive memory."""

from __future__ import annotations

import torch
from torch import Tensor

from roann.lab.limits import HiddenSettings, NonNegative, Width
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


class LemConfig(HiddenSettings):
    """Settings of long expressive memory."""

    hidden_size: Width = 128  # number of units N in each of the two states, y and z.
    dt: NonNegative = 0.31  # Δt, the largest time step.


class Lem(DrivenSystem[LemConfig]):
    r"""Long expressive memory, `Rusch et al. 2022 <https://arxiv.org/abs/2110.04744>`_.

        Δ̄ = Δt σ(W₁ y + V₁ x + b₁),    Δ = Δt σ(W₂ y + V₂ x + b₂)
        z' = (1 − Δ) ⊙ z + Δ ⊙ tanh(W_y y + V_y x + b_y)
        y' = (1 − Δ̄) ⊙ y + Δ̄ ⊙ tanh(W_z z' + V_z x + b_z)         with the new z

    State (y, z), output y. V holds the rows of Δ̄, Δ, V_z, V_y in this order, W those of Δ̄, Δ, W_y,
    as published; each product has its bias. A port that feeds the old z to y is another system.

    Count: 4N² + 4N·I + 8N, and 10N + 10 for a readout: 68,362 at N = 128, as a torch LSTM.

    Example:
        >>> system = Lem(1, LemConfig(4, dt=0.0))
        >>> x = torch.randn(8)
        >>> bool((system.step(x, torch.randn(1)) - x).abs().max() == 0)
        True
    """

    head_init = "kaiming_normal"

    def build(self, new: Source) -> None:
        N = self.config.hidden_size
        self.state_size, self.output_size, bound = 2 * N, N, N**-0.5
        self.V = new.uniform(bound, 4 * N, self.input_size)
        self.b_V = new.uniform(bound, 4 * N)
        self.W = new.uniform(bound, 3 * N, N)
        self.b_W = new.uniform(bound, 3 * N)
        self.W_z = new.uniform(bound, N, N)
        self.b_z = new.uniform(bound, N)

    def drive(self, u: Tensor) -> Tensor:
        """V u and all biases, in the order Δ̄, Δ, z-candidate, y-candidate."""
        N = self.output_size
        steps, for_y, for_z = torch.split(u @ self.V.mT + self.b_V, [2 * N, N, N], -1)
        b_steps, b_y = torch.split(self.b_W, [2 * N, N])
        return torch.cat([steps + b_steps, for_z + b_y, for_y + self.b_z], -1)

    def transition(self) -> Transition:
        N, dt, W, W_z = self.output_size, self.config.dt, self.W.mT, self.W_z.mT

        def advance(x: Tensor, d: Tensor) -> Tensor:
            y, z = x.chunk(2, -1)
            pre = y @ W + d[..., : 3 * N]
            step_y, step_z = (dt * torch.sigmoid(pre[..., : 2 * N])).chunk(2, -1)
            z = torch.lerp(z, torch.tanh(pre[..., 2 * N :]), step_z)
            y = torch.lerp(y, torch.tanh(z @ W_z + d[..., 3 * N :]), step_y)
            return torch.cat([y, z], -1)

        return advance


LEM = row(Lem, LemConfig(4))
