"""IndRNN, plain, residual and dense: units that recur alone, mixed in depth."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeVar, Unpack, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import Horizon, Layers, Range, Settings, Width, fail
from roann.lab.models.base import Preset, adam
from roann.lab.models.recurrence import ConfiguredSystem, Factory, parameter, row

Map = Callable[[Tensor], Tensor]
Layout = tuple[list[tuple[int, int]], list[tuple[int, float]]]
"""(inputs, outputs) of every affine map, and (size, dropout) of every cell, in the order of use."""
C = TypeVar("C", bound="CellConfig")


@dataclass(frozen=True, kw_only=True)
class CellConfig(Settings):
    """Settings of the cells of every IndRNN.

    Attributes:
        magnitude: largest growth of a unit over a sequence; |u| ≤ magnitude^(1/horizon).
        horizon: length of the sequences; the task's if not given.
        batch_norm: whether every recurrence is followed by batch normalisation.
        dropout: dropout rate after each recurrence; one mask for all steps.
    """

    magnitude: Annotated[float, Range(1, 1e6)] = 5.0
    horizon: Horizon | None = None
    batch_norm: bool = True
    dropout: Annotated[float, Range(0, 0.49)] = 0.1


class IndependentScan(torch.autograd.Function):
    """h[k+1] = ReLU(d[k+1] + u ⊙ h[k]) for d (T, B, N), u (N,), h[0] (B, N): all states (T, B, N).

    The adjoint is one multiply-add per step, a[k] = 1[h[k] > 0] (g[k] + u a[k+1]), in place.
    """

    @staticmethod
    def forward(ctx: Any, d: Tensor, u: Tensor, h: Tensor) -> Tensor:
        """All states."""
        states, before = torch.empty_like(d), h
        for d_k, h_k in zip(d.unbind(0), states.unbind(0), strict=True):
            torch.addcmul(d_k, u, before, out=h_k).relu_()
            before = h_k
        ctx.save_for_backward(states, u, h)
        return states

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of d, u and h[0]."""
        states, u, h = ctx.saved_tensors
        alive = (states > 0).to(g.dtype)
        a, pull = g * alive, alive * u
        steps = list(zip(a.unbind(0), pull.unbind(0), strict=True))
        for (a_next, _), (a_k, pull_k) in pairwise(reversed(steps)):
            a_k.addcmul_(pull_k, a_next)
        before = torch.cat([h.unsqueeze(0), states[:-1]])
        return a, (a * before).sum((0, 1)), u * a[0]


