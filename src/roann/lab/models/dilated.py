"""Dilated RNN and dilated causal CNN: layers that look back a fixed number of steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any, cast

import torch
from torch import Tensor, nn

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import HiddenSettings, Length, OneOf, Width, fail
from roann.lab.models.base import SequenceSystem
from roann.lab.models.gru import Gru, GruConfig
from roann.lab.models.lstm import Lstm, LstmConfig
from roann.lab.models.recurrence import ConfiguredSystem, Source, row
from roann.lab.models.torch_layers import TorchSystem
from roann.lab.models.vanilla_rnn import VanillaRnn, VanillaRnnConfig

CELLS: dict[str, tuple[type[TorchSystem[Any]], Callable[[int], Any]]] = {
    "rnn": (VanillaRnn, partial(VanillaRnnConfig, nonlinearity="tanh")),
    "gru": (Gru, GruConfig),
    "lstm": (Lstm, LstmConfig),
}


class DilatedRnnConfig(HiddenSettings):
    """Settings of a Dilated RNN."""

    hidden_size: Width = 20  # number of hidden units N in each layer.
    # how many steps s each layer looks back.
    dilations: tuple[Length, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    # type of the recurrent cell: "rnn" (with tanh), "gru" or "lstm".
    cell: Annotated[str, OneOf(CELLS)] = "rnn"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.dilations or self.dilations[0] > self.dilations[-1]:
            fail("dilations", "the last one to be at least the first", self.dilations)


class DilatedRnn(ConfiguredSystem[DilatedRnnConfig]):
    r"""Dilated RNN, `Chang et al. 2017 <https://arxiv.org/abs/1710.02224>`_.

        h_t^l = cell(h_t^{l−1}, h_{t−s_l}^l),    h⁰ = x

    The output is h_t^L if s₁ = 1, else the last s₁ of them, one after the other, oldest first. A
    layer of dilation s is s independent recurrences over every s-th step, so it runs as one plain
    RNN over T/s steps on a batch s times as large. The path from t to t − Δ in layer l has Δ/s_l
    factors D W_h.

    The state holds, for each layer, the cell states of its last s_l steps, oldest first. A step
    shifts them; T need not be a multiple of s_l, nor larger.

    Count, one bias per gate, g = 1, 3, 4 for rnn, gru, lstm: g[N(I + N) + N + (L−1)(2N² + N)], and
    10N + 10 for a readout: 7,210 / 21,210 / 28,210 at N = 20, 43,510 / 129,510 / 172,510 at N = 50,
    for L = 9. The cells are torch's; their second bias is kept at zero and not trained.

    Example:
        >>> system = DilatedRnn(1, DilatedRnnConfig(3, (2, 4)))
        >>> system.state_size, system.output_size
        (18, 6)
    """

    head_init = "normal"

    def build(self, new: Source) -> None:
        N, self.dilations = self.config.hidden_size, self.config.dilations
        sizes = [self.input_size] + [N] * (len(self.dilations) - 1)
        layers = [_layer(self.config.cell, n, N, new.generator) for n in sizes]
        self.layers = nn.ModuleList(layers).to(**new.factory)
        self.output_size = N * self.dilations[0]
        self.lines = [
            (s, layer.state_size) for s, layer in zip(self.dilations, layers, strict=True)
        ]
        self.state_size = sum(s * size for s, size in self.lines)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        y, after, window = u, [], u
        for layer, before in self._layers(self.start(u, state)):
            y, memory = _run(layer, len(before), y, before)
            after.append(_flat(memory))
            window = torch.cat([layer.read(before), y])
        # Every output is the last s₁ steps of the top layer; the earliest reach into x[0].
        s, T = self.dilations[0], len(u)
        start = len(window) - T
        steps = [window[start - j : start - j + T] for j in reversed(range(s))]
        return torch.cat(steps, -1), torch.cat(after, -1)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step: every layer drops its oldest state and appends a new one."""
        y, after = u, []
        for layer, memory in self._layers(x):
            new = layer.step(memory[0], y)
            y = layer.read(new)
            after.append(_flat(torch.cat([memory[1:], new.unsqueeze(0)])))
        return torch.cat(after, -1)

    def read(self, x: Tensor) -> Tensor:
        """The last s₁ outputs of the top layer, oldest first."""
        *_, (layer, memory) = self._layers(x)
        return _flat(layer.read(memory[-self.dilations[0] :]))

    def _layers(self, x: Tensor) -> Iterator[tuple[SequenceSystem, Tensor]]:
        """Every layer and its last s states (s, …, S_l), oldest first."""
        layers = cast("Iterable[SequenceSystem]", self.layers)
        return zip(layers, _lines(x, self.lines), strict=True)


