"""The roaRNN as `roann.RoaRNN` makes it by default: the recipe, in place of the paper's setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from roann import RoaRNN
from roann.lab.limits import Fraction, Horizon, Layers, Range, Settings, Width
from roann.lab.models.base import Demand, Preset, Row, SequenceSystem, Streams, adam, by_name
from roann.lab.models.roa import Backend, Filter, Memory, Nonlinearity, Rho


@dataclass(frozen=True)
class RoaConfig(Settings):
    """Settings of a roaRNN with the recipe.

    Attributes:
        hidden_size: number of hidden units of each layer, N.
        num_layers: number of layers stacked on each other.
        rho: ρ; α = ρ / horizon.
        horizon: number of steps over which gradients must survive; the task's if not given.
        nonlinearity: activation function φ.
        filter: type of the orthogonal matrix O; a designed spectrum by default.
        gain: factor on the inputs; from α and the filter if not given.
        max_norm: largest norm of W in every forward pass; 0 for none, the layer's own if not given.
        dropout: probability of dropout between layers.
        readout: number of hidden units of the readout; none for a linear one.
        backend: which kernel computes the recurrence; "auto" takes the fastest that can.
        memory: how the backward pass gets the states: store, checkpoint or reversible.
    """

    hidden_size: Width = 128
    num_layers: Layers = 1
    rho: Rho = 1.0
    horizon: Horizon | None = None
    nonlinearity: Nonlinearity = "relu"
    filter: Filter = "broad"
    gain: Annotated[float, Range(1e-6, 1e6)] | None = None
    max_norm: Annotated[float, Range(0, 1e6)] | None = None
    dropout: Fraction = 0.0
    readout: Width | None = None
    backend: Backend = "auto"
    memory: Memory = "store"


class RoaRecipe(SequenceSystem):
    """A `roann.RoaRNN` of any number of layers; the readout starts at zero.

    The flat state holds the states of all layers, the last one first, which is what a head reads.

    Args:
        rnn: the layers.
        head_hidden: the number of hidden units of the readout; 0 for a linear one.
    """

    head_init = "zero"

    def __init__(self, rnn: RoaRNN, head_hidden: int = 0) -> None:
        super().__init__()
        self.rnn, self.head_hidden = rnn, head_hidden
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

    def _apart(self, state: Tensor | None) -> Tensor | None:
        """The flat state (B, L·N) as hx (L, B, N)."""
        if state is None:
            return None
        layers = state.unflatten(1, (self.rnn.num_layers, -1))  # type: ignore[no-untyped-call]
        hx: Tensor = layers.transpose(0, 1).flip(0).contiguous()
        return hx


def roa(config: RoaConfig, demand: Demand, streams: Streams) -> RoaRecipe:
    """A roaRNN for a task."""
    layers, cap = config.num_layers, config.max_norm
    rnn = RoaRNN(
        demand.input_size, config.hidden_size, layers, config.nonlinearity,
        dropout=config.dropout if layers > 1 else 0.0,
        rho=config.rho, horizon=demand.horizon if config.horizon is None else config.horizon,
        filter=config.filter, gain=config.gain, max_norm="auto" if cap is None else cap or None,
        generator=streams("weights"), backend=config.backend, memory=config.memory,
    )  # fmt: skip
    return RoaRecipe(rnn, config.readout or 0)


PRESETS = [
    Preset("copying", RoaConfig(190), 39_909, adam(0.03, batch_size=128)),
    Preset("adding", RoaConfig(128), 16_897, adam(0.03, batch_size=50)),
    Preset("psmnist", RoaConfig(178), 33_830, adam(0.01, batch_size=100, epochs=20)),
]
ROW = Row("sequence", RoaConfig, roa, RoaConfig(5), by_name(PRESETS))
