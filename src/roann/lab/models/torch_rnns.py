"""The paper's baselines from torch itself: vanilla RNN, LSTM and GRU.

Note [Two biases]: the cells are torch's, which adds a bias to W_i u and another to W h. For the
vanilla RNN and the LSTM only their sum matters. Both are trained here, as in the paper's own
vanilla RNN, so every count is N per gate above a count with one bias.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from roann.lab.limits import HiddenSettings, OneOf, Settings
from roann.lab.models.base import Preset, adam
from roann.lab.models.recurrence import ConfiguredSystem, Source, row, uniform_

C = TypeVar("C", bound=Settings)


class LstmConfig(HiddenSettings):
    """Settings of an LSTM."""


class GruConfig(HiddenSettings):
    """Settings of a GRU."""


class VanillaRnnConfig(HiddenSettings):
    """Settings of a vanilla RNN."""

    # activation function φ: "relu" (the paper's) or "tanh".
    nonlinearity: Annotated[str, OneOf(("relu", "tanh"))] = "relu"


class TorchSystem(ConfiguredSystem[C]):
    """Abstract: a system whose sequences run in a torch layer, `core`, of one level."""

    layer: ClassVar[type[Any]]  # of `core`; takes the settings by their names
    core: nn.RNNBase

    def build(self, new: Source) -> None:
        # On the meta device torch's own first values draw no random numbers.
        options = asdict(self.config) | {"device": "meta", "dtype": new.factory.get("dtype")}
        device = new.empty().device
        self.core = self.layer(self.input_size, **options).to_empty(device=device)
        self.state_size = self.output_size = N = self.core.hidden_size
        # The first values: every gate's W orthogonal, all else U(±1/√N).
        for name, parameter in self.core.named_parameters():
            if name == "weight_hh_l0":
                with torch.no_grad():
                    for gate in parameter.chunk(len(parameter) // N):
                        nn.init.orthogonal_(gate, generator=new.generator)
            else:
                uniform_(1 / math.sqrt(N), new.generator, parameter)

    def affine(self, side: Literal["ih", "hh"], x: Tensor) -> Tensor:
        """The affine map of the input ("ih") or of the state ("hh"), all gates at once."""
        core = self.core
        return linear(x, getattr(core, f"weight_{side}_l0"), getattr(core, f"bias_{side}_l0"))

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, h = self.core(u, self.start(u, state).unsqueeze(0))
        return output, h[0]


class VanillaRnn(TorchSystem[VanillaRnnConfig]):
    r"""Vanilla RNN, J. L. Elman, `Finding structure in time
    <https://doi.org/10.1207/s15516709cog1402_1>`_, 1990.

        h' = φ(W h + W_i u + b_i + b_h)

    The Jacobian is D W, with D = diag φ'. φ is the paper's ReLU, or tanh.

    Count: N² + N·I + 2N, and 10N + 10 for a readout: 68,874 at N = 256. The table's 68k, quoted
    from Chang et al. 2017, fits one bias: 68,618, rounded down; see Note [Two biases].

    Example:
        >>> system = VanillaRnn(1, VanillaRnnConfig(8), dtype=torch.float64)
        >>> W = system.core.weight_hh_l0
        >>> bool((W @ W.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    layer = nn.RNN

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        y = self.affine("ih", u) + self.affine("hh", x)
        return torch.relu(y) if self.config.nonlinearity == "relu" else torch.tanh(y)


class Lstm(TorchSystem[LstmConfig]):
    r"""LSTM, S. Hochreiter and J. Schmidhuber, `Long short-term memory
    <https://doi.org/10.1162/neco.1997.9.8.1735>`_, 1997; the gate f is of F. A. Gers,
    J. Schmidhuber and F. Cummins, Learning to forget, 2000.

        i, f, o = σ(W h + W_i u + b_i + b_h),    g = tanh(W h + W_i u + b_i + b_h)
        c' = f ⊙ c + i ⊙ g,    h' = o ⊙ tanh c'

    each of i, f, g, o with its own rows of W, W_i, b_i, b_h, in this order. State (h, c), output h.
    ∂c'/∂c along c alone is diag f: the path on which gradients survive.

    Count: 4N² + 4N·I + 8N, and 10N + 10 for a readout: 267,786 at N = 256. The table's 270k, quoted
    from Helfrich et al. 2018, is this rounded; with one bias, 1,024 fewer, it is 266,762, which
    rounds alike. See Note [Two biases].

    Start, as in the paper: W of each gate orthogonal, all else U(±1/√N); no forget bias of 1.

    Example:
        >>> system = Lstm(1, LstmConfig(8), dtype=torch.float64)
        >>> gates = system.core.weight_hh_l0.unflatten(0, (4, 8))
        >>> bool((gates @ gates.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    layer = nn.LSTM

    def build(self, new: Source) -> None:
        super().build(new)
        self.state_size = 2 * self.output_size

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h, c = self.start(u, state).unsqueeze(0).chunk(2, -1)
        output, (h, c) = self.core(u, (h.contiguous(), c.contiguous()))
        return output, torch.cat([h[0], c[0]], dim=-1)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        h, c = x.chunk(2, dim=-1)
        i, f, g, o = (self.affine("ih", u) + self.affine("hh", h)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.cat([torch.sigmoid(o) * torch.tanh(c), c], dim=-1)


class Gru(TorchSystem[GruConfig]):
    r"""GRU, K. Cho, B. van Merriënboer, D. Bahdanau and Y. Bengio, `On the properties of neural
    machine translation: encoder–decoder approaches <https://arxiv.org/abs/1409.1259>`_, 2014.

        r, z = σ(W h + W_i u + b_i + b_h),    n = tanh(W_i u + b_i + r ⊙ (W h + b_h))
        h' = (1 − z) ⊙ n + z ⊙ h

    each of r, z, n with its own rows of W, W_i, b_i, b_h, in this order. torch's r acts after the
    matrix, on W h + b_h; in Cho et al. it acts before, W(r ⊙ h): another function.

    Count: 3N² + 3N·I + 6N, and 10N + 10 for a readout: 201,482 at N = 256. The table's 200k, quoted
    from Chang et al. 2017, is this rounded; with one bias, 768 fewer, it is 200,714, which rounds
    alike. See Note [Two biases]; here b_h of n stands inside the gate, so both biases matter.

    Example:
        >>> system = Gru(1, GruConfig(8), dtype=torch.float64)
        >>> gates = system.core.weight_hh_l0.unflatten(0, (3, 8))
        >>> bool((gates @ gates.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    layer = nn.GRU

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        r_u, z_u, n_u = self.affine("ih", u).chunk(3, dim=-1)
        r_h, z_h, n_h = self.affine("hh", x).chunk(3, dim=-1)
        z = torch.sigmoid(z_u + z_h)
        n = torch.tanh(n_u + torch.sigmoid(r_u + r_h) * n_h)
        return (1 - z) * n + z * x


VANILLA_PRESETS = [
    Preset("copying", VanillaRnnConfig(190), None, adam(1e-4, batch_size=128)),
    Preset("adding", VanillaRnnConfig(128), None, adam(1e-4, batch_size=50)),
    Preset("psmnist", VanillaRnnConfig(256), 68_874),
]
LSTM_PRESETS = [
    Preset("copying", LstmConfig(190), None, adam(5e-3, batch_size=128)),
    Preset("adding", LstmConfig(128), None, adam(5e-3, batch_size=50)),
    Preset("psmnist", LstmConfig(256), 267_786),
]
VANILLA_RNN = row(VanillaRnn, VanillaRnnConfig(5), VANILLA_PRESETS)
LSTM = row(Lstm, LstmConfig(4), LSTM_PRESETS)
GRU = row(Gru, GruConfig(4), [Preset("psmnist", GruConfig(256), 201_482)])
