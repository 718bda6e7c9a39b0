"""The paper's baselines from torch itself: vanilla RNN, LSTM and GRU.

Paper's initialisation: every hidden-to-hidden matrix (one per gate) orthogonal, everything else
uniform in ±1/√N. Two biases each, as torch has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from roann.lab import limits
from roann.lab.models.base import Demand, Preset, Row, SequenceSystem, Streams


@dataclass(frozen=True)
class LstmConfig:
    """Settings of an LSTM.

    Attributes:
        hidden_size: N.
    """

    hidden_size: int = 128

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, 1, limits.WIDTH)


@dataclass(frozen=True)
class GruConfig:
    """Settings of a GRU.

    Attributes:
        hidden_size: N.
    """

    hidden_size: int = 128

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, 1, limits.WIDTH)


@dataclass(frozen=True)
class VanillaRnnConfig:
    """Settings of a vanilla RNN.

    Attributes:
        hidden_size: N.
        nonlinearity: φ, "relu" as in the paper, or "tanh".
    """

    hidden_size: int = 128
    nonlinearity: Literal["relu", "tanh"] = "relu"

    def __post_init__(self) -> None:
        limits.whole("hidden_size", self.hidden_size, 1, limits.WIDTH)
        limits.choice("nonlinearity", self.nonlinearity, ("relu", "tanh"))


class VanillaRnn(SequenceSystem):
    """h′ = φ(W h + W_i u + b_i + b_h).  `core` is a `torch.nn.RNN`.

    Jacobian of a step: diag(φ′) W.
    """

    def __init__(
        self, input_size: int, config: VanillaRnnConfig, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.state_size = self.output_size = config.hidden_size
        self.nonlinearity = config.nonlinearity
        self.core = nn.RNN(
            input_size, config.hidden_size, nonlinearity=config.nonlinearity, device="meta"
        ).to_empty(device="cpu")
        _draw(self.core, generator)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs (T, B, N) and the last state (B, N)."""
        output, h = self.core(u, None if state is None else state.unsqueeze(0))
        return output, h[0]

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step."""
        y = _drive(self.core, "ih", u) + _drive(self.core, "hh", x)
        return torch.relu(y) if self.nonlinearity == "relu" else torch.tanh(y)


class Lstm(SequenceSystem):
    """i, f, o = σ(·), g = tanh(·); c′ = f ⊙ c + i ⊙ g; h′ = o ⊙ tanh c′.  The state is (h, c).

    `core` is a `torch.nn.LSTM`; its gates stand in the order i, f, g, o.
    """

    def __init__(self, input_size: int, config: LstmConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.input_size = input_size
        self.output_size = config.hidden_size
        self.state_size = 2 * config.hidden_size
        self.core = nn.LSTM(input_size, config.hidden_size, device="meta").to_empty(device="cpu")
        _draw(self.core, generator)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs h (T, B, N) and the last state (B, 2N)."""
        hx = None
        if state is not None:
            h, c = state.chunk(2, dim=-1)
            hx = (h.unsqueeze(0).contiguous(), c.unsqueeze(0).contiguous())
        output, (h, c) = self.core(u, hx)
        return output, torch.cat([h[0], c[0]], dim=-1)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step of (h, c)."""
        h, c = x.chunk(2, dim=-1)
        y = _drive(self.core, "ih", u) + _drive(self.core, "hh", h)
        i, f, g, o = y.chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.cat([torch.sigmoid(o) * torch.tanh(c), c], dim=-1)


class Gru(SequenceSystem):
    """r, z = σ(·); n = tanh(W_in u + b_in + r ⊙ (W_hn h + b_hn)); h′ = (1 − z) ⊙ n + z ⊙ h.

    `core` is a `torch.nn.GRU`: the gate r acts after the matrix, not before it as in Cho et al.
    """

    def __init__(self, input_size: int, config: GruConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.input_size = input_size
        self.state_size = self.output_size = config.hidden_size
        self.core = nn.GRU(input_size, config.hidden_size, device="meta").to_empty(device="cpu")
        _draw(self.core, generator)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs (T, B, N) and the last state (B, N)."""
        output, h = self.core(u, None if state is None else state.unsqueeze(0))
        return output, h[0]

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step."""
        r_u, z_u, n_u = _drive(self.core, "ih", u).chunk(3, dim=-1)
        r_h, z_h, n_h = _drive(self.core, "hh", x).chunk(3, dim=-1)
        z = torch.sigmoid(z_u + z_h)
        n = torch.tanh(n_u + torch.sigmoid(r_u + r_h) * n_h)
        return (1 - z) * n + z * x


def _drive(core: nn.RNNBase, side: str, x: Tensor) -> Tensor:
    """The affine part of the input ("ih") or of the state ("hh"), all gates at once."""
    return linear(x, getattr(core, f"weight_{side}_l0"), getattr(core, f"bias_{side}_l0"))


def _draw(core: nn.RNNBase, generator: torch.Generator) -> None:
    N = core.hidden_size
    bound = 1 / math.sqrt(N)
    for name, parameter in core.named_parameters():
        if name == "weight_hh_l0":
            with torch.no_grad():
                for gate in parameter.chunk(len(parameter) // N):
                    nn.init.orthogonal_(gate, generator=generator)
        else:
            nn.init.uniform_(parameter, -bound, bound, generator=generator)


def vanilla_rnn(config: VanillaRnnConfig, demand: Demand, streams: Streams) -> VanillaRnn:
    """A vanilla RNN for a task."""
    return VanillaRnn(demand.input_size, config, streams("weights"))


def lstm(config: LstmConfig, demand: Demand, streams: Streams) -> Lstm:
    """An LSTM for a task."""
    return Lstm(demand.input_size, config, streams("weights"))


def gru(config: GruConfig, demand: Demand, streams: Streams) -> Gru:
    """A GRU for a task."""
    return Gru(demand.input_size, config, streams("weights"))


_VANILLA: dict[str, str | float] = {"optimizer": "adam", "lr": 1e-4}
_LSTM: dict[str, str | float] = {"optimizer": "adam", "lr": 5e-3}

VANILLA_RNN = Row(
    "sequence",
    VanillaRnnConfig,
    vanilla_rnn,
    VanillaRnnConfig(5),
    {
        "copying": Preset(
            "copying", VanillaRnnConfig(190), settings=_VANILLA | {"batch_size": 128}
        ),
        "adding": Preset("adding", VanillaRnnConfig(128), settings=_VANILLA | {"batch_size": 50}),
        # The Table's ≈ 68k counts one bias; torch has 256 numbers more.
        "psmnist": Preset("psmnist", VanillaRnnConfig(256), 68_874),
    },
)
LSTM = Row(
    "sequence",
    LstmConfig,
    lstm,
    LstmConfig(4),
    {
        "copying": Preset("copying", LstmConfig(190), settings=_LSTM | {"batch_size": 128}),
        "adding": Preset("adding", LstmConfig(128), settings=_LSTM | {"batch_size": 50}),
        "psmnist": Preset("psmnist", LstmConfig(256), 267_786),
    },
)
GRU = Row(
    "sequence",
    GruConfig,
    gru,
    GruConfig(4),
    {"psmnist": Preset("psmnist", GruConfig(256), 201_482)},
)
