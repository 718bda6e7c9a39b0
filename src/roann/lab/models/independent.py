"""Units that recur alone: the cell of IndRNN, its scan, and networks wired from such cells."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, TypeVar, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import Horizon, Range, Settings, fail
from roann.lab.models.recurrence import ConfiguredSystem, Factory, first_state, parameter

Map = Callable[[Tensor], Tensor]
Layout = tuple[list[tuple[int, int]], list[tuple[int, float]]]
"""(inputs, outputs) of every affine map, and (size, dropout) of every cell, in the order of use."""
C = TypeVar("C", bound="CellConfig")


@dataclass(frozen=True, kw_only=True)
class CellConfig(Settings):
    """Settings of the cells of every IndRNN.

    Attributes:
        magnitude: |u| ≤ magnitude^(1/horizon), so that no unit grows by more over a sequence.
        horizon: length of the sequences; the task's if not given.
        batch_norm: whether every recurrence is followed by batch normalisation.
        dropout: dropout rate after that; one mask for all steps.
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
    """ReLU(d + u ⊙ h), then batch normalisation over batch and time, then dropout.

    u is kept within ±bound: before every sequence in training mode by projection, as published,
    and wherever it is used, so that the last update is bounded too.

    Args:
        size: N.
        bound: of |u|.
        batch_norm: whether to normalise.
        dropout: the rate; one mask for all steps.
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
        return self._run(u, first_state(self, u, state), IndependentCell.__call__)

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

    def _cells(self) -> Iterator[IndependentCell]:
        for cell in self.cells:
            assert isinstance(cell, IndependentCell)
            yield cell

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
