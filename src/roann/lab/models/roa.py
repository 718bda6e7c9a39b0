"""Our own networks: the paper's roaRNN, eyeRNN (O = I) and roaFNN, and `RoaRNN`'s own recipe."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from torch import Tensor

from roann import PAPER, RoaFNN, RoaRNN, multiscale, parameter_groups
from roann.filters import FILTERS, make
from roann.functional import BACKENDS
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.memory import MEMORIES
from roann.lab.limits import LENGTH, Fraction, Horizon, Layers, OneOf, Range, Settings, Width, fail
from roann.lab.models.base import Demand, HeadInit, Model, Row, SequenceSystem, Streams
from roann.lab.models.depth import layer_sizes
from roann.nn.gain import steady_gain
from roann.nn.init import INITS

Rho = Annotated[float, Range(1e-12, 1e12)]
Nonlinearity = Annotated[str, OneOf(ACTIVATIONS)]
Filter = Annotated[str, OneOf(FILTERS)]
Init = Annotated[str, OneOf(INITS)]
Backend = Annotated[str, OneOf(BACKENDS)]
Memory = Annotated[str, OneOf(MEMORIES)]


class RoaConfig(Settings):
    """Settings of a roaRNN with the recipe."""

    hidden_size: Width = 128  # number of hidden units of each layer, N.
    num_layers: Layers = 1  # number of layers stacked on each other.
    rho: Rho = 0.3  # ρ; α = ρ / horizon.
    # number of steps over which gradients must survive; the task's if not given.
    horizon: Horizon | None = None
    nonlinearity: Nonlinearity = "relu"  # activation function φ.
    filter: Filter = "broad"  # type of the orthogonal matrix O; a designed spectrum by default.
    # factor on the inputs; from α if not given.
    gain: Annotated[float, Range(1e-6, 1e6)] | None = None
    # whether planes that turn slowly have less, for "broad" alone; one gain for all if not given.
    gain_per_plane: bool | None = None
    # how the weights W, W_i and the bias b are drawn; the layer's own if not given.
    init: Init | None = None
    # largest norm of W in every forward pass; 0 for none, the layer's own if not given.
    max_norm: Annotated[float, Range(0, 1e6)] | None = None
    dropout: Fraction = 0.0  # probability of dropout between layers.
    readout: Width | None = None  # number of hidden units of the readout; none for a linear one.
    # number of states that the readout reads, at even distances up to the last, where a task has
    # one answer to a sequence; the last alone if not given.
    reads: Annotated[int, Range(1, 10_000)] | None = None
    # which kernel computes the recurrence; "auto" takes the fastest that can.
    backend: Backend = "auto"
    # how the backward pass gets the states: store, checkpoint or reversible.
    memory: Memory = "store"


class EyeRnnConfig(Settings):
    """Settings of an eyeRNN: a roaRNN whose filter is the identity."""

    hidden_size: Width = 128  # number of hidden units, N.
    rho: Rho = 1.0  # ρ; α = ρ / horizon.
    # number of steps over which gradients must survive; the task's if not given.
    horizon: Horizon | None = None
    nonlinearity: Nonlinearity = "relu"  # activation function φ.
    # how the weights W, W_i and the bias b are drawn; "normal" is the paper's.
    init: Init = "normal"
    # which kernel computes the recurrence; "auto" takes the fastest that can.
    backend: Backend = "auto"
    # how the backward pass gets the states: store, checkpoint or reversible.
    memory: Memory = "store"
    # none for one α; "equal" for one α per neuron, all ρ / horizon at first; "multiscale" for
    # α = 1 / h, with the time scales h of the neurons spaced evenly on a logarithmic axis around
    # horizon / ρ.
    rho_vector: Annotated[str, OneOf(("equal", "multiscale"))] | None = None
    # ratio of the longest h of "multiscale" to the middle one, and of the middle one to the
    # shortest, which is at least 2 steps; 10 if not given.
    spread: Annotated[float, Range(1, 1e6)] | None = None
    # none for a fixed α; a number makes α learned, and is the factor on its learning rate: the
    # learning rate of the weights is far too large for the logit of α.
    learn_rho: Annotated[float, Range(1e-9, 1e3)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spread is not None and self.rho_vector != "multiscale":
            fail("spread", "nothing without rho_vector = 'multiscale'", self.spread)


class RoaRnnConfig(EyeRnnConfig):
    """Settings of a roaRNN: those of `EyeRnnConfig`, and the filter."""

    filter: Filter = "qr"  # type of the orthogonal matrix O; "qr" is the paper's.


class RoaFnnConfig(Settings):
    """Settings of a roaFNN."""

    # number L of layers of neurons: input, hidden, output. There are L − 1 maps.
    layers: Annotated[int, Range(2, LENGTH)] = 50
    width: Width = 2  # number of neurons in each hidden layer.
    rho: Rho = 5.0  # ρ; α = ρ / (L − 1).
    nonlinearity: Nonlinearity = "tanh"  # activation function φ.
    # type of the orthogonal matrices O; "qr" is the paper's, "permutation" its strategy I.
    filter: Filter = "qr"
    recycle: bool = False  # whether all maps of a shape share one filter; the paper's strategy II.
    init: Init = "normal"  # how the weights and biases are drawn; "normal" is the paper's.
    # largest norm of every W in every forward pass; 0 for none.
    max_norm: Annotated[float, Range(0, 1e6)] = 0.0
    # whether parameters have the learning rates that SGD needs at this depth, as
    # roann.parameter_groups gives them.
    depth_rates: bool = False
    # which kernel computes the layers; "auto" takes the fastest that can.
    backend: Backend = "auto"
    # how the backward pass gets the states: store, checkpoint or reversible.
    memory: Memory = "store"


class RoaSystem(SequenceSystem):
    """A `roann.RoaRNN` of any number of layers.

    The flat state holds the states of all layers, the last one first, which is what a head reads.

    Args:
        rnn: the layers.
        head_init: how the readout starts.
        head_hidden: the number of hidden units of the readout; 0 for a linear one.
        head_reads: the number of states that it reads for one answer.
        rho_rate: the factor on the learning rate of a learned α.
    """

    def __init__(
        self,
        rnn: RoaRNN,
        head_init: HeadInit,
        head_hidden: int = 0,
        head_reads: int = 1,
        rho_rate: float = 1.0,
    ) -> None:
        super().__init__()
        self.rnn, self.rho_rate = rnn, rho_rate
        self.head_init, self.head_hidden, self.head_reads = head_init, head_hidden, head_reads
        self.input_size, self.output_size = rnn.input_size, rnn.hidden_size
        self.state_size = rnn.num_layers * rnn.hidden_size

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, h_n = self.rnn(u, self._apart(state))
        return output, h_n.flip(0).transpose(0, 1).flatten(1)

    def last(self, u: Tensor, state: Tensor | None = None) -> Tensor:
        """The last state of the last layer (B, N), without an array of all its states."""
        last: Tensor = self.rnn(u, self._apart(state), last_only=True)[1][-1]
        return last

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        new: list[Tensor] = []
        for layer, here in enumerate(reversed(x.chunk(self.rnn.num_layers, -1))):
            u = self.rnn.step(here, u, layer)
            new.insert(0, u)
        return torch.cat(new, -1)

    def chain(self) -> RoaRNN:
        """The layers, whose Jacobians have a closed form."""
        return self.rnn

    def _apart(self, state: Tensor | None) -> Tensor | None:
        """The flat state (B, L·N) as hx (L, B, N)."""
        if state is None:
            return None
        layers = state.unflatten(1, (self.rnn.num_layers, -1))  # type: ignore[no-untyped-call]
        hx: Tensor = layers.transpose(0, 1).flip(0).contiguous()
        return hx

    def learning_rate_scales(self) -> dict[str, float]:
        """`rho_rate`, for the logits of a learned α."""
        names = [name for name, _ in self.named_parameters() if ".alpha_logit" in name]
        return dict.fromkeys(names, self.rho_rate)


class RoaDepth(Model):
    """A `roann.RoaFNN` as a model: its last layer of neurons is the prediction.

    Args:
        net: the network.
        depth_rates: whether parameters have the rates of `roann.parameter_groups`.
    """

    def __init__(self, net: RoaFNN, depth_rates: bool = False) -> None:
        super().__init__()
        self.net, self.depth_rates = net, depth_rates

    def forward(self, inputs: Tensor) -> Tensor:
        prediction: Tensor = self.net(inputs)
        return prediction

    def chain(self) -> RoaFNN:
        """The network, whose Jacobians have a closed form."""
        return self.net

    def learning_rate_scales(self) -> dict[str, float]:
        """Those of `roann.parameter_groups`, if asked for."""
        groups = parameter_groups(self, 1.0) if self.depth_rates else []
        rates = {p: group["lr"] for group in groups for p in group["params"]}
        return {name: rates[p] for name, p in self.named_parameters() if p in rates}


def _common(config: RoaConfig | EyeRnnConfig | RoaFnnConfig, streams: Streams) -> dict[str, Any]:
    same = {name: getattr(config, name) for name in ("nonlinearity", "backend", "memory")}
    return same | {"generator": streams("weights")}


def roa(config: RoaConfig, demand: Demand, streams: Streams) -> RoaSystem:
    """A roaRNN for a task, by the recipe: all that is not set is `RoaRNN`'s own default."""
    layers, cap = config.num_layers, config.max_norm
    horizon = demand.horizon if config.horizon is None else config.horizon
    gain: float | Tensor | None = config.gain
    if config.gain_per_plane and horizon is not None:
        if gain is not None or config.filter != "broad":
            fail("gain_per_plane", 'no gain, and the filter "broad"', (gain, config.filter))
        gain = steady_gain(config.hidden_size, horizon, config.rho)
    rnn = RoaRNN(
        demand.input_size, config.hidden_size, layers, **_common(config, streams),
        dropout=config.dropout if layers > 1 else 0.0,
        rho=config.rho, horizon=horizon,
        filter=config.filter, gain=gain, max_norm="auto" if cap is None else cap or None,
        init=config.init or "balanced",
    )  # fmt: skip
    return RoaSystem(rnn, "zero", config.readout or 0, config.reads or 1)


