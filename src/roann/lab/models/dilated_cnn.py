"""Dilated causal CNN: the convolutional row of the Dilated RNN's table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Unpack

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import Length, OneOf, Settings, Width, fail
from roann.lab.models.base import Preset
from roann.lab.models.recurrence import (
    ConfiguredSystem,
    Factory,
    first_state,
    parameter,
    row,
    uniform_,
)


@dataclass(frozen=True)
class DilatedCnnConfig(Settings):
    """Settings of a dilated causal CNN.

    Attributes:
        hidden_size: number of hidden units N in each layer.
        dilations: how many steps s each layer looks back; the output sees 1 + Σ s inputs.
        nonlinearity: activation function φ.
    """

    hidden_size: Width = 50
    dilations: tuple[Length, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    nonlinearity: Annotated[str, OneOf(("relu", "tanh"))] = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dilations:
            fail("dilations", "at least one layer", self.dilations)


class DilatedCnn(ConfiguredSystem[DilatedCnnConfig]):
    r"""Dilated causal CNN, as a row of `Chang et al. 2017 <https://arxiv.org/abs/1710.02224>`_.

        y_t^l = φ(K_now y_t^{l−1} + K_past y_{t−s_l}^{l−1} + b),    y⁰ = x,  zeros before the start

    The output is y^L; it sees the last 1 + Σ s inputs, 1024 by default. As a system over time the
    state is the output followed by what the layers remember: the last s_l inputs of each, oldest
    first. Its Jacobian is nilpotent: nothing survives Σ s steps.

    `last` needs, of every layer, only the steps the last output depends on: with s = 1, 2, 4, …
    about 2^L of them in all instead of L·T.

    Count: 2N·I + N + (L−1)(2N² + N), and 10N + 10 for a readout: 46,110 at N = 50, L = 10, the
    table's 46k. That number fixes kernels of two taps with bias, no gate and no 1×1 maps; φ is
    not settled by any source.

    Start: as torch.nn.Conv1d, U(±1/√(2·inputs)).

    Example:
        >>> system = DilatedCnn(1, DilatedCnnConfig(3, (1, 2, 4)))
        >>> x = system.initial_state(1)
        >>> J = torch.func.jacrev(lambda x: system.step(x, torch.ones(1, 1)))(x)
        >>> J = J.reshape(system.state_size, system.state_size)
        >>> bool((torch.linalg.matrix_power(J, 9) == 0).all())
        True
    """

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.output_size = N = self.config.hidden_size
        self.dilations = self.config.dilations
        self.sizes = [self.input_size] + [N] * (len(self.dilations) - 1)
        self.phi = ACTIVATIONS[self.config.nonlinearity].value
        self.state_size = N + sum(s * n for s, n in zip(self.dilations, self.sizes, strict=True))
        # [K_now, K_past] of each layer
        self.K = nn.ParameterList(parameter(N, 2 * n, **factory) for n in self.sizes)
        self.b = nn.ParameterList(parameter(N, **factory) for _ in self.sizes)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        for K, b in zip(self.K, self.b, strict=True):
            uniform_(K.shape[1] ** -0.5, generator, K, b)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """From u (T, B, I) and x[0] (B, S) to the outputs (T, B, N) and x[T] (B, S)."""
        y, after = u, []
        for level, memory in self._memories(first_state(self, u, state)):
            s = self.dilations[level]
            line = torch.cat([memory.movedim(-2, 0), y])
            after.append(line[-s:].movedim(0, -2).flatten(-2))
            y = self._layer(level, y, line[: len(u)])
        return y, torch.cat([y[-1], *after], -1)

    def last(self, u: Tensor, state: Tensor | None = None) -> Tensor:
        """The last output, from only those steps of each layer that it depends on."""
        if state is not None:
            return self.forward(u, state)[1][..., : self.output_size]
        first_state(self, u, state)
        wanted = [{len(u) - 1}]  # steps of y^L, then of what each layer reads, downwards
        for s in reversed(self.dilations):
            wanted.append(wanted[-1] | {t - s for t in wanted[-1] if t >= s})
        times = [sorted(steps) for steps in reversed(wanted)]
        y = u[times[0]]
        for level, s in enumerate(self.dilations):
            place = {t: k + 1 for k, t in enumerate(times[level])}  # 0: before the start
            line = torch.cat([torch.zeros_like(y[:1]), y])
            now = [place[t] for t in times[level + 1]]
            past = [place.get(t - s, 0) for t in times[level + 1]]
            y = self._layer(level, line[now], line[past])
        return y[-1]

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step: every layer drops the oldest of its inputs and appends the newest."""
        y, after = u, []
        for level, memory in self._memories(x):
            after.append(torch.cat([memory[..., 1:, :], y.unsqueeze(-2)], -2).flatten(-2))
            y = self._layer(level, y, memory[..., 0, :])
        return torch.cat([y, *after], -1)

    def _layer(self, level: int, now: Tensor, past: Tensor) -> Tensor:
        return self.phi(torch.cat([now, past], -1) @ self.K[level].mT + self.b[level])

    def _memories(self, x: Tensor) -> Iterator[tuple[int, Tensor]]:
        """Layer number and its last s inputs (…, s, n), oldest first."""
        at = self.output_size
        for level, (s, n) in enumerate(zip(self.dilations, self.sizes, strict=True)):
            yield level, x[..., at : at + s * n].reshape(*x.shape[:-1], s, n)
            at += s * n


# The Table's row. No code and no optimiser were published.
PRESETS = {"psmnist": Preset("psmnist", DilatedCnnConfig(), 46_110)}
ROW = row(DilatedCnn, DilatedCnnConfig(3, (1, 2)), PRESETS)
