"""What a scan remembers between its forward and its backward pass.

store        the states, and the slopes or what they follow from: two (T, B, N) arrays, or one and
             a mask; no extra work.
checkpoint   every √T-th state: exact, O(√T) memory, one more forward pass.
reversible   a fixed number of states: O(1) memory in T. Each state is found again from the next.

Note [Undoing a step]
    x[k+1] = α φ(W x + c) + (1 − α) O x is solved for x by iterating
    x ← Oᵀ(x[k+1] − α φ(W x + c)) / (1 − α), a contraction with factor q = α r ‖W‖ / (1 − α).
    q < 1 is α (1 + r ‖W‖) < 1: the very hypothesis of Theorem III.1. From the first guess
    Oᵀ x[k+1] / (1 − α) the error falls by q each time, so log(eps) / log(q) rounds reach rounding.
    Rounding itself grows backwards by at most 1 / (1 − α (1 + r ‖W‖)) a step; a few exact states
    (anchors) stop that growth and measure it. Where it exceeds the tolerance, the stretch behind
    the anchor is done again from its exact state, with a warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from roann.kernels.gradients import Gradients
from roann.kernels.problem import Before, Kernel, Maybe, Problem, Room
from roann.theorem import power_norms, schatten

ANCHORS = 64  # exact states the reversible mode keeps, at most, whatever T
BLOCK = 1 << 21  # numbers in one (steps, B, N) block of the reversible mode
STRETCH = 1 << 22  # numbers in a stretch that is recomputed: below, calls cost more than memory


class DriftWarning(UserWarning):
    """A reversible scan could not be undone accurately and was recomputed."""


Found = tuple[Tensor | None, Tensor, Tensor]  # the states if wanted, x[T], what to keep


class Memory(Protocol):
    """A way to remember a scan."""

    needs_states: bool  # whether `backward` reads the states that `forward` found

    def forward(self, kernel: Kernel, p: Problem, last_only: bool) -> Found:
        """(the states, or None if only x[T] is wanted; x[T]; what to keep for `backward`)."""

    def room(self, kernel: Kernel, p: Problem) -> Room:
        """Shape and dtype of what `forward` keeps; asked of tensors that may hold no data."""

    def backward(self, way: Way, states: Maybe, kept: Tensor, g_last: Maybe) -> Tensor:
        """∂ℓ/∂x[0], with everything else added to `way.grads`."""


class Way(NamedTuple):
    """The way back through a scan, which may be gone in pieces; `grads` collects what they add."""

    kernel: Kernel
    p: Problem
    g_states: Tensor | None
    grads: Gradients

    def sweep(
        self, piece: Problem, start: int, before: Callable[[], Before], after: Maybe,
        trace: Tensor, lam: Maybe,
    ) -> Tensor:  # fmt: skip
        """The adjoint of a piece of known states that begins at step `start`; its λ[0].

        States that must be gathered are asked for after the sweep: threads of torch that have just
        done so would keep its processors busy waiting.
        """
        g = self.g_states
        if g is not None and piece.steps < self.p.steps:
            g = g[self.p.cut(start, start + piece.steps)]
        at_hand = before() if piece.ragged is None else None
        found = self.kernel.backward(piece, trace, after, g, lam, at_hand)
        self.grads.add(piece, start, at_hand or before(), found, self.kernel)
        return found.first

    def recompute(self, start: int, stop: int, marks: Tensor, lam: Tensor | None) -> Tensor:
        """The adjoint of steps start … stop − 1, each stretch recomputed from its mark."""
        stride = _stretch(self.p.segment(start, stop, self.p.x0))
        for i in reversed(range(len(marks))):
            low, high = start + i * stride, min(start + (i + 1) * stride, stop)
            piece = self.p.segment(low, high, marks[i])
            states, trace = self.kernel.forward(piece, True)
            assert trace is not None
            lam = self.sweep(piece, low, partial(piece.before, states), states, trace, lam)
        assert lam is not None
        return lam

    def undo(
        self, start: int, stop: int, x: Tensor, rounds: int, lam: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The adjoint of steps start … stop − 1 and x[start], from x = x[stop] backwards."""
        block = max(1, BLOCK // max(1, x.numel()))
        for high in range(stop, start, -block):
            low = max(start, high - block)
            piece = self.p.segment(low, high, x)
            previous, x, trace, after = self.kernel.inverse(piece, x, rounds)
            lam = self.sweep(piece, low, partial(piece.apart, previous), after, trace, lam)
        assert lam is not None
        return lam, x


class Store:
    """Keep the states, and the trace of the sweep."""

    needs_states = True

    def forward(self, kernel: Kernel, p: Problem, last_only: bool) -> Found:
        states, trace = kernel.forward(p, True)
        assert trace is not None
        return states, p.final(states).clone(), trace

    def room(self, kernel: Kernel, p: Problem) -> Room:
        return kernel.trace_room(p)

    def backward(self, way: Way, states: Maybe, kept: Tensor, g_last: Maybe) -> Tensor:
        assert states is not None
        return way.sweep(way.p, 0, partial(way.p.before, states), states, kept, g_last)


class Checkpoint:
    """Keep every √T-th state; recompute each stretch before its adjoint."""

    needs_states = False

    def forward(self, kernel: Kernel, p: Problem, last_only: bool) -> Found:
        return _run(kernel, p, _stretch(p), last_only)

    def room(self, kernel: Kernel, p: Problem) -> Room:
        return _marks(p, _stretch(p)), p.x0.dtype

    def backward(self, way: Way, states: Maybe, kept: Tensor, g_last: Maybe) -> Tensor:
        return way.recompute(0, way.p.steps, kept, g_last)


class Reversible:
    """Keep a few states; find the others again by undoing the steps."""

    needs_states = False

    def __init__(self) -> None:
        self._told: set[str] = set()  # each cause gives one warning, not one per training step

    def _tell(self, cause: str, detail: str) -> None:
        if cause in self._told:
            return
        self._told.add(cause)
        warnings.warn(
            f"memory='reversible': {cause} {detail}; such steps are recomputed exactly, at the "
            "cost of time (memory='checkpoint' may be faster here)",
            DriftWarning,
            stacklevel=2,
        )

    def forward(self, kernel: Kernel, p: Problem, last_only: bool) -> Found:
        states, last, anchors = _run(kernel, p, _spacing(p), last_only)
        return states, last, torch.cat([anchors, last.unsqueeze(0)]) if _square(p) else anchors

    def room(self, kernel: Kernel, p: Problem) -> Room:
        anchors, *shape = _marks(p, _spacing(p))
        return (anchors + _square(p), *shape), p.x0.dtype

    def backward(self, way: Way, states: Maybe, kept: Tensor, g_last: Maybe) -> Tensor:
        p, lam, rounds = way.p, g_last, _rounds(way.p)
        anchors, x = (kept[:-1], kept[-1]) if _square(p) else (kept, kept[:0])
        if rounds is None:
            self._tell("a step is no contraction,", "alpha (1 + r |W|) is near or above 1")
        stride, tolerance = _spacing(p), torch.finfo(x.dtype).eps ** 0.5
        for i in reversed(range(len(anchors))):
            start, stop, exact = i * stride, min((i + 1) * stride, p.steps), anchors[i]
            drift = math.inf
            if rounds is not None:
                before = way.grads.copy()
                undone, x = way.undo(start, stop, x, rounds, lam)
                drift = _drift(x, exact)
            if drift <= tolerance:
                lam = undone
            else:
                if rounds is not None:
                    limit = f"where {tolerance:.1e} is allowed"
                    self._tell("undone states drift,", f"by {drift:.1e} {limit}")
                    way.grads.restore(before)
                span = p.segment(start, stop, exact)
                marks = _run(way.kernel, span, _stretch(span), True)[2]
                lam = way.recompute(start, stop, marks, lam)
            x = exact
        assert lam is not None
        return lam


MEMORIES: dict[str, Memory] = {
    "store": Store(),
    "checkpoint": Checkpoint(),
    "reversible": Reversible(),
}


def _stretch(p: Problem) -> int:
    """Steps from one kept state to the next, when all between are recomputed: √T, or a few more."""
    return max(math.isqrt(max(p.steps - 1, 0)) + 1, STRETCH // max(1, p.x0.numel()))


def _spacing(p: Problem) -> int:
    """Steps from one anchor to the next."""
    return max(math.ceil(p.steps / ANCHORS), BLOCK // max(1, p.x0.numel()))


def _square(p: Problem) -> bool:
    """Whether a step leads back to where it came from; only a scan of one step may not."""
    return p.W.shape[-1] == p.W.shape[-2]


def _marks(p: Problem, stride: int) -> tuple[int, int, int]:
    """The shape of the states before each stretch of `stride` steps."""
    return -(-p.steps // stride), p.x0.shape[0], p.x0.shape[1]


def _run(kernel: Kernel, p: Problem, stride: int, last_only: bool) -> Found:
    """The scan in stretches of `stride` steps, with the state before each stretch."""
    states = None if last_only else p.x0.new_empty(p.shape(p.W.shape[-2]))
    x, marks = p.x0, p.x0.new_empty(_marks(p, stride))
    for i, start in enumerate(range(0, p.steps, stride)):
        marks[i] = x
        x = _run_blocks(kernel, p, start, min(start + stride, p.steps), x, states)
    return states, x, marks


def run_to_end(kernel: Kernel, p: Problem) -> Tensor:
    """x[T] alone, without an array that grows with T."""
    return _run_blocks(kernel, p, 0, p.steps, p.x0, None)


def _run_blocks(
    kernel: Kernel, p: Problem, start: int, stop: int, x: Tensor, states: Tensor | None
) -> Tensor:
    """x[stop] from x = x[start], in blocks of limited size, and the states between if wanted."""
    block = max(1, BLOCK // max(1, x.shape[0] * p.W.shape[-2]))
    for low in range(start, stop, block):
        high = min(low + block, stop)
        piece = p.segment(low, high, x)
        found, _ = kernel.forward(piece, False)
        if states is not None:
            states[p.cut(low, high)] = found
        x = piece.final(found).clone()
    return x


def _drift(x: Tensor, exact: Tensor) -> float:
    """By how much of its norm a row is off, at most: large rows must not hide a small one."""
    if exact.numel() == 0:
        return 0.0
    norms = torch.linalg.vector_norm(exact, dim=-1)
    off = torch.linalg.vector_norm(x - exact, dim=-1)
    return float((off / norms.masked_fill(norms == 0, 1)).max())


def _rounds(p: Problem) -> int | None:
    """How many rounds undo a step to rounding; None where the iteration need not converge."""
    if not _square(p):
        return None
    alpha = float(p.alpha.max())
    q = alpha * p.phi.r * _norm(p.W) / max(1 - alpha, 1e-30)
    if not q < 0.9:  # also where W holds what is not a number
        return None
    return max(2, math.ceil(math.log(torch.finfo(p.W.dtype).eps) / math.log(max(q, 1e-30))))


def _norm(W: Tensor) -> float:
    """‖W‖ from above; of a stack, the largest by power iteration, rounded up for what it misses."""
    return float(schatten(W)) if W.dim() == 2 else 1.1 * float(power_norms(W).max())
