"""Oscillators and their kin, coupled, gated or alone: coRNN, LEM, UnICORNN."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, Layers, NonNegative, Range, Width
from roann.lab.models.base import Preset, adam
from roann.lab.models.recurrence import (
    ConfiguredSystem,
    DrivenSystem,
    Source,
    Transition,
    row,
    scan,
)


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


CORNN_PRESETS = [
    # github.com/tk-rusch/coRNN: psMNIST (lr ÷ 10 after epoch 100), adding
    Preset("psmnist", CoRnnConfig(), 134_154, adam(0.0054, batch_size=120, epochs=120)),
    Preset("adding", CoRnnConfig(128, 0.06, 66.0, 15.0), None, adam(0.02, batch_size=50)),
]
CORNN = row(CoRnn, CoRnnConfig(4), CORNN_PRESETS)


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


LEM_PRESETS = [
    # github.com/tk-rusch/LEM: src/psMNIST, src/adding
    Preset("psmnist", LemConfig(), 68_362, adam(0.0073, clip_norm=1.1, batch_size=128, epochs=120)),
    Preset("adding", LemConfig(128, 0.0242), None, adam(0.0026, batch_size=50)),
]
LEM = row(Lem, LemConfig(4), LEM_PRESETS)


class UnicornnConfig(HiddenSettings):
    """Settings of UnICORNN."""

    hidden_size: Width = 256  # number of oscillators N in each layer.
    layers: Layers = 3  # number of layers, L.
    dt: NonNegative = 0.19  # Δt, the largest time step.
    alpha: NonNegative = 30.65  # α, the stiffness of each oscillator.
    # dropout rate between layers; one mask for all steps.
    dropout: Annotated[float, Range(0, 0.99)] = 0.0


class Unicornn(ConfiguredSystem[UnicornnConfig]):
    r"""UnICORNN, `Rusch & Mishra 2021 <https://arxiv.org/abs/2103.05487>`_.

        s = Δt σ(c),    z' = z − s ⊙ [tanh(w ⊙ y + V x + b) + α y],    y' = y + s ⊙ z'

    in each of L layers; w and c are vectors, one number per oscillator, and the next layer's x is
    y'. State: (y, z) of all layers, the top one first; output y of the top layer. The map of a
    layer has determinant 1 and inverts exactly: y = y' − s z', z = z' + s […].

    Count: N·I + N + (L−1)(N² + N) + 2NL, and 10N + 10 for a readout: 136,202 at L = 3, N = 256.

    Example:
        >>> system = Unicornn(1, UnicornnConfig(3, 2, 0.2, 2.0), dtype=torch.float64)
        >>> J = torch.func.jacrev(system.step)(torch.randn(12).double(), torch.ones(1).double())
        >>> bool((torch.linalg.det(J) - 1).abs() < 1e-12)
        True
    """

    def build(self, new: Source) -> None:
        N, L = self.config.hidden_size, self.config.layers
        self.state_size, self.output_size = 2 * N * L, N
        start = partial(nn.init.kaiming_uniform_, a=8)
        sizes = [self.input_size] + [N] * (L - 1)
        self.V = nn.ParameterList(new.drawn(start, N, n) for n in sizes)
        self.b = new.constant(0, L, N)
        self.w = new.drawn(nn.init.uniform_, L, N)
        self.c = new.uniform(0.1, L, N)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(u, self.start(u, state), self.config.dropout if self.training else 0.0)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step of all layers, without dropout."""
        return self._run(u.unsqueeze(0), x, 0.0)[1]

    def _run(self, y: Tensor, x: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
        """From y (T, …, I) and x[0] (…, S) to the outputs and x[T]; the lowest layer first."""
        after: list[Tensor] = []
        for level, before in enumerate(reversed(x.chunk(self.config.layers, -1))):
            if level and dropout:
                y = y * F.dropout(torch.ones_like(y[0]), dropout)
            states = scan(self._layer(level), y @ self.V[level].mT + self.b[level], before)
            y = states[..., : self.output_size]
            after.insert(0, states[-1])
        return y, torch.cat(after, -1)

    def _layer(self, level: int) -> Transition:
        w, alpha = self.w[level], self.config.alpha
        s = self.config.dt * torch.sigmoid(self.c[level])

        def advance(x: Tensor, d: Tensor) -> Tensor:
            y, z = x.chunk(2, -1)
            force = torch.add(torch.tanh(torch.addcmul(d, w, y)), y, alpha=alpha)
            z = torch.addcmul(z, s, force, value=-1)
            return torch.cat([torch.addcmul(y, s, z), z], -1)

        return advance


UNICORNN_PRESETS = [
    # github.com/tk-rusch/unicornn: psMNIST
    Preset("psmnist", UnicornnConfig(), 136_202, adam(0.00251, batch_size=32)),
]
UNICORNN = row(Unicornn, UnicornnConfig(3, 2, 0.2, 2.0), UNICORNN_PRESETS)