def _lines(x: Tensor, shapes: list[tuple[int, int]]) -> list[Tensor]:
    """The parts (s, …, n) of x (…, Σ s·n), one for every (s, n): the last s steps, oldest first."""
    parts = torch.split(x, [s * n for s, n in shapes], -1)
    lead = x.shape[:-1]
    pairs = zip(parts, shapes, strict=True)
    return [part.reshape(*lead, *shape).movedim(-2, 0) for part, shape in pairs]


def _flat(line: Tensor) -> Tensor:
    """A part (s, …, n) of `_lines` as it stands in the state, (…, s·n)."""
    return line.movedim(0, -2).flatten(-2)


def _run(layer: SequenceSystem, s: int, u: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (T, B, N) and the last s states (s, B, S), of a layer of dilation s.

    Chain j (of s) does the steps j, j + s, …: ⌊T/s⌋ of them, the first T mod s chains one more.
    """
    T, B, _ = u.shape
    rounds, rest = divmod(T, s)
    chains, outputs = memory, []
    if rounds:
        folded = u[: rounds * s].reshape(rounds, s * B, -1)
        y, last = layer(folded, chains.reshape(s * B, -1))
        outputs.append(y.reshape(rounds * s, B, -1))
        chains = last.reshape(s, B, -1)
    if rest:
        y, last = layer(u[-rest:].reshape(1, rest * B, -1), chains[:rest].reshape(rest * B, -1))
        outputs.append(y.reshape(rest, B, -1))
        chains = torch.cat([chains[rest:], last.reshape(rest, B, -1)])
    return torch.cat(outputs), chains


def _layer(cell: str, input_size: int, N: int, generator: torch.Generator | None) -> SequenceSystem:
    system, config = CELLS[cell]
    layer = system(input_size, config(N), generator)
    own = dict(layer.core.named_parameters())
    bound = math.sqrt(6 / (input_size + N + len(own["weight_hh_l0"])))
    for name in ("weight_ih_l0", "weight_hh_l0"):
        nn.init.uniform_(own[name], -bound, bound, generator=generator)
    nn.init.zeros_(own["bias_ih_l0"])
    nn.init.zeros_(own["bias_hh_l0"]).requires_grad_(False)
    return layer


RNN = row(DilatedRnn, DilatedRnnConfig(3, (2, 1, 3), "lstm"))


class DilatedCnnConfig(HiddenSettings):
    """Settings of a dilated causal CNN."""

    hidden_size: Width = 50  # number of hidden units N in each layer.
    # how many steps s each layer looks back; the output sees 1 + Σ s inputs.
    dilations: tuple[Length, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    nonlinearity: Annotated[str, OneOf(("relu", "tanh"))] = "relu"  # activation function φ.

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
    table's 46k. That fixes kernels of two taps with bias, no gate, no 1×1 maps; φ is unknown.

    Example:
        >>> system = DilatedCnn(1, DilatedCnnConfig(3, (1, 2, 4)))
        >>> x = system.initial_state(1)
        >>> J = torch.func.jacrev(lambda x: system.step(x, torch.ones(1, 1)))(x)
        >>> J = J.reshape(system.state_size, system.state_size)
        >>> bool((torch.linalg.matrix_power(J, 9) == 0).all())
        True
    """

    def build(self, new: Source) -> None:
        self.output_size = N = self.config.hidden_size
        self.dilations = self.config.dilations
        self.phi = ACTIVATIONS[self.config.nonlinearity].value
        sizes = [self.input_size] + [N] * (len(self.dilations) - 1)
        self.lines = list(zip(self.dilations, sizes, strict=True))
        self.state_size = N + sum(s * n for s, n in self.lines)
        maps = [new.linear(2 * n, N) for n in sizes]  # [K_now, K_past] and b of each layer
        self.K, self.b = (nn.ParameterList(part) for part in zip(*maps, strict=True))

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(u, self.start(u, state))

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step: every layer drops the oldest of its inputs and appends the newest."""
        return self._run(u.unsqueeze(0), x)[1]

    def last(self, u: Tensor, state: Tensor | None = None) -> Tensor:
        """The last output, from only those steps of each layer that it depends on."""
        if state is not None:
            return self.forward(u, state)[1][..., : self.output_size]
        self.start(u, state)
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

    def _run(self, y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        T, after = len(y), []
        for level, line in enumerate(_lines(x[..., self.output_size :], self.lines)):
            line = torch.cat([line, y])
            after.append(_flat(line[T:]))
            y = self._layer(level, y, line[:T])
        return y, torch.cat([y[-1], *after], -1)

    def _layer(self, level: int, now: Tensor, past: Tensor) -> Tensor:
        return self.phi(torch.cat([now, past], -1) @ self.K[level].mT + self.b[level])


CNN = row(DilatedCnn, DilatedCnnConfig(3, (1, 2)))
