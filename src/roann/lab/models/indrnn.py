"""IndRNN, plain, residual and dense: units that recur alone, mixed in depth."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import Horizon, Layers, Range, Settings, Width, fail
from roann.lab.models.recurrence import ConfiguredSystem, Source, row

Mix = Callable[[Tensor, int], Tensor]
Recur = Callable[[Tensor, float], Tensor]
C = TypeVar("C", bound="CellConfig")


class CellConfig(Settings, kw_only=True):
    """Settings of the cells of every IndRNN."""

    # largest growth of a unit over a sequence; |u| ≤ magnitude^(1/horizon).
    magnitude: Annotated[float, Range(1, 1e6)] = 5.0
    horizon: Horizon | None = None  # length of the sequences; the task's if not given.
    batch_norm: bool = True  # whether every recurrence is followed by batch normalisation.
    # dropout rate after each recurrence; one mask for all steps.
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
        self, size: int, low: float, bound: float, batch_norm: bool, dropout: float, new: Source
    ) -> None:
        super().__init__()
        self.bound, self.dropout = bound, dropout
        self.u = new.drawn(partial(nn.init.uniform_, a=low, b=bound), size)
        self.norm = nn.BatchNorm1d(size, **new.factory) if batch_norm else None

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

    def build(self, new: Source) -> None:
        """First values: u ~ U(0, bound), of the last cell U(1/bound, bound)."""
        config = self.config
        if config.horizon is None:
            fail("horizon", "the length of the sequences", None, "it bounds |u|")
        bound = config.magnitude ** (1 / config.horizon)
        maps: list[tuple[int, int]] = []
        cells: list[tuple[int, float]] = []

        def mix(y: Tensor, size: int) -> Tensor:
            maps.append((size, len(y)))
            return y.new_empty(size)

        def recur(y: Tensor, dropout: float) -> Tensor:
            cells.append((len(y), dropout))
            return y

        self.wire(torch.empty(self.input_size, device="meta"), mix, recur)  # for the sizes alone
        self.sizes = [size for size, _ in cells]
        self.state_size, self.output_size = sum(self.sizes), self.sizes[-1]
        start = partial(nn.init.kaiming_uniform_, a=8)
        self.W = nn.ParameterList(new.drawn(start, *shape) for shape in maps)
        self.b = nn.ParameterList(new.constant(0, size) for size, _ in maps)
        lows = [0.0] * (len(cells) - 1) + [1 / bound]
        self.cells = nn.ModuleList(
            IndependentCell(size, low, bound, config.batch_norm, rate, new)
            for (size, rate), low in zip(cells, lows, strict=True)
        )

    @abstractmethod
    def wire(self, y: Tensor, mix: Mix, recur: Recur) -> Tensor:
        """From the inputs y (…, I) to the output, by affine maps and cells in the order of calls.

        Args:
            y: the inputs.
            mix: the next affine map, of a given output size.
            recur: the next cell, of a given dropout rate.
        """

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
        last: Any = self.cells[-1]
        output: Tensor = last.finish(x[..., -self.output_size :])
        return output

    def _run(self, u: Tensor, x: Tensor, verb: Callable[..., Any]) -> tuple[Tensor, Tensor]:
        maps = zip(self.W, self.b, strict=True)
        cells = zip(self.cells, torch.split(x, self.sizes, -1), strict=True)
        after: list[Tensor] = []

        def mix(y: Tensor, _: int) -> Tensor:
            W, b = next(maps)
            return F.linear(y, W, b)

        def recur(y: Tensor, _: float) -> Tensor:
            cell, h = next(cells)
            y, h = verb(cell, y, h)
            after.append(h)
            return y

        return self.wire(u, mix, recur), torch.cat(after, -1)


class IndRnnConfig(CellConfig):
    """Settings of a plain IndRNN: those of its cells (`CellConfig`), and its sizes."""

    hidden_size: Width = 128  # number of hidden units N in each layer.
    layers: Layers = 6  # number of layers, L.


class ResidualIndRnnConfig(CellConfig):
    """Settings of a residual IndRNN: those of its cells (`CellConfig`), and its sizes."""

    hidden_size: Width = 128  # number of hidden units, N.
    blocks: Layers = 5  # number of residual blocks, of two recurrences each.


class DenseIndRnnConfig(CellConfig):
    """Settings of a dense IndRNN: those of its cells (`CellConfig`), and its sizes.

    `dropout` is the rate after a bottleneck or a transition; elsewhere it is twice this.
    """

    growth: Width = 16  # number of units g that a dense layer adds.
    blocks: tuple[Layers, ...] = (8, 6, 4)  # number of dense layers in each block.
    first: Layers = 6  # size of the first layer, in multiples of growth.

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

    def wire(self, y: Tensor, mix: Mix, recur: Recur) -> Tensor:
        for _ in range(self.config.layers):
            y = recur(mix(y, self.config.hidden_size), self.config.dropout)
        return y


class ResidualIndRnn(IndNetwork[ResidualIndRnnConfig]):
    r"""Residual IndRNN, `Li et al. 2019 <https://arxiv.org/abs/1910.06251>`_.

        y = W x + b;   y ← y + [cell, affine, cell, affine](y), `blocks` times;   output cell(y)

    with cell = ReLU(· + u ⊙ h), batch norm, dropout (pre-activation; the published code's order).

    Count: I·N + N + 2·blocks·(N² + N) + 3N(2·blocks + 1), and 10N + 10 for a readout: 170,890 for
    5 blocks of 128, as in the published log. The paper says 12 layers; its code has 11.
    """

    def wire(self, y: Tensor, mix: Mix, recur: Recur) -> Tensor:
        N, rate = self.config.hidden_size, self.config.dropout
        y = mix(y, N)
        for _ in range(self.config.blocks):
            y = y + mix(recur(mix(recur(y, rate), N), rate), N)
        return recur(y, rate)


class DenseIndRnn(IndNetwork[DenseIndRnnConfig]):
    r"""Dense IndRNN, `Li et al. 2019 <https://arxiv.org/abs/1910.06251>`_.

        y = cell(W x + b) of first·g units
        a dense layer:  y ← [y; cell(W₂ cell(W₁ y + b₁) + b₂)],  4g units inside, g added
        a transition:   y ← cell(W y + b), half as many units, after every block

    Count: the sum over the maps and cells above; 256,514 for g = 16, blocks (8, 6, 4), first 6,
    with the readout of the last 84 units, as in the published log.
    """

    def wire(self, y: Tensor, mix: Mix, recur: Recur) -> Tensor:
        g, rate = self.config.growth, self.config.dropout
        y = recur(mix(y, self.config.first * g), 2 * rate)
        for layers in self.config.blocks:
            for _ in range(layers):
                inside = recur(mix(y, 4 * g), rate)
                y = torch.cat([y, recur(mix(inside, g), 2 * rate)], -1)
            y = recur(mix(y, y.shape[-1] // 2), rate)
        return y


PLAIN = row(IndRnn, IndRnnConfig(hidden_size=4, layers=2))
RESIDUAL = row(ResidualIndRnn, ResidualIndRnnConfig(hidden_size=3, blocks=1))
DENSE = row(DenseIndRnn, DenseIndRnnConfig(growth=1, blocks=(1, 1), first=3))
