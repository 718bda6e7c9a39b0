"""LSTM and GRU in the place of roann's layer: the same inputs, pooling, head and training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from roann.estimators import RoaClassifier, RoaForecaster, RoaRegressor
from roann.estimators.fitting import Member, Recipe
from roann.estimators.series import Series

CELLS: dict[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU}


class Gated(nn.Module):
    """An `nn.LSTM` or `nn.GRU` that gives its states and the last ones, as `RoaRNN` does.

    Each direction is a module of its own, and packed series are padded: torch's own layers take a
    time that grows with the square of the length if series are packed.
    """

    def __init__(self, cell: str, inputs: int, width: int, both: bool, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.nets = nn.ModuleList(CELLS[cell](inputs, width) for _ in range(1 + both))

    def forward(self, u: Any) -> tuple[Any, Tensor]:
        """States of all steps, and the last of each direction."""
        packed = isinstance(u, PackedSequence)
        x, lengths = pad_packed_sequence(u) if packed else (u, torch.full((u.shape[1],), len(u)))
        ends, columns = lengths - 1, torch.arange(len(lengths))
        states, lasts = [], []
        for direction, net in enumerate(self.nets):
            found = net(_turned(x, ends) if direction else x)[0]
            lasts.append(found[ends, columns])
            states.append(_turned(found, ends) if direction else found)
        output = torch.cat(states, dim=-1)
        return pack_padded_sequence(output, lengths) if packed else output, torch.stack(lasts)


def _turned(x: Tensor, ends: Tensor) -> Tensor:
    """Each series (T, B, …) backwards; what lies beyond its end stays."""
    t = torch.arange(len(x)).unsqueeze(1)
    index = torch.where(t <= ends, ends - t, t)
    return x.gather(0, index.unsqueeze(2).expand_as(x))


class _Peer:
    """Mixed into an estimator: its networks get another layer, and nothing else changes."""

    cell: str
    _members: list[Member]

    def _begin(self, series: Series, outputs: int, seed: int, recipe: Recipe) -> None:
        super()._begin(series, outputs, seed, recipe)  # type: ignore[misc]
        members = []
        for member in self._members:
            plan = member.network.plan
            layer = Gated(
                self.cell, plan.inputs, plan.hidden_size, plan.bidirectional,
                seed + member.number,
            )  # fmt: skip
            member.network.layers[0] = layer
            members.append(Member.of(member.network, member.number, seed, recipe))
        self._members = members


def peer(base: type, name: str) -> type:
    """An estimator like `base` whose layer is an LSTM or GRU."""
    return type(f"{name}{base.__name__[3:]}", (_Peer, base), {"cell": name})


PEERS = {
    (name, base): peer(base, name)
    for name in CELLS
    for base in (RoaClassifier, RoaRegressor, RoaForecaster)
}
