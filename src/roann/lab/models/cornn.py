"""coRNN: coupled oscillators."""

from __future__ import annotations

import torch
from torch import Tensor

from roann.lab.limits import HiddenSettings, NonNegative, Width
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


class CoRnnConfig(HiddenSettings):
    """Settings of coRNN."""

    hidden_size: Width = 256  # number of oscillators, N; the state has 2N numbers.
    dt: NonNegative = 0.076  # Δt, the time step.
    gamma: NonNegative = 0.4  # γ, the squared frequency of each oscillator.
    epsilon: NonNegative = 8.0  # ε, the damping of each oscillator.


class CoRnn(DrivenSystem[CoRnnConfig]):
    r"""coRNN, `Rusch & Mishra 2021 <https://arxiv.org/abs/2010.00951>`_.

        z' = z + Δt [tanh(W_y y + W_z z + V x + b) − γ y − ε z],    y' = y + Δt z'

    with the damping explicit, as in the published code. State (y, z), output y. With
    K = (1 − Δtε)I + ΔtD W_z, det J = det K; without weights each oscillator is the linear map
    [[1 − Δt²γ, Δt(1 − Δtε)], [−Δtγ, 1 − Δtε]].

    Count: N(I + 2N + 1), and 10N + 10 for a readout: 134,154 at N = 256, the table's 134k.

    Example:
        >>> system = CoRnn(1, CoRnnConfig(8), dtype=torch.float64)
        >>> _ = [nn.init.zeros_(p) for p in system.parameters()]
        >>> x, u = torch.randn(16).double(), torch.zeros(1).double()
        >>> J = torch.func.jacrev(system.step)(x, u)
        >>> bool((torch.linalg.det(J) - (1 - 0.076 * 8) ** 8).abs() < 1e-15)
        True
    """

    def build(self, new: Source) -> None:
        N, I = self.config.hidden_size, self.input_size
        self.state_size, self.output_size = 2 * N, N
        bound = (I + 2 * N) ** -0.5
        self.W = new.uniform(bound, N, 2 * N)  # [W_y, W_z]
        self.V = new.uniform(bound, N, I)
        self.b = new.uniform(bound, N)

    def transition(self) -> Transition:
        c, W_t = self.config, self.W.mT

        def advance(x: Tensor, d: Tensor) -> Tensor:
            y, z = x.chunk(2, -1)
            force = torch.add(torch.tanh(x @ W_t + d), y, alpha=-c.gamma)
            z = torch.add((1 - c.dt * c.epsilon) * z, force, alpha=c.dt)
            return torch.cat([torch.add(y, z, alpha=c.dt), z], -1)

        return advance


CORNN = row(CoRnn, CoRnnConfig(4))
