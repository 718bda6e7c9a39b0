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
from typing import Protocol

import torch
from torch import Tensor

from roann.kernels.gradients import Gradients
from roann.kernels.problem import Before, Kernel, Problem, Room
from roann.theorem import schatten

ANCHORS = 64  # exact states the reversible mode keeps, at most, whatever T
BLOCK = 1 << 21  # numbers in one (steps, B, N) block of the reversible mode
STRETCH = 1 << 22  # numbers in a stretch that is recomputed: below, calls cost more than memory


class DriftWarning(UserWarning):
    """A reversible scan could not be undone accurately and was recomputed."""


class Memory(Protocol):
    """A way to remember a scan.

    Attributes:
        needs_states: whether `backward` reads the states that `forward` found.
    """

    needs_states: bool

    def forward(
        self, kernel: Kernel, p: Problem, last_only: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """(the states, or None if only x[T] is wanted; x[T]; what to keep for `backward`)."""
        ...

    def room(self, kernel: Kernel, p: Problem) -> Room:
        """Shape and dtype of what `forward` keeps; asked of tensors that may hold no data."""
        ...

    def backward(
        self,
        kernel: Kernel,
        p: Problem,
        states: Tensor | None,
        kept: Tensor,
        g_states: Tensor | None,
        g_last: Tensor | None,
        grads: Gradients,
    ) -> Tensor:
        """∂ℓ/∂x[0], with everything else added to `grads`."""
        ...


class Store:
    """Keep the states, and the trace of the sweep."""

    needs_states = True

    def forward(
        self, kernel: Kernel, p: Problem, last_only: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        states, trace = kernel.forward(p, True)
        assert trace is not None
        return states, p.final(states).clone(), trace

    def room(self, kernel: Kernel, p: Problem) -> Room:
        return kernel.trace_room(p)

    def backward(
        self,
        kernel: Kernel,
        p: Problem,
        states: Tensor | None,
        kept: Tensor,
        g_states: Tensor | None,
        g_last: Tensor | None,
        grads: Gradients,
    ) -> Tensor:
        assert states is not None
        before = partial(p.before, states)
        return _sweep(kernel, p, 0, before, states, kept, g_states, g_last, grads)


class Checkpoint:
    """Keep every √T-th state; recompute each stretch before its adjoint."""

    needs_states = False

    def forward(
        self, kernel: Kernel, p: Problem, last_only: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        return _run(kernel, p, _stretch(p), last_only)

    def room(self, kernel: Kernel, p: Problem) -> Room:
        return _marks(p, _stretch(p)), p.x0.dtype

    def backward(
        self,
        kernel: Kernel,
        p: Problem,
        states: Tensor | None,
        kept: Tensor,
        g_states: Tensor | None,
        g_last: Tensor | None,
        grads: Gradients,
    ) -> Tensor:
        return _recompute(kernel, p, 0, p.steps, kept, g_states, g_last, grads)


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

    def forward(
        self, kernel: Kernel, p: Problem, last_only: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        states, last, anchors = _run(kernel, p, _spacing(p), last_only)
        return states, last, torch.cat([anchors, last.unsqueeze(0)]) if _square(p) else anchors

    def room(self, kernel: Kernel, p: Problem) -> Room:
        anchors, *shape = _marks(p, _spacing(p))
        return (anchors + _square(p), *shape), p.x0.dtype

    def backward(
        self,
        kernel: Kernel,
        p: Problem,
        states: Tensor | None,
        kept: Tensor,
        g_states: Tensor | None,
        g_last: Tensor | None,
        grads: Gradients,
    ) -> Tensor:
        anchors, x = (kept[:-1], kept[-1]) if _square(p) else (kept, kept[:0])
        rounds = _rounds(p)
        if rounds is None:
            self._tell("a step is no contraction,", "alpha (1 + r |W|) is near or above 1")
        stride, tolerance = _spacing(p), torch.finfo(x.dtype).eps ** 0.5
        lam = g_last
        for i in reversed(range(len(anchors))):
            start, stop, exact = i * stride, min((i + 1) * stride, p.steps), anchors[i]
            drift = math.inf
            if rounds is not None:
                before = grads.copy()
                undone, x = _undo(p, start, stop, x, rounds, kernel, g_states, lam, grads)
                drift = _drift(x, exact)
            if drift <= tolerance:
                lam = undone
            else:
                if rounds is not None:
                    self._tell(
                        "undone states drift,", f"by {drift:.1e} where {tolerance:.1e} is allowed"
                    )
                    grads.restore(before)
                span = p.segment(start, stop, exact)
                marks = _run(kernel, span, _stretch(span), True)[2]
                lam = _recompute(kernel, p, start, stop, marks, g_states, lam, grads)
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


def _run(
    kernel: Kernel, p: Problem, stride: int, last_only: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
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


def _sweep(
    kernel: Kernel,
    p: Problem,
    start: int,
    before: Callable[[], Before],
    after: Tensor | None,
    trace: Tensor,
    g_states: Tensor | None,
    g_last: Tensor | None,
    grads: Gradients,
) -> Tensor:
    """The adjoint of one segment `p` of known states, see `Kernel.backward`; its λ[0].

    States that must be gathered are asked for after the sweep: threads of torch that have just done
    so would keep its processors busy waiting.
    """
    at_hand = before() if p.ragged is None else None
    found = kernel.backward(p, trace, after, g_states, g_last, at_hand)
    grads.add(p, start, at_hand or before(), found, kernel)
    return found.first


def _recompute(
    kernel: Kernel,
    p: Problem,
    start: int,
    stop: int,
    marks: Tensor,
    g_states: Tensor | None,
    g_last: Tensor | None,
    grads: Gradients,
) -> Tensor:
    """The adjoint of steps start … stop − 1, each stretch recomputed from its mark."""
    lam, stride = g_last, _stretch(p.segment(start, stop, p.x0))
    for i in reversed(range(len(marks))):
        low, high = start + i * stride, min(start + (i + 1) * stride, stop)
        piece = p.segment(low, high, marks[i])
        states, trace = kernel.forward(piece, True)
        assert trace is not None
        g = None if g_states is None else g_states[p.cut(low, high)]
        before = partial(piece.before, states)
        lam = _sweep(kernel, piece, low, before, states, trace, g, lam, grads)
    assert lam is not None
    return lam


def _undo(
    p: Problem,
    start: int,
    stop: int,
    x: Tensor,
    rounds: int,
    kernel: Kernel,
    g_states: Tensor | None,
    g_last: Tensor | None,
    grads: Gradients,
) -> tuple[Tensor, Tensor]:
    """The adjoint of steps start … stop − 1 and x[start], from x = x[stop] backwards."""
    lam = g_last
    block = max(1, BLOCK // max(1, x.numel()))
    for high in range(stop, start, -block):
        low = max(start, high - block)
        piece = p.segment(low, high, x)
        previous, x, trace, after = kernel.inverse(piece, x, rounds)
        before = partial(piece.apart, previous)
        g = None if g_states is None else g_states[p.cut(low, high)]
        lam = _sweep(kernel, piece, low, before, after, trace, g, lam, grads)
    assert lam is not None
    return lam, x


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
    if W.dim() == 2:
        return float(schatten(W))
    v = W.mT @ W.sum(-1, keepdim=True) + W.abs().amax(-2).unsqueeze(-1)
    for _ in range(16):
        v = v / torch.linalg.vector_norm(v, dim=-2, keepdim=True).clamp_min(1e-30)
        v = W.mT @ (W @ v)
    return 1.1 * float(torch.linalg.vector_norm(v, dim=-2).max().sqrt())
