"""UnICORNN: layers of independent oscillators."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, Layers, NonNegative, Range, Width
from roann.lab.models.recurrence import ConfiguredSystem, Source, Transition, row, scan


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


UNICORNN = row(Unicornn, UnicornnConfig(3, 2, 0.2, 2.0))
