"""IndRNN, plain, residual and dense: units that recur alone, mixed in depth."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from roann.lab.limits import Layers, Width, fail
from roann.lab.models.base import Preset, training
from roann.lab.models.independent import CellConfig, IndNetwork, Layout, Map
from roann.lab.models.recurrence import row


@dataclass(frozen=True)
class IndRnnConfig(CellConfig):
    """Settings of a plain IndRNN: those of its cells (`CellConfig`), and its sizes.

    Attributes:
        hidden_size: number of hidden units N in each layer.
        layers: number of layers, L.
    """

    hidden_size: Width = 128
    layers: Layers = 6


@dataclass(frozen=True)
class ResidualIndRnnConfig(CellConfig):
    """Settings of a residual IndRNN: those of its cells (`CellConfig`), and its sizes.

    Attributes:
        hidden_size: number of hidden units, N.
        blocks: number of residual blocks, of two recurrences each.
    """

    hidden_size: Width = 128
    blocks: Layers = 5


@dataclass(frozen=True)
class DenseIndRnnConfig(CellConfig):
    """Settings of a dense IndRNN: those of its cells (`CellConfig`), and its sizes.

    `dropout` is the rate after a bottleneck or a transition; elsewhere it is twice this.

    Attributes:
        growth: number of units g that a dense layer adds.
        blocks: number of dense layers in each block.
        first: the first layer has first·g units.
    """

    growth: Width = 16
    blocks: tuple[Layers, ...] = (8, 6, 4)
    first: Layers = 6

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.blocks:
            fail("blocks", "at least one block", self.blocks)


class IndRnn(IndNetwork[IndRnnConfig]):
    r"""IndRNN, `Li et al. 2018 <https://arxiv.org/abs/1803.04831>`_.

        h' = ReLU(W x + b + u ⊙ h)      in each of L layers, then batch norm and dropout

    u is one number per unit: the Jacobian of a layer in time is diagonal, diag(1[h' > 0] ⊙ u), and
    over k steps diag(uᵏ) as long as the unit is alive. |u| ≤ magnitude^(1/T). Batch norm has one
    statistic per unit over batch *and* time.

    Count: I·N + N + (L−1)(N² + N) + 3NL, and 10N + 10 for a readout: 86,410 for 6 layers of 128,
    187,786 for 12, as in the published logs (the table has none). Without batch norm 2NL less:
    17,281 for the adding problem's 2 × 128.

    Start: u ~ U(0, bound), of the last layer U(1/bound, bound) (in the published code this
    option looks for a name that does not exist and never fires); W Kaiming uniform with a = 8,
    b = 0.

    Example:
        >>> system = IndRnn(1, IndRnnConfig(4, layers=1, horizon=100))
        >>> J = torch.func.jacrev(system.step)(torch.rand(4), torch.ones(1))
        >>> bool((J - torch.diag(J.diagonal())).abs().max() == 0)
        True
    """

    def layout(self) -> Layout:
        N, L = self.config.hidden_size, self.config.layers
        maps = list(pairwise([self.input_size] + [N] * L))
        return maps, [(N, self.config.dropout)] * L

    def wire(self, y: Tensor, mix: Map, recur: Map) -> Tensor:
        """Layer after layer."""
        for _ in self.sizes:
            y = recur(mix(y))
        return y


class ResidualIndRnn(IndNetwork[ResidualIndRnnConfig]):
    r"""Residual IndRNN, `Li et al. 2019 <https://arxiv.org/abs/1910.06251>`_.

        y = W x + b;   y ← y + [cell, affine, cell, affine](y), `blocks` times;   output cell(y)

    with cell = ReLU(· + u ⊙ h), batch norm, dropout (pre-activation; the published code's order).

    Count: I·N + N + 2·blocks·(N² + N) + 3N(2·blocks + 1), and 10N + 10 for a readout: 170,890 for
    5 blocks of 128, as in the published log. The paper calls this "12 layers"; its code has 11
    recurrences.

    Start: as `IndRnn`.
    """

    def layout(self) -> Layout:
        N, count = self.config.hidden_size, 2 * self.config.blocks
        maps = [(self.input_size, N)] + [(N, N)] * count
        return maps, [(N, self.config.dropout)] * (count + 1)

    def wire(self, y: Tensor, mix: Map, recur: Map) -> Tensor:
        """Blocks around a skip."""
        y = mix(y)
        for _ in range(self.config.blocks):
            y = y + mix(recur(mix(recur(y))))
        return recur(y)


class DenseIndRnn(IndNetwork[DenseIndRnnConfig]):
    r"""Dense IndRNN, `Li et al. 2019 <https://arxiv.org/abs/1910.06251>`_.

        y = cell(W x + b) of first·g units
        a dense layer:  y ← [y; cell(W₂ cell(W₁ y + b₁) + b₂)],  4g units inside, g added
        a transition:   y ← cell(W y + b), half as many units, after every block

    Count: the sum over the maps and cells above; 256,514 for g = 16, blocks (8, 6, 4), first 6,
    with the readout of the last 84 units, as in the published log.

    Start: as `IndRnn`.
    """

    def layout(self) -> Layout:
        g, rate = self.config.growth, self.config.dropout
        width = self.config.first * g
        maps, cells = [(self.input_size, width)], [(width, 2 * rate)]
        for layers in self.config.blocks:
            for _ in range(layers):
                maps += [(width, 4 * g), (4 * g, g)]
                cells += [(4 * g, rate), (g, 2 * rate)]
                width += g
            maps += [(width, width // 2)]
            cells += [(width // 2, rate)]
            width //= 2
        return maps, cells

    def wire(self, y: Tensor, mix: Map, recur: Map) -> Tensor:
        """Blocks of dense layers, each followed by a transition."""
        y = recur(mix(y))
        for layers in self.config.blocks:
            for _ in range(layers):
                y = torch.cat([y, recur(mix(recur(mix(y))))], -1)
            y = recur(mix(y))
        return y


# github.com/Sunnydreamrain/IndRNN_pytorch: pixelMNIST/run*.sh, opts.py. Weight decay 1e-4 except
# on u and biases, gradients clipped to ±10 entry by entry, lr × 0.1 on plateaus.
_PSMNIST = training("adam", 2e-4, batch_size=32, weight_decay=1e-4, clip_value=10.0)
# The paper: lr ÷ 10 every 20k steps.
_ADDING = IndRnnConfig(magnitude=2.0, batch_norm=False, dropout=0.0, layers=2)

PLAIN = row(
    IndRnn,
    IndRnnConfig(hidden_size=4, layers=2),
    {
        "psmnist": Preset("psmnist", IndRnnConfig(), 86_410, _PSMNIST),
        "psmnist-12": Preset("psmnist", IndRnnConfig(layers=12), 187_786, _PSMNIST),
        "adding": Preset("adding", _ADDING, 17_281, training("adam", 2e-4)),
    },
    horizon="horizon",
)
RESIDUAL = row(
    ResidualIndRnn,
    ResidualIndRnnConfig(hidden_size=3, blocks=1),
    {"psmnist": Preset("psmnist", ResidualIndRnnConfig(), 170_890, _PSMNIST)},
    horizon="horizon",
)
DENSE = row(
    DenseIndRnn,
    DenseIndRnnConfig(growth=1, blocks=(1, 1), first=3),
    {"psmnist": Preset("psmnist", DenseIndRnnConfig(), 256_514, _PSMNIST)},
    horizon="horizon",
)