class IndependentCell(nn.Module):
    """ReLU(d + u ⊙ h), then batch norm over batch and time, then dropout, one mask for all steps.

    u is kept within ±bound: before every sequence in training mode by projection, as published,
    and wherever it is used, so that the last update is bounded too.
    """

    def __init__(
        self, size: int, bound: float, batch_norm: bool, dropout: float, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        self.bound, self.dropout = bound, dropout
        self.u = parameter(size, **factory)
        self.norm = nn.BatchNorm1d(size, **factory) if batch_norm else None

    def bounded(self) -> Tensor:
        """u within ±bound."""
        return self.u.clamp(-self.bound, self.bound)

    def forward(self, d: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """From d (T, B, N) and h[0] (B, N) to the outputs (T, B, N) and h[T]."""
        with torch.no_grad():
            if self.training and bool((self.u.abs() > self.bound).any()):
                self.u.clamp_(-self.bound, self.bound)
        states: Tensor = IndependentScan.apply(d, self.bounded(), h)  # type: ignore[no-untyped-call]
        y = states
        if self.norm is not None:
            y = self.norm(y.flatten(0, 1)).view_as(y)
        if self.training and self.dropout:
            y = y * F.dropout(torch.ones_like(y[0]), self.dropout)
        return y, states[-1]

    def step(self, d: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """From d and h (…, N) to the output and the next h, with the running statistics."""
        h = torch.relu(d + self.bounded() * h)
        return self.finish(h), h

    def finish(self, h: Tensor) -> Tensor:
        """The output in the state h (…, N), with the running statistics and no dropout."""
        if self.norm is None:
            return h
        n = self.norm
        assert n.running_mean is not None
        assert n.running_var is not None
        scale = n.weight * torch.rsqrt(n.running_var + n.eps)
        return (h - n.running_mean) * scale + n.bias


class IndNetwork(ConfiguredSystem[C]):
    """Abstract: affine maps and independent cells, wired by `wire`.

    The state is the h of all cells, one after the other; the output is that of the last cell.
    """

    head_init = "kaiming_normal"

    @abstractmethod
    def layout(self) -> Layout:
        """The maps and cells of the network."""

    def _build(self, **factory: Unpack[Factory]) -> None:
        config, (maps, cells) = self.config, self.layout()
        if config.horizon is None:
            fail("horizon", "the length of the sequences", None, "it bounds |u|")
        bound = config.magnitude ** (1 / config.horizon)
        self.sizes = [size for size, _ in cells]
        self.state_size, self.output_size = sum(self.sizes), self.sizes[-1]
        self.W = nn.ParameterList(parameter(n_out, n_in, **factory) for n_in, n_out in maps)
        self.b = nn.ParameterList(parameter(n_out, **factory) for _, n_out in maps)
        self.cells = nn.ModuleList(
            IndependentCell(size, bound, config.batch_norm, rate, **factory) for size, rate in cells
        )

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values: u ~ U(0, bound), of the last cell U(1/bound, bound)."""
        for W, b in zip(self.W, self.b, strict=True):
            nn.init.kaiming_uniform_(W, a=8, generator=generator)
            nn.init.zeros_(b)
        for cell in self._cells():
            low = 1 / cell.bound if cell is self.cells[-1] else 0.0
            nn.init.uniform_(cell.u, low, cell.bound, generator=generator)
            if cell.norm is not None:
                cell.norm.reset_parameters()

    @abstractmethod
    def wire(self, y: Tensor, mix: Map, recur: Map) -> Tensor:
        """From the inputs to the output; `mix` is the next affine map, `recur` the next cell."""

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(u, self.start(u, state), IndependentCell.__call__)

    def last(self, u: Tensor, state: Tensor | None = None) -> Tensor:
        """The output after the whole of u; in training mode with the statistics of the batch."""
        return self.forward(u, state)[0][-1]

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """One step, with the running statistics and no dropout."""
        return self._run(u, x, IndependentCell.step)[1]

    def read(self, x: Tensor) -> Tensor:
        """The output of the last cell, with the running statistics."""
        *_, cell = self._cells()
        return cell.finish(x[..., -self.output_size :])

    def _cells(self) -> Iterable[IndependentCell]:
        return cast("Iterable[IndependentCell]", self.cells)

    def _run(
        self, u: Tensor, x: Tensor, verb: Callable[[IndependentCell, Tensor, Tensor], Any]
    ) -> tuple[Tensor, Tensor]:
        maps = zip(self.W, self.b, strict=True)
        cells = zip(self._cells(), torch.split(x, self.sizes, -1), strict=True)
        after: list[Tensor] = []

        def mix(y: Tensor) -> Tensor:
            W, b = next(maps)
            return F.linear(y, W, b)

        def recur(y: Tensor) -> Tensor:
            cell, h = next(cells)
            y, h = verb(cell, y, h)
            after.append(h)
            return y

        return self.wire(u, mix, recur), torch.cat(after, -1)


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
        first: size of the first layer, in multiples of growth.
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

    Start: u ~ U(0, bound), of the last layer U(1/bound, bound) (in the published code this option
    looks for a name that does not exist and never fires); W Kaiming uniform with a = 8, b = 0.

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
        for _ in self.sizes:
            y = recur(mix(y))
        return y


class ResidualIndRnn(IndNetwork[ResidualIndRnnConfig]):
    r"""Residual IndRNN, `Li et al. 2019 <https://arxiv.org/abs/1910.06251>`_.

        y = W x + b;   y ← y + [cell, affine, cell, affine](y), `blocks` times;   output cell(y)

    with cell = ReLU(· + u ⊙ h), batch norm, dropout (pre-activation; the published code's order).

    Count: I·N + N + 2·blocks·(N² + N) + 3N(2·blocks + 1), and 10N + 10 for a readout: 170,890 for
    5 blocks of 128, as in the published log. The paper says 12 layers; its code has 11.

    Start: as `IndRnn`.
    """

    def layout(self) -> Layout:
        N, count = self.config.hidden_size, 2 * self.config.blocks
        maps = [(self.input_size, N)] + [(N, N)] * count
        return maps, [(N, self.config.dropout)] * (count + 1)

    def wire(self, y: Tensor, mix: Map, recur: Map) -> Tensor:
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
        y = recur(mix(y))
        for layers in self.config.blocks:
            for _ in range(layers):
                y = torch.cat([y, recur(mix(recur(mix(y))))], -1)
            y = recur(mix(y))
        return y


# github.com/Sunnydreamrain/IndRNN_pytorch: pixelMNIST/run*.sh, opts.py. Weight decay 1e-4 except
# on u and biases, gradients clipped to ±10 entry by entry, lr × 0.1 on plateaus.
_PSMNIST = adam(2e-4, batch_size=32, weight_decay=1e-4, clip_value=10.0)
# The paper: lr ÷ 10 every 20k steps.
_ADDING = IndRnnConfig(magnitude=2.0, batch_norm=False, dropout=0.0, layers=2)

PLAIN_PRESETS = [
    Preset("psmnist", IndRnnConfig(), 86_410, _PSMNIST),
    Preset("psmnist", IndRnnConfig(layers=12), 187_786, _PSMNIST, name="psmnist-12"),
    Preset("adding", _ADDING, 17_281, adam(2e-4)),
]
RESIDUAL_PRESETS = [Preset("psmnist", ResidualIndRnnConfig(), 170_890, _PSMNIST)]
DENSE_PRESETS = [Preset("psmnist", DenseIndRnnConfig(), 256_514, _PSMNIST)]
PLAIN = row(IndRnn, IndRnnConfig(hidden_size=4, layers=2), PLAIN_PRESETS)
RESIDUAL = row(ResidualIndRnn, ResidualIndRnnConfig(hidden_size=3, blocks=1), RESIDUAL_PRESETS)
DENSE = row(DenseIndRnn, DenseIndRnnConfig(growth=1, blocks=(1, 1), first=3), DENSE_PRESETS)
