"""UnICORNN: layers of undamped oscillators, each on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab import limits
from roann.lab.models.base import Preset, Row, SequenceSystem
from roann.lab.models.recurrence import (
    Factory,
    Transition,
    builder,
    first_state,
    parameter,
    scan,
)


@dataclass(frozen=True)
class UnicornnConfig:
    """Settings of UnICORNN.

    Attributes:
        hidden_size: N oscillators in each layer.
        layers: L.
        dt: Δt, the largest time step.
        alpha: α, the stiffness.
        dropout: the rate between layers; one mask for all steps.
    """

    hidden_size: int = 256
    layers: int = 3
    dt: float = 0.19
    alpha: float = 30.65
    dropout: float = 0.0

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, 1, limits.WIDTH)
        limits.whole("layers", self.layers, 1, 1000)
        limits.real("dt", self.dt, 0, 1e6)
        limits.real("alpha", self.alpha, 0, 1e6)
        limits.real("dropout", self.dropout, 0, 0.99)


class Unicornn(SequenceSystem):
    r"""UnICORNN, `Rusch & Mishra 2021 <https://arxiv.org/abs/2103.05487>`_.

        s = Δt σ(c),    z' = z − s ⊙ [tanh(w ⊙ y + V x + b) + α y],    y' = y + s ⊙ z'

    in each of L layers; w and c are vectors, one number per oscillator, and the next layer's x is
    y'. State: (y, z) of all layers, the top one first; output y of the top layer. The map of a
    layer has determinant 1 and inverts exactly: y = y' − s z', z = z' + s […].

    Count: N·I + N + (L−1)(N² + N) + 2NL, and 10N + 10 for a readout: 136,202 at L = 3, N = 256.

    Start: w ~ U(0, 1), c ~ U(±0.1), V Kaiming uniform with a = 8, b = 0.

    Args:
        input_size: I.
        config: see `UnicornnConfig`.
        generator: the source of the first values.

    Example:
        >>> system = Unicornn(1, UnicornnConfig(3, 2, 0.2, 2.0), dtype=torch.float64)
        >>> J = torch.func.jacrev(system.step)(torch.randn(12).double(), torch.ones(1).double())
        >>> bool((torch.linalg.det(J) - 1).abs() < 1e-12)
        True
    """

    def __init__(
        self,
        input_size: int,
        config: UnicornnConfig,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        N, L = config.hidden_size, config.layers
        self.config = config
        self.input_size, self.state_size, self.output_size = input_size, 2 * N * L, N
        sizes = [input_size] + [N] * (L - 1)
        self.V = nn.ParameterList(parameter(N, n, **factory) for n in sizes)
        self.b = parameter(L, N, **factory)
        self.w = parameter(L, N, **factory)
        self.c = parameter(L, N, **factory)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values."""
        for V in self.V:
            nn.init.kaiming_uniform_(V, a=8, generator=generator)
        nn.init.zeros_(self.b)
        nn.init.uniform_(self.w, 0, 1, generator=generator)
        nn.init.uniform_(self.c, -0.1, 0.1, generator=generator)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """From u (T, B, I) and x[0] (B, S) to the outputs (T, B, N) and x[T] (B, S)."""
        x, N, y, after = first_state(self, u, state), self.output_size, u, []
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
        w, s, alpha = (
            self.w[level],
            self.config.dt * torch.sigmoid(self.c[level]),
            self.config.alpha,
        )

        def advance(x: Tensor, d: Tensor) -> Tensor:
            y, z = x.chunk(2, -1)
            force = torch.add(torch.tanh(torch.addcmul(d, w, y)), y, alpha=alpha)
            z = torch.addcmul(z, s, force, value=-1)
            return torch.cat([torch.addcmul(y, s, z), z], -1)

        return advance


ROW = Row(
    "sequence",
    UnicornnConfig,
    builder(Unicornn),
    UnicornnConfig(3, 2, 0.2, 2.0),
    {
        # github.com/tk-rusch/unicornn: psMNIST
        "psmnist": Preset(
            "psmnist",
            UnicornnConfig(256, 3, 0.19, 30.65),
            136_202,
            {"optimizer": "adam", "lr": 0.00251, "batch_size": 32},
        ),
    },
)
