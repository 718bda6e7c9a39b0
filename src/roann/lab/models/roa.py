"""The paper's own networks: roaRNN, eyeRNN (the same with O = I), roaFNN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor

from roann import RoaFNN, RoaRNN, multiscale
from roann.filters import FILTERS, make
from roann.functional import BACKENDS
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.memory import MEMORIES
from roann.lab.limits import LENGTH, Horizon, OneOf, Range, Settings, Width, fail
from roann.lab.models.base import Demand, Model, Preset, Row, SequenceSystem, Streams, adam, by_name
from roann.lab.models.depth import layer_sizes
from roann.nn.init import INITS

Rho = Annotated[float, Range(1e-12, 1e12)]
Nonlinearity = Annotated[str, OneOf(ACTIVATIONS)]
Filter = Annotated[str, OneOf(FILTERS)]
Init = Annotated[str, OneOf(INITS)]
Backend = Annotated[str, OneOf(BACKENDS)]
Memory = Annotated[str, OneOf(MEMORIES)]


@dataclass(frozen=True)
class EyeRnnConfig(Settings):
    """Settings of an eyeRNN: a roaRNN whose filter is the identity.

    Attributes:
        hidden_size: number of hidden units, N.
        rho: ρ; α = ρ / horizon.
        horizon: number of steps over which gradients must survive; the task's if not given.
        nonlinearity: activation function φ.
        init: how the weights W, W_i and the bias b are drawn; "normal" is the paper's.
        backend: which kernel computes the recurrence; "auto" takes the fastest that can.
        memory: how the backward pass gets the states: store, checkpoint or reversible.
        rho_vector: none for one α; "equal" for one α per neuron, all ρ / horizon at first;
            "multiscale" for α = 1 / h, with the time scales h of the neurons spaced evenly on a
            logarithmic axis around horizon / ρ.
        spread: ratio of the longest h of "multiscale" to the middle one, and of the middle one to
            the shortest, which is at least 2 steps; 10 if not given.
        learn_rho: none for a fixed α; a number makes α learned, and is the factor on its learning
            rate: the learning rate of the weights is far too large for the logit of α.
    """

    hidden_size: Width = 128
    rho: Rho = 1.0
    horizon: Horizon | None = None
    nonlinearity: Nonlinearity = "relu"
    init: Init = "normal"
    backend: Backend = "auto"
    memory: Memory = "store"
    rho_vector: Annotated[str, OneOf(("equal", "multiscale"))] | None = None
    spread: Annotated[float, Range(1, 1e6)] | None = None
    learn_rho: Annotated[float, Range(1e-9, 1e3)] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.spread is not None and self.rho_vector != "multiscale":
            fail("spread", "nothing without rho_vector = 'multiscale'", self.spread)


@dataclass(frozen=True)
class RoaRnnConfig(EyeRnnConfig):
    """Settings of a roaRNN: those of `EyeRnnConfig`, and the filter.

    Attributes:
        filter: type of the orthogonal matrix O; "qr" is the paper's.
    """

    filter: Filter = "qr"


@dataclass(frozen=True)
class RoaFnnConfig(Settings):
    """Settings of a roaFNN.

    Attributes:
        layers: number L of layers of neurons: input, hidden, output. There are L − 1 maps.
        width: number of neurons in each hidden layer.
        rho: ρ; α = ρ / (L − 1).
        nonlinearity: activation function φ.
        filter: type of the orthogonal matrices O; "qr" is the paper's, "permutation" its
            strategy I.
        recycle: whether all maps of a shape share one filter; the paper's strategy II.
        init: how the weights and biases are drawn; "normal" is the paper's.
        backend: which kernel computes the layers; "auto" takes the fastest that can.
        memory: how the backward pass gets the states: store, checkpoint or reversible.
    """

    layers: Annotated[int, Range(2, LENGTH)] = 50
    width: Width = 2
    rho: Rho = 5.0
    nonlinearity: Nonlinearity = "tanh"
    filter: Filter = "qr"
    recycle: bool = False
    init: Init = "normal"
    backend: Backend = "auto"
    memory: Memory = "store"


class RoaSystem(SequenceSystem):
    """A one-layer `roann.RoaRNN` as a sequence system; its head starts from N(0, 1).

    Args:
        rnn: the layer.
        rho_rate: the factor on the learning rate of a learned α.
    """

    head_init = "normal"

    def __init__(self, rnn: RoaRNN, rho_rate: float = 1.0) -> None:
        super().__init__()
        self.rnn = rnn
        self.rho_rate = rho_rate
        self.input_size = rnn.input_size
        self.state_size = self.output_size = rnn.hidden_size

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        output, h_n = self.rnn(u, None if state is None else state.unsqueeze(0))
        return output, h_n[0]

    def last(self, u: Tensor, state: Tensor | None = None) -> Tensor:
        """The last state (B, N), without an array of all states."""
        _, h_n = self.rnn(u, None if state is None else state.unsqueeze(0), last_only=True)
        last: Tensor = h_n[0]
        return last

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return self.rnn.step(x, u)

    def learning_rate_scales(self) -> dict[str, float]:
        """`rho_rate`, for the logits of a learned α."""
        names = [name for name, _ in self.named_parameters() if ".alpha_logit" in name]
        return dict.fromkeys(names, self.rho_rate)


class RoaDepth(Model):
    """A `roann.RoaFNN` as a model: its last layer of neurons is the prediction."""

    def __init__(self, net: RoaFNN) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: Tensor) -> Tensor:
        prediction: Tensor = self.net(inputs)
        return prediction


def roa_rnn(config: RoaRnnConfig, demand: Demand, streams: Streams) -> RoaSystem:
    """A roaRNN for a task."""
    return _over_time(config, config.filter, demand, streams)


def eye_rnn(config: EyeRnnConfig, demand: Demand, streams: Streams) -> RoaSystem:
    """An eyeRNN for a task."""
    return _over_time(config, "identity", demand, streams)


def _over_time(config: EyeRnnConfig, filter: str, demand: Demand, streams: Streams) -> RoaSystem:
    # O has its own stream: whatever it draws, W, W_i and b of a seed stay the same.
    O = make(filter, config.hidden_size, generator=streams("filter"))
    horizon = demand.horizon if config.horizon is None else config.horizon
    rnn = RoaRNN(
        demand.input_size,
        config.hidden_size,
        nonlinearity=config.nonlinearity,
        **_mixing(config, horizon),
        learn_rho=config.learn_rho is not None,
        filter=O,
        init=config.init,
        generator=streams("weights"),
        backend=config.backend,
        memory=config.memory,
    )
    return RoaSystem(rnn, 1.0 if config.learn_rho is None else config.learn_rho)


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
    net = RoaFNN(
        layer_sizes(config.layers, config.width, demand),
        nonlinearity=config.nonlinearity,
        rho=config.rho,
        filter=config.filter,
        recycle=config.recycle,
        init=config.init,
        generator=streams("weights"),
        backend=config.backend,
        memory=config.memory,
    )
    return RoaDepth(net)


_PSMNIST = adam(0.1, batch_size=100, epochs=20)
_MOON = {"batch_size": 100}

ROA_RNN_PRESETS = [
    Preset("copying", RoaRnnConfig(190, rho=3.0), 39_909, adam(0.5, batch_size=128)),
    Preset("adding", RoaRnnConfig(128, rho=1 / 200), 16_897, adam(0.5, batch_size=50)),
    Preset("psmnist", RoaRnnConfig(178, rho=0.5), 33_830, _PSMNIST, "psmnist-178"),
    Preset("psmnist", RoaRnnConfig(256, rho=0.5), 68_618, _PSMNIST, "psmnist-256"),
    Preset("psmnist", RoaRnnConfig(512, rho=0.5), 268_298, _PSMNIST, "psmnist-512"),
    Preset("adding", RoaRnnConfig(128, nonlinearity="tanh"), 16_897, name="ablation"),
]
EYE_RNN_PRESETS = [
    Preset("adding", EyeRnnConfig(128, nonlinearity="tanh"), 16_897, name="ablation")
]
ROA_FNN_PRESETS = [
    Preset("double-moon", RoaFnnConfig(50), 291, _MOON, "deep"),
    Preset("double-moon", RoaFnnConfig(50_000), 299_991, _MOON, "very-deep"),
]
ROA_RNN = Row("sequence", RoaRnnConfig, roa_rnn, RoaRnnConfig(5), by_name(ROA_RNN_PRESETS))
EYE_RNN = Row("sequence", EyeRnnConfig, eye_rnn, EyeRnnConfig(5), by_name(EYE_RNN_PRESETS))
ROA_FNN = Row("depth", RoaFnnConfig, roa_fnn, RoaFnnConfig(6, 3), by_name(ROA_FNN_PRESETS))
