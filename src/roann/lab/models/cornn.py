"""coRNN: coupled oscillators, damped and driven."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.lab import limits
from roann.lab.models.base import Preset, Row
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, builder, parameter


@dataclass(frozen=True)
class CoRnnConfig:
    """Settings of coRNN.

    Attributes:
        hidden_size: N oscillators, a state of 2N numbers.
        dt: Δt.
        gamma: γ, the squared frequency.
        epsilon: ε, the damping.
    """

    hidden_size: int = 256
    dt: float = 0.076
    gamma: float = 0.4
    epsilon: float = 8.0

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, 1, limits.WIDTH)
        limits.real("dt", self.dt, 0, 1e6)
        limits.real("gamma", self.gamma, 0, 1e6)
        limits.real("epsilon", self.epsilon, 0, 1e6)


class CoRnn(DrivenSystem):
    r"""coRNN, `Rusch & Mishra 2021 <https://arxiv.org/abs/2010.00951>`_.

        z' = z + Δt [tanh(W_y y + W_z z + V x + b) − γ y − ε z],    y' = y + Δt z'

    with the damping explicit, as in the published code. State (y, z), output y. With
    K = (1 − Δtε)I + ΔtD W_z, det J = det K; without weights each oscillator is the linear map
    [[1 − Δt²γ, Δt(1 − Δtε)], [−Δtγ, 1 − Δtε]].

    Count: N(I + 2N + 1), and 10N + 10 for a readout: 134,154 at N = 256, the table's 134k.

    Start: all as torch.nn.Linear(I + 2N → N), U(±1/√(I + 2N)).

    Args:
        input_size: I.
        config: see `CoRnnConfig`.
        generator: the source of the first values.

    Example:
        >>> system = CoRnn(1, CoRnnConfig(8), dtype=torch.float64)
        >>> _ = [nn.init.zeros_(p) for p in system.parameters()]
        >>> x, u = torch.randn(16).double(), torch.zeros(1).double()
        >>> J = torch.func.jacrev(system.step)(x, u)
        >>> bool((torch.linalg.det(J) - (1 - 0.076 * 8) ** 8).abs() < 1e-15)
        True
    """

    def __init__(
        self,
        input_size: int,
        config: CoRnnConfig,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        N = config.hidden_size
        super().__init__(input_size, 2 * N, N)
        self.config = config
        self.W = parameter(N, 2 * N, **factory)  # [W_y, W_z]
        self.V = parameter(N, input_size, **factory)
        self.b = parameter(N, **factory)
        self.reset_parameters(generator)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values."""
        bound = (self.input_size + self.state_size) ** -0.5
        for p in (self.W, self.V, self.b):
            nn.init.uniform_(p, -bound, bound, generator=generator)

    def drive(self, u: Tensor) -> Tensor:
        """V u + b."""
        return u @ self.V.mT + self.b

    def transition(self) -> Transition:
        """(y, z), d ↦ the next (y, z)."""
        c, W_t = self.config, self.W.mT

        def advance(x: Tensor, d: Tensor) -> Tensor:
            y, z = x.chunk(2, -1)
            force = torch.add(torch.tanh(x @ W_t + d), y, alpha=-c.gamma)
            z = torch.add((1 - c.dt * c.epsilon) * z, force, alpha=c.dt)
            return torch.cat([torch.add(y, z, alpha=c.dt), z], -1)

        return advance


ROW = Row(
    "sequence",
    CoRnnConfig,
    builder(CoRnn),
    CoRnnConfig(4),
    {
        # github.com/tk-rusch/coRNN: psMNIST (lr ÷ 10 after epoch 100), adding
        "psmnist": Preset(
            "psmnist",
            CoRnnConfig(256, 0.076, 0.4, 8.0),
            134_154,
            {"optimizer": "adam", "lr": 0.0054, "batch_size": 120, "epochs": 120},
        ),
        "adding": Preset(
            "adding",
            CoRnnConfig(128, 0.06, 66.0, 15.0),
            settings={"optimizer": "adam", "lr": 0.02, "batch_size": 50},
        ),
    },
)
