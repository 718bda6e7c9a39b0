"""The usual baselines: vanilla RNN, LSTM and GRU from torch itself, and BN-LSTM.

Note [Two biases]: the cells are torch's, which adds a bias to W_i u and another to W h. For the
vanilla RNN and the LSTM only their sum matters. Both are trained here, as in the paper's own
vanilla RNN, so every count is N per gate above a count with one bias.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, Length, OneOf, Settings, Width, fail
from roann.lab.models.base import Preset, adam, rmsprop
from roann.lab.models.recurrence import ConfiguredSystem, Factory, Source, row

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
                bound = 1 / math.sqrt(N)
                nn.init.uniform_(parameter, -bound, bound, generator=new.generator)

    def affine(self, side: Literal["ih", "hh"], x: Tensor) -> Tensor:
        """The affine map of the input ("ih") or of the state ("hh"), all gates at once."""
        core = self.core
        return F.linear(x, getattr(core, f"weight_{side}_l0"), getattr(core, f"bias_{side}_l0"))

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
    from Helfrich et al. 2018, is this rounded, with one bias too; see Note [Two biases].

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
    from Chang et al. 2017, is this rounded, with one bias too; see Note [Two biases]. Here b_h of n
    stands inside the gate, so both biases matter.

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


EPS = 1e-5
RATE = 0.01  # of the moving averages of the population statistics


class BnLstmConfig(HiddenSettings):
    """Settings of BN-LSTM."""

    hidden_size: Width = 100  # number of hidden units, N.
    # number of steps with population statistics of their own; later steps share those of the last
    # one. The task's horizon if not given.
    max_length: Length | None = None


class Statistics(nn.Module):
    """Batch norm at each time step by its own statistics, without γ and β; `length` is T_max."""

    mean: Tensor
    var: Tensor

    def __init__(self, length: int, size: int, **factory: Unpack[Factory]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(length, size, **factory))
        self.register_buffer("var", torch.ones(length, size, **factory))

    def forward(self, z: Tensor, t: int, gamma: Tensor, beta: Tensor | None = None) -> Tensor:
        """z (B, size) of step t, by the batch in training mode, else by the population."""
        k = min(t, len(self.mean) - 1)
        mean, var = self.mean[k], self.var[k]
        return F.batch_norm(z, mean, var, gamma, beta, self.training, RATE, EPS)

    def sequence(self, z: Tensor, gamma: Tensor) -> Tensor:
        """All steps of z (T, B, size); those before T_max in one call."""
        T, B, size = z.shape
        n = min(T, len(self.mean))
        mean, var = self.mean[:n].view(-1), self.var[:n].view(-1)
        units = z[:n].transpose(0, 1).reshape(B, n * size)
        early = F.batch_norm(units, mean, var, gamma.repeat(n), None, self.training, RATE, EPS)
        early = early.view(B, n, size).transpose(0, 1)
        # Unbound once: the gradient of every z[t] on its own would be an array as long as z.
        late = [self(step, n, gamma).unsqueeze(0) for step in z[n:].unbind(0)]
        return torch.cat([early, *late])

    def population(self, z: Tensor, gamma: Tensor) -> Tensor:
        """z (…, size) by the population statistics of the last step."""
        return (z - self.mean[-1]) * (gamma * torch.rsqrt(self.var[-1] + EPS))


class BnLstm(ConfiguredSystem[BnLstmConfig]):
    r"""BN-LSTM, `Cooijmans et al. 2017 <https://arxiv.org/abs/1603.09025>`_.

        f, i, o, g = BN(W_h h; γ_h) + BN(W_x x; γ_x) + b
        c' = σ(f) ⊙ c + σ(i) ⊙ tanh(g),    h' = σ(o) ⊙ tanh(BN(c'; γ_c, β_c)),    h₀, c₀ learned

    BN works per unit over the *batch at that time step*, with population statistics kept for each
    step (shared over time they degrade severely); γ, β, b are shared over time, and the path of
    c is not normalised. State (h, c), output h.

    In training mode samples of a batch are coupled, so there is no Jacobian of one of them: `step`
    always uses the population statistics of the last kept step, where the system is an LSTM with
    rows of W_h scaled by γ_h/√(var + ε). `forward` in evaluation mode equals the scan of `step`
    where the statistics do not differ from step to step, as before training.

    Count: 4N² + 4N·I + 16N (γ_h, γ_x, b 4N each; γ_c, β_c, h₀, c₀ N each), and 10N + 10 for a
    readout: 43,010 at N = 100 (the table gives none).

    Start: γ = 0.1, β = 0, b = 0 but 1 for f; W_x orthogonal; W_h the identity for g and
    semi-orthogonal for f, i, o; h₀ = c₀ = 0. The published readout starts orthogonal; the one here
    starts U(±1/√N). The published 95.4 % "psMNIST" draws its pixels *with replacement* (501 of
    784 are ever shown), so it is not comparable.

    While nothing has varied within the batch (h₀ = 0, equal inputs, as the first pixels of sMNIST),
    a step multiplies gradients by γ_hγ_c/(4ε), 250 at the start: after some fifteen such steps
    float32 overflows. The authors add noise to h₀; here there is none.

    Example:
        >>> system = BnLstm(1, BnLstmConfig(4, max_length=3))
        >>> output, state = system(torch.randn(5, 2, 1))
        >>> bool((output[-1] - state[:, :4]).abs().max() == 0)
        True
    """

    @torch.no_grad()
    def build(self, new: Source) -> None:
        N, T_max = self.config.hidden_size, self.config.max_length
        if T_max is None:
            fail("max_length", "the number of steps with statistics of their own", None)
        self.output_size, self.state_size = N, 2 * N
        W_x = new.drawn(nn.init.orthogonal_, 4 * N, self.input_size)
        self.W_h = new.constant(0, 4 * N, N)
        nn.init.orthogonal_(self.W_h[: 3 * N], generator=new.generator)
        nn.init.eye_(self.W_h[3 * N :])
        self.W_x = W_x
        self.b = new.constant(0, 4 * N)
        nn.init.ones_(self.b[:N])
        self.gamma_h = new.constant(0.1, 4 * N)
        self.gamma_x = new.constant(0.1, 4 * N)
        self.gamma_c = new.constant(0.1, N)
        self.beta_c = new.constant(0, N)
        self.x_0 = new.constant(0, 2 * N)
        self.norm_h, self.norm_x = (Statistics(T_max, 4 * N, **new.factory) for _ in range(2))
        self.norm_c = Statistics(T_max, N, **new.factory)

    def initial_state(self, batch: int) -> Tensor:
        """The learned (h₀, c₀)."""
        return self.x_0.expand(batch, -1)

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As every system; the first step of u is step 0 of the statistics."""
        h, c = self.start(u, state).chunk(2, -1)
        W_h, outputs = self.W_h.mT, []
        drive = self.norm_x.sequence(u @ self.W_x.mT, self.gamma_x) + self.b
        for t, d in enumerate(drive.unbind(0)):
            c, o = _cell(self.norm_h(h @ W_h, t, self.gamma_h) + d, c)
            h = o * torch.tanh(self.norm_c(c, t, self.gamma_c, self.beta_c))
            outputs.append(h)
        return torch.stack(outputs), torch.cat([h, c], -1)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step, with the population statistics of the last kept step."""
        h, c = x.chunk(2, -1)
        recurrent = self.norm_h.population(h @ self.W_h.mT, self.gamma_h)
        drive = self.norm_x.population(u @ self.W_x.mT, self.gamma_x) + self.b
        c, o = _cell(recurrent + drive, c)
        h = o * torch.tanh(self.norm_c.population(c, self.gamma_c) + self.beta_c)
        return torch.cat([h, c], -1)


def _cell(a: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The next c, and the output gate, from the pre-activations a in the order f, i, o, g."""
    N = c.shape[-1]
    f, i, o = torch.sigmoid(a[..., : 3 * N]).chunk(3, -1)
    return torch.addcmul(f * c, i, torch.tanh(a[..., 3 * N :])), o


BN_LSTM_PRESETS = [
    # github.com/cooijmanstim/recurrent-batch-normalization: sequential_mnist.py
    Preset(
        "psmnist",
        BnLstmConfig(100, 784),
        43_010,
        rmsprop(1e-3, alpha=0.5, clip_norm=1.0, batch_size=100, epochs=200),
    ),
]
BN_LSTM = row(BnLstm, BnLstmConfig(4), BN_LSTM_PRESETS, horizon="max_length")
