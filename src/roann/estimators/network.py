"""The network of all estimators: recurrent layers, pooled states, a linear head.

Note [Pooling]
--------------
A series of T states becomes one vector: statistics over its real steps, for each neuron. The last
state is the memory, the means say how strongly a neuron answered at all, the maximum whether it
answered once, and the mean size of its changes how restless it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from roann.estimators.series import Batch
from roann.nn import RoaODE, RoaRNN


def _mean(x: Tensor, batch: Batch) -> Tensor:
    if batch.sizes is None:
        return x.mean(0)
    total = x.new_zeros(len(batch.rows), x.shape[-1]).index_add(0, batch.columns, x)
    return total / batch.lengths.to(x).unsqueeze(1)


def _maximum(x: Tensor, batch: Batch) -> Tensor:
    if batch.sizes is None:
        return x.amax(0)
    least = x.new_full((len(batch.rows), x.shape[-1]), -torch.inf)
    where = batch.columns.unsqueeze(1).expand_as(x)
    return least.scatter_reduce(0, where, x, "amax")


def _changes(x: Tensor, batch: Batch) -> Tensor:
    """The mean size of a step of each neuron."""
    if batch.ragged is None:
        return x.diff(dim=0, prepend=torch.zeros_like(x[:1])).abs().mean(0)
    first = batch.ragged.sizes[0]
    before = batch.ragged.before.to(x.device)
    return _mean(torch.cat([x[:first], x[first:] - x[before]]).abs(), batch)


def share(x: Tensor, threshold: Tensor, batch: Batch) -> Tensor:
    """The part of the steps of each series at which a state is above its threshold, (B, N)."""
    return _mean((x > threshold).to(x), batch)


POOLINGS: dict[str, Callable[[Tensor, Batch], Tensor]] = {
    "mean": _mean,
    "mean_abs": lambda x, batch: _mean(x.abs(), batch),
    "max": _maximum,
    "change": _changes,
}
LAST = "last"


@dataclass(frozen=True)
class Plan:
    """What a network is built from."""

    inputs: int
    outputs: int
    hidden_size: int
    num_layers: int
    bidirectional: bool
    pooling: tuple[str, ...]
    dropout: float
    continuous: bool
    options: dict[str, Any]

    def build(self, generator: torch.Generator) -> Network:
        """A network with weights drawn from the generator."""
        return Network(self, generator)


class Network(nn.Module):
    """Recurrent layers, pooled states, LayerNorm, dropout, and a linear head that starts at zero.

    Attributes:
        layers: one `RoaRNN`; or, in continuous time, a `RoaODE` for each direction.
        norm, head: what reads the pooled states, (B, features).
    """

    def __init__(self, plan: Plan, generator: torch.Generator) -> None:
        super().__init__()
        self.plan = plan
        options = plan.options | {"generator": generator}
        directions = 1 + plan.bidirectional
        if plan.continuous:
            built: list[nn.Module] = [
                RoaODE(plan.inputs, plan.hidden_size, **options) for _ in range(directions)
            ]
        else:
            built = [
                RoaRNN(
                    plan.inputs, plan.hidden_size, plan.num_layers,
                    bidirectional=plan.bidirectional, **options,
                )
            ]  # fmt: skip
        self.layers = nn.ModuleList(built)
        features = len(plan.pooling) * directions * plan.hidden_size
        self.norm = nn.LayerNorm(features)
        # Through meta, so that no global generator is drawn from.
        self.head = nn.Linear(features, plan.outputs, device="meta").to_empty(device="cpu")
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch, generator: torch.Generator | None = None) -> Tensor:
        """(B, outputs); with a generator, as in training, with dropout drawn from it."""
        features = self.norm(self.pooled(batch))
        p = self.plan.dropout
        if generator is not None and p > 0:
            kept = torch.rand(features.shape, generator=generator) >= p
            features = features * kept.to(features) / (1 - p)
        out: Tensor = self.head(features)
        return out

    def pooled(self, batch: Batch) -> Tensor:
        """The pooled states, (B, features)."""
        states, last = self._stamped(batch) if self.plan.continuous else self._regular(batch)
        parts = [
            last if name == LAST else POOLINGS[name](states, batch) for name in self.plan.pooling
        ]
        return torch.cat(parts, dim=1)

    def _regular(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """States of the last layer laid out as the inputs, and the last of each series."""
        output, h_n = self.layers[0](batch.pack(batch.inputs))
        ends = h_n[-(1 + self.plan.bidirectional) :]
        return _data(output), torch.cat(list(ends), dim=-1)

    def _stamped(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The same in continuous time; the second direction reads each series from its end."""
        states, lasts = [], []
        for direction, layer in enumerate(self.layers):
            u, steps = batch.inputs, batch.intervals
            if direction == 1:
                u = _flip(u, batch)
                steps = None if steps is None else _turned(steps, batch)
            output, h_n = layer(batch.pack(u), intervals=_columns(steps, batch))
            data = _data(output)
            states.append(_flip(data, batch) if direction == 1 else data)
            lasts.append(h_n[0])
        return torch.cat(states, dim=-1), torch.cat(lasts, dim=-1)


def _data(output: Any) -> Tensor:
    found: Tensor = output if isinstance(output, Tensor) else output.data
    return found


def _flip(x: Tensor, batch: Batch) -> Tensor:
    """Each series backwards."""
    return x.flip(0) if batch.ragged is None else x[batch.ragged.flipped.to(x.device)]


def _turned(steps: Tensor, batch: Batch) -> Tensor:
    """The time before each step of the series backwards: the one after it, and first that of 0."""
    if batch.ragged is None:
        return torch.cat([steps[:1], steps[1:].flip(0)])
    padded = _columns(steps, batch)
    assert padded is not None
    back = torch.zeros_like(padded)
    for column, length in enumerate(batch.lengths.tolist()):
        back[0, column] = padded[0, column]
        back[1:length, column] = padded[1:length, column].flip(0)
    k = torch.arange(len(back)).unsqueeze(1)
    return back[k < batch.lengths]


def _columns(steps: Tensor | None, batch: Batch) -> Tensor | None:
    """Intervals as a layer takes them: (T,) if all series share them, else (T, B), padded."""
    if steps is None:
        return None
    if batch.sizes is None:
        shared = bool((steps == steps[:, :1]).all())
        return steps[:, 0] if shared else steps
    k = torch.arange(int(batch.lengths[0])).unsqueeze(1)
    padded = torch.zeros(len(k), len(batch.rows), dtype=steps.dtype)
    padded[k < batch.lengths] = steps
    return padded
