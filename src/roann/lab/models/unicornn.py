"""UnICORNN: layers of undamped oscillators, each on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, Layers, NonNegative, Range, Width
from roann.lab.models.base import Preset, adam
from roann.lab.models.recurrence import ConfiguredSystem, Factory, Transition, parameter, row, scan


@dataclass(frozen=True)
class UnicornnConfig(HiddenSettings):
    """Settings of UnICORNN.

    Attributes:
        hidden_size: number of oscillators N in each layer.
        layers: number of layers, L.
        dt: Δt, the largest time step.
        alpha: α, the stiffness of each oscillator.
        dropout: dropout rate between layers; one mask for all steps.
    """

    hidden_size: Width = 256
    layers: Layers = 3
    dt: NonNegative = 0.19
    alpha: NonNegative = 30.65
    dropout: Annotated[float, Range(0, 0.99)] = 0.0


class Unicornn(ConfiguredSystem[UnicornnConfig]):
    r"""UnICORNN, `Rusch & Mishra 2021 <https://arxiv.org/abs/2103.05487>`_.

        s = Δt σ(c),    z' = z − s ⊙ [tanh(w ⊙ y + V x + b) + α y],    y' = y + s ⊙ z'

    in each of L layers; w and c are vectors, one number per oscillator, and the next layer's x is
    y'. State: (y, z) of all layers, the top one first; output y of the top layer. The map of a
    layer has determinant 1 and inverts exactly: y = y' − s z', z = z' + s […].

    Count: N·I + N + (L−1)(N² + N) + 2NL, and 10N + 10 for a readout: 136,202 at L = 3, N = 256.

    Start: w ~ U(0, 1), c ~ U(±0.1), V Kaiming uniform with a = 8, b = 0.

    Example:
        >>> system = Unicornn(1, UnicornnConfig(3, 2, 0.2, 2.0), dtype=torch.float64)
        >>> J = torch.func.jacrev(system.step)(torch.randn(12).double(), torch.ones(1).double())
        >>> bool((torch.linalg.det(J) - 1).abs() < 1e-12)
        True
    """

    def _build(self, **factory: Unpack[Factory]) -> None:
        N, L = self.config.hidden_size, self.config.layers
        self.state_size, self.output_size = 2 * N * L, N
        sizes = [self.input_size] + [N] * (L - 1)
        self.V = nn.ParameterList(parameter(N, n, **factory) for n in sizes)
        self.b = parameter(L, N, **factory)
        self.w = parameter(L, N, **factory)
        self.c = parameter(L, N, **factory)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for V in self.V:
            nn.init.kaiming_uniform_(V, a=8, generator=generator)
        nn.init.zeros_(self.b)
        nn.init.uniform_(self.w, 0, 1, generator=generator)
        nn.init.uniform_(self.c, -0.1, 0.1, generator=generator)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x, N, y, after = self.start(u, state), self.output_size, u, []
        for level, before in enumerate(self._levels(x)):
            if level and self.training and self.config.dropout:
                y = y * F.dropout(torch.ones_like(y[0]), self.config.dropout)
            states = scan(self._layer(level), y @ self.V[level].mT + self.b[level], before)
            y = states[..., :N]
            after.append(states[-1])
        return y, torch.cat(after[::-1], -1)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step of all layers, without dropout."""
        y, after = u, []
        for level, before in enumerate(self._levels(x)):
            after.append(self._layer(level)(before, y @ self.V[level].mT + self.b[level]))
            y = after[-1][..., : self.output_size]
        return torch.cat(after[::-1], -1)

    def _levels(self, x: Tensor) -> tuple[Tensor, ...]:
        """(y, z) of the layers, the lowest first."""
        return x.chunk(self.config.layers, -1)[::-1]

    def _layer(self, level: int) -> Transition:
        w, alpha = self.w[level], self.config.alpha
        s = self.config.dt * torch.sigmoid(self.c[level])

        def advance(x: Tensor, d: Tensor) -> Tensor:
            y, z = x.chunk(2, -1)
            force = torch.add(torch.tanh(torch.addcmul(d, w, y)), y, alpha=alpha)
            z = torch.addcmul(z, s, force, value=-1)
            return torch.cat([torch.addcmul(y, s, z), z], -1)

        return advance


PRESETS = [
    # github.com/tk-rusch/unicornn: psMNIST
    Preset("psmnist", UnicornnConfig(), 136_202, adam(0.00251, batch_size=32)),
]
ROW = row(Unicornn, UnicornnConfig(3, 2, 0.2, 2.0), PRESETS)
