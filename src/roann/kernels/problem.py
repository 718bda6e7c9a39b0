"""What a kernel is asked to do, and what it must offer.

Note [One array for two]
    The way back needs φ′(y[k]); to learn α it also needs φ(y[k]) − O x[k], by which x[k+1] moves
    with α. Both follow from x[k+1] = α φ + (1 − α) O x, which is kept anyway, and one of the two
    terms: φ′ is a function of φ (see `Activation.slope`), and
        φ − O x = (φ − x[k+1]) / (1 − α) = (x[k+1] − O x) / α.
    So where α is learned, a sweep keeps φ in place of φ′; only where α > `LARGE_ALPHA` it keeps
    O x, so that nothing is divided by less than 1/16. φ is the better part to keep: found from
    x[k+1] and O x, it carries the rounding of these, which may be large where φ is bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from roann import _checks
from roann.kernels.activations import Activation
from roann.kernels.linear import Linear
from roann.kernels.ragged import Ragged

_RIGHT: set[Any] = set()  # shapes and dtypes of problems that passed `Problem.check`
_REMEMBERED = 1024
LARGE_ALPHA = 15 / 16  # see Note [One array for two]
Room = tuple[tuple[int, ...], torch.dtype]
Maybe = Tensor | None
Before = tuple[Tensor, Tensor, Maybe]  # states before each step, see `Problem.before`


@dataclass(slots=True)  # not frozen, which makes one eight times as slow to build
class Problem:
    """One scan: x[k+1] = α φ(W x[k] + W_i u[k+1] + b) + (1 − α) O x[k], k = 0 … T−1.

    Shapes: B batch, T steps, N state, I input. A leading T on W, b, α or O means one per step
    (depth); without it, shared by all steps (time). W and O may be rectangular only if T = 1.
    An array over time (u, states, …) is (T, B, ·), or (S, ·) where sequences are of unequal length
    (`ragged`): then it holds the rows that move, step after step.
    """

    x0: Tensor  # (B, N)
    u: Tensor | None  # (T, B, I) or (S, I)
    W: Tensor  # (N, N) or (T, N, N)
    W_i: Tensor | None  # (N, I), with u
    b: Tensor | None  # (N,) or (T, N)
    O: Linear
    alpha: Tensor  # (), (N,), (T, 1) or (T, N)
    phi: Activation
    steps: int  # T
    ragged: Ragged | None = None  # how many rows move at each step; the others keep their state
    terms: bool = False  # whether the trace serves to learn α, see Note [One array for two]

    def tensors(self) -> tuple[Tensor | None, ...]:
        """Every tensor, in the order of the operators: that of `LEAVES`, then those of O."""
        return (self.x0, self.u, self.W, self.W_i, self.b, self.alpha, *self.O.tensors())

    def check(self) -> None:
        """Validate shapes and dtypes: kernels index memory by them.

        A call of microseconds is checked several times on its way there and back, so shapes and
        dtypes that have been found right are remembered. Those of tensors that a compiler or
        tracer follows may be symbols, and are not.
        """
        if self.ragged is not None or type(self.x0) is not Tensor:
            self._check()
            return
        facts = [None if t is None else (t.shape, t.dtype) for t in self.tensors()]
        key = (self.steps, type(self.O), *facts)
        if key not in _RIGHT:
            self._check()
            if len(_RIGHT) >= _REMEMBERED:
                _RIGHT.clear()
            _RIGHT.add(key)

    def _check(self) -> None:
        if self.x0.dim() != 2 or self.W.dim() not in (2, 3):
            got = f"{tuple(self.x0.shape)} and {tuple(self.W.shape)}"
            _checks.fail("x0 and W", "shapes (B, N) and (N, N) or (T, N, N)", got)
        T, N, out = self.steps, self.x0.shape[1], self.W.shape[-2]
        if T > 1 and out != N:
            _checks.fail("W", f"shape ({N}, {N}) or ({T}, {N}, {N})", tuple(self.W.shape))
        if (self.u is None) != (self.W_i is None):
            _checks.fail("u and W_i", "both or neither", "one of them")
        I = 0 if self.W_i is None else self.W_i.shape[-1]
        real = self.x0.dtype
        _fits("W", self.W, [(out, N), (T, out, N)], real)
        _fits("u", self.u, [self.shape(I)], real)
        _fits("W_i", self.W_i, [(out, I)], real)
        _fits("b", self.b, [(out,), (T, out)], real)
        _fits("alpha", self.alpha, [(), (out,), (T, 1), (T, out)], real)
        of_O = zip(self.O.names, self.O.tensors(), self.O.shapes(out, N), strict=True)
        for name, t, one in of_O:
            dtype = torch.int64 if name in self.O.integers else real
            _fits("O", t, [(T, *one) if self.O.stacked else one], dtype, [one, (T, *one)])

    def readable(self) -> Problem:
        """The same with u in memory row by row, as kernels read it."""
        if self.u is None or self.u.is_contiguous():
            return self
        return replace(self, u=self.u.contiguous())

    def rows(self, k: int) -> int:
        """How many rows move at step k."""
        return self.x0.shape[0] if self.ragged is None else self.ragged.sizes[k]

    def alpha_at(self, k: int) -> Tensor:
        """α of step k: a scalar or (N,)."""
        return self.alpha[k] if self.alpha.dim() == 2 else self.alpha

    def shape(self, width: int) -> tuple[int, ...]:
        """The shape of an array over time: (T, B, width) or (S, width)."""
        if self.ragged is None:
            return self.steps, self.x0.shape[0], width
        return self.ragged.starts[-1], width

    def cut(self, start: int, stop: int) -> slice:
        """Steps start … stop − 1 of an array over time."""
        if self.ragged is None:
            return slice(start, stop)
        return slice(self.ragged.starts[start], self.ragged.starts[stop])

    def at(self, array: Tensor, k: int) -> Tensor:
        """Step k of an array over time: (rows, ·)."""
        return array[k] if self.ragged is None else array[self.cut(k, k + 1)]

    def final(self, states: Tensor) -> Tensor:
        """x[T] as (B, N), from x[1] … x[T]."""
        if self.ragged is None:
            return states[-1]
        moved = states.index_select(0, self.ragged.final.to(states.device))
        return torch.cat([moved, self.x0[moved.shape[0] :]])

    def before(self, states: Tensor) -> Before:
        """x[k] of every row before it moves, from x[1] … x[T]: those of the first step, those of
        all others, and where among the latter each row is found, if they do not lie in order.
        """
        if self.ragged is None:
            return self.x0, states[:-1], None
        return self.x0[: self.rows(0)], states, self.ragged.before.to(states.device)

    def apart(self, previous: Tensor) -> Before:
        """What `before` gives, from x[0] … x[T−1] over time."""
        first = 1 if self.ragged is None else self.rows(0)
        return previous[:first].flatten(0, -2), previous[first:], None

    def segment(self, start: int, stop: int, x0: Tensor) -> Problem:
        """The same scan over steps start … stop − 1, from x[start] = x0."""
        if x0 is self.x0 and stop - start == self.steps:
            return self
        cut = slice(start, stop)
        return replace(
            self,
            x0=x0,
            u=None if self.u is None else self.u[self.cut(start, stop)],
            W=self.W[cut] if self.W.dim() == 3 else self.W,
            b=self.b[cut] if self.b is not None and self.b.dim() == 2 else self.b,
            O=self.O.segment(start, stop),
            alpha=self.alpha[cut] if self.alpha.dim() == 2 else self.alpha,
            steps=stop - start,
            ragged=None if self.ragged is None else Ragged(self.ragged.sizes[cut]),
        )


def _fits(
    name: str,
    t: Tensor | None,
    shapes: list[tuple[int, ...]],
    dtype: torch.dtype,
    said: list[tuple[int, ...]] | None = None,
) -> None:
    """An error unless t has one of these shapes and this dtype."""
    if t is None:
        return
    # By rank first: a length that a compiler does not know yet is compared with itself alone.
    rank, shape = t.dim(), t.shape
    for wanted in shapes:
        if len(wanted) == rank and shape == wanted:
            break
    else:
        _checks.fail(name, "shape " + " or ".join(map(str, said or shapes)), tuple(shape))
    if t.dtype != dtype:
        _checks.fail(name, f"dtype {dtype}", t.dtype, f"cast it to {dtype}")


class Adjoint(NamedTuple):
    """What a backward sweep finds, with λ[k] = ∂ℓ/∂x[k] in full."""

    a: Tensor | None  # α φ′(y[k]) λ[k+1] over time; None if `W` is there and nothing else asks
    first: Tensor  # λ[0], (B, N)
    moved: Tensor | None  # λ[k+1] (φ(y[k]) − O x[k]) over time, if `p.terms`
    W: Tensor | None = None  # the gradient of a W of each step, (T, N, N), if the sweep made it
    b: Tensor | None = None  # with `W`, that of a b of each step, (T, N)


class Undone(NamedTuple):
    """What an inverse sweep finds."""

    previous: Tensor  # x[0] … x[T−1] over time
    first: Tensor  # x[0], (B, N)
    trace: Tensor  # see `Kernel`
    after: Tensor | None  # x[1] … x[T] over time, if `p.terms`


class Kernel(Protocol):
    """The sweeps of a fast kernel; everything else (parameter gradients, memory) is shared.

    None records a graph or writes to what it is given; all are called with tensors of one float
    dtype on one device. The trace that `forward` and `inverse` leave for `backward` is φ′(y[k])
    or, if `p.terms`, what Note [One array for two] says, in a form of the kernel's own; plain
    arrays over time are taken too.
    """

    def supports(self, p: Problem) -> bool:
        """Whether this kernel can do p."""

    def trace_room(self, p: Problem) -> Room:
        """Shape and dtype of the trace of `forward`; asked of tensors that may hold no data."""

    def forward(self, p: Problem, keep: bool) -> tuple[Tensor, Tensor | None]:
        """The states x[1] … x[T] over time and, if asked, the trace."""

    def backward(
        self, p: Problem, trace: Tensor, after: Maybe, g_states: Maybe, g_last: Maybe,
        before: Before | None = None,
    ) -> Adjoint:  # fmt: skip
        """The adjoint sweep, from ∂ℓ/∂states (over time) and ∂ℓ/∂x[T] (B, N); either may be None.

        `after`, x[1] … x[T] over time, is read if `p.terms`. With `before`, see `Problem.before`,
        it may also make the gradients of what every step has of its own.
        """

    def inverse(self, p: Problem, last: Tensor, rounds: int) -> Undone:
        """The way back.

        From x[T] = `last`, each step undone by `rounds` rounds of a contraction, see Note [Undoing
        a step] in memory.py; `p.x0` is not read.
        """

    def add_outer(
        self, a: Tensor, x: Tensor, u: Maybe, W: Maybe, W_i: Maybe, b: Maybe, places: Maybe = None
    ) -> None:
        """W += aᵀ x, W_i += aᵀ u and b += aᵀ 1, each if it is there.

        a, x, or x[places], and u have a row for every row of the batch and step. They are summed in
        an order that does not depend on the number of threads.
        """