def roa_rnn(config: EyeRnnConfig, demand: Demand, streams: Streams) -> RoaSystem:
    """The paper's roaRNN, or its eyeRNN, for a task."""
    # O has its own stream: whatever it draws, W, W_i and b of a seed stay the same.
    name = config.filter if isinstance(config, RoaRnnConfig) else "identity"
    O = make(name, config.hidden_size, generator=streams("filter"))
    horizon = demand.horizon if config.horizon is None else config.horizon
    rnn = RoaRNN(
        demand.input_size,
        config.hidden_size,
        **_mixing(config, horizon),
        learn_rho=config.learn_rho is not None,
        **(PAPER | {"filter": O, "init": config.init}),
        **_common(config, streams),
    )
    return RoaSystem(rnn, "normal", rho_rate=config.learn_rho or 1.0)


def _mixing(config: EyeRnnConfig, horizon: int | None) -> dict[str, Any]:
    """`rho` and `horizon`, or `alpha`, as `RoaRNN` takes them."""
    if config.rho_vector == "multiscale" and horizon is not None:
        middle, spread = horizon / config.rho, 10.0 if config.spread is None else config.spread
        shortest = max(2.0, middle / spread)
        return {"alpha": multiscale(config.hidden_size, shortest, middle * spread)}
    rho = torch.full((config.hidden_size,), config.rho) if config.rho_vector else config.rho
    return {"rho": rho, "horizon": horizon}


def roa_fnn(config: RoaFnnConfig, demand: Demand, streams: Streams) -> RoaDepth:
    """A roaFNN for a task. `RoaFNN` draws weights before filters, so filters share weights."""
    cap = config.max_norm or None
    net = RoaFNN(
        layer_sizes(config.layers, config.width, demand),
        rho=config.rho,
        recycle=config.recycle,
        **(PAPER | {"filter": config.filter, "init": config.init, "max_norm": cap}),
        **_common(config, streams),
    )
    return RoaDepth(net, config.depth_rates)


ROA = Row("sequence", RoaConfig, roa, RoaConfig(5))
ROA_RNN = Row("sequence", RoaRnnConfig, roa_rnn, RoaRnnConfig(5))
EYE_RNN = Row("sequence", EyeRnnConfig, roa_rnn, EyeRnnConfig(5))
ROA_FNN = Row("depth", RoaFnnConfig, roa_fnn, RoaFnnConfig(6, 3))
