"""The compiled CPU kernel, for float32 and float64: the sweeps of `native.cpp`."""

from __future__ import annotations

import ctypes
import time
from array import array

import torch
from torch import Tensor

from roann import _checks
from roann.kernels import fused, workspace
from roann.kernels.library import ISAS, Args, available, isa, library, why_not
from roann.kernels.linear import Dense
from roann.kernels.problem import Adjoint, Before, Maybe, Problem, Room, Undone
from roann.kernels.sums import DTYPES, add_outer, check, rows
from roann.kernels.workspace import release

__all__ = [
    "ISAS", "add_outer", "available", "backward", "demand", "forward", "inverse", "isa", "library",
    "release", "supports", "trace_room", "why_not",
]  # fmt: skip

_FORWARD, _BACKWARD, _INVERSE = 0, 1, 2
_WIDE, _NARROW, _THIN = 0, 1, 2
_NO_SLOPES, _BIT_SLOPES, _REAL_SLOPES, _PARTS = 0, 1, 2, 3
_NARROWEST = 16  # NARROWEST in native_narrow.inl
_SUMMED = 4  # widths up to which a sweep sums the gradients of its layers itself
_FEW = 4  # rows per weight below which packing the weights does not pay

# A signal can only be handled between two calls, so a sweep is cut into calls of about this long.
CALL_SECONDS = 0.2
FIRST_CALL = 1.5e9  # multiply-adds in the first one, when the speed is not known yet


def supports(p: Problem) -> bool:
    """Whether this kernel can do p: float32 or float64 on the CPU, square weights, some rows."""
    square, rows = p.W.shape[-1] == p.W.shape[-2], p.x0.shape[0]
    return available() and p.O.code is not None and _reads(p) and square and rows > 0


def _reads(p: Problem) -> bool:
    for t in p.tensors():
        if t is not None and not (t.is_cpu and t.layout is torch.strided):
            return False
    return p.W.dtype in DTYPES


def demand(p: Problem) -> None:
    """An error where this kernel was asked for and cannot serve here."""
    if not available():
        _checks.fail("backend", "a kernel that can run here", "'native'", why_not(), RuntimeError)
    if not _reads(p):
        what = f"{p.W.dtype} on {p.W.device}"
        expected = "float32 or float64 on the CPU for 'native'"
        _checks.fail("backend", expected, what, error=RuntimeError)


def trace_room(p: Problem) -> Room:
    """See `Kernel.trace_room`."""
    B, N = p.x0.shape
    lanes = library().lanes[DTYPES[p.W.dtype]]
    slopes = _trace_form(p, _layout(p.steps, B, N, lanes, _deep(p)))
    return _room(p, slopes, lanes)


class _Sweep:
    """The arguments of one sweep, filled in from a problem, and the loop that runs it."""

    def __init__(self, p: Problem, op: int, layout: int | None = None) -> None:
        found = self.library = library()
        W, alpha, O = p.W.contiguous(), p.alpha.contiguous(), p.O
        of_O = [t.contiguous() for t in O.tensors()]
        B, N = p.x0.shape
        T = p.steps
        dense, deep, deep_O = isinstance(O, Dense), W.dim() == 3, O.stacked
        dtype = DTYPES[W.dtype]
        lanes = found.lanes[dtype]
        if layout is None:
            layout = _layout(T, B, N, lanes, deep or (dense and deep_O))
        self.T, self.B, self.N, self.lanes, self.layout = T, B, N, lanes, layout
        self.dtype, self.slopes = W.dtype, _trace_form(p, layout)
        self.cost = B * N * (N * (2 if dense else 1) + 64)  # multiply-adds per step, roughly
        # Whatever the library reads stays alive until it has.
        self.kept: list[object] = [W, alpha, of_O]
        args = self.args = Args(
            op, dtype, found.isa, layout, p.phi.code, O.code
        )  # fmt: skip
        args.threads, args.T, args.B, args.N, args.end = torch.get_num_threads(), T, B, N, T
        args.W = W.data_ptr()
        if deep:
            args.W_step = N * N
        args.alpha = alpha.data_ptr()
        if alpha.dim():
            args.alpha_unit = int(alpha.shape[-1] == N)
            args.alpha_step = alpha.shape[-1] if alpha.dim() == 2 else 0
        args.O0 = of_O[0].data_ptr()
        if not dense:
            args.O1 = of_O[1].data_ptr()
        if len(of_O) > 2:
            args.O2 = of_O[2].data_ptr()
        if deep_O:
            args.O_step = N * N if dense else N
        if p.ragged is not None:
            starts = array("q", p.ragged.starts)
            args.starts = starts.buffer_info()[0]
            self.kept.append(starts)

    def run(self) -> None:
        """All steps, in calls short enough for signals to be handled between them."""
        args, T, run = self.args, self.T, self.library.run
        steps = max(1, int(FIRST_CALL / max(self.cost, 1)))
        if steps >= T:
            if self.B:
                check(run(ctypes.byref(args)))
            return
        done = 0
        try:
            while done < T:
                steps = min(steps, T - done)
                args.begin = done if args.op == _FORWARD else T - done - steps
                args.end = args.begin + steps
                start = time.perf_counter()
                check(run(ctypes.byref(args)))
                done += steps
                growth = CALL_SECONDS / max(time.perf_counter() - start, 1e-6)
                steps = max(1, int(steps * min(growth, 8.0)))
        finally:
            self.library.free(ctypes.byref(args))

    def drive(self, p: Problem) -> None:
        """Fill in u, W_i and b."""
        args = self.args
        if p.u is not None and p.W_i is not None:
            u, W_i = rows(p.u), p.W_i.contiguous()
            self.kept += [u, W_i]
            args.u, args.u_step, args.u_row = u.data_ptr(), u.stride(0), u.stride(-2)
            args.W_i, args.I = W_i.data_ptr(), W_i.shape[1]
            self.cost += self.B * self.N * W_i.shape[1]
        if p.b is not None:
            b = p.b.contiguous()
            self.kept.append(b)
            args.b, args.b_step = b.data_ptr(), self.N if b.dim() == 2 else 0

    def keep(self, p: Problem) -> Tensor:
        """Room for the trace."""
        trace = workspace.empty(*_room(p, self.slopes, self.lanes))
        self.args.slopes, self.args.slope = self.slopes, trace.data_ptr()
        return trace


def _room(p: Problem, slopes: int, lanes: int) -> Room:
    """Shape and dtype of a trace."""
    N = p.W.shape[-1]
    if slopes == _NO_SLOPES:
        return p.shape(0), p.W.dtype
    if slopes == _BIT_SLOPES:
        return p.shape(-(-N // lanes)), torch.int16
    return p.shape(N), p.W.dtype


def _deep(p: Problem) -> bool:
    """Whether every step has a matrix of its own."""
    return p.W.dim() == 3 or (isinstance(p.O, Dense) and p.O.stacked)


def _layout(T: int, B: int, N: int, lanes: int, deep: bool) -> int:
    """How the work lies on the lanes: from the problem alone, see native_problem.h."""
    if N <= _NARROWEST and (deep or lanes > N) and _filling(B, lanes) >= _filling(N, lanes):
        return _NARROW
    return _THIN if (B if deep else T * B) <= _FEW else _WIDE


def _filling(n: int, lanes: int) -> float:
    """The filled part of the vectors that hold n numbers."""
    return n / (-(-n // lanes) * lanes)


def _trace_form(p: Problem, layout: int) -> int:
    if p.terms:
        return _PARTS
    if p.phi.name == "identity":
        return _NO_SLOPES
    bits = layout != _NARROW and p.phi.name in ("relu", "leaky_relu")
    return _BIT_SLOPES if bits else _REAL_SLOPES


def forward(p: Problem, keep: bool) -> tuple[Tensor, Tensor | None]:
    """See `Kernel.forward`. The trace is in a form that only `backward` below can read."""
    sweep = _Sweep(p, _FORWARD)
    args = sweep.args
    x0 = rows(p.x0)
    sweep.kept.append(x0)
    args.x0, args.x0_row = x0.data_ptr(), x0.stride(0)
    sweep.drive(p)
    states = workspace.empty(p.shape(sweep.N), sweep.dtype)
    args.states = states.data_ptr()
    trace = sweep.keep(p) if keep else None
    sweep.run()
    return states, trace


def backward(
    p: Problem, trace: Tensor, after: Maybe, g_states: Maybe, g_last: Maybe,
    before: Before | None = None,
) -> Adjoint:  # fmt: skip
    """See `Kernel.backward`. The trace comes from `forward` above."""
    sweep = _Sweep(p, _BACKWARD)
    args = sweep.args
    shape = p.shape(sweep.N)
    plain = trace.shape == shape and trace.dtype == sweep.dtype  # numbers, whoever computed them
    if plain and sweep.slopes != _PARTS:
        sweep.slopes = _REAL_SLOPES
    args.slopes, args.slope = sweep.slopes, trace.data_ptr()
    if g_states is not None:
        g = rows(g_states.resolve_neg())
        sweep.kept.append(g)
        args.g_states, args.g_step, args.g_row = g.data_ptr(), g.stride(0), g.stride(-2)
    sweep.kept.append(trace)
    lambda0 = torch.empty((sweep.B, sweep.N), dtype=sweep.dtype)
    if g_last is None:
        lambda0.zero_()
    else:
        lambda0.copy_(g_last)
    args.lambda0 = lambda0.data_ptr()
    moved = None
    if sweep.slopes == _PARTS:
        assert after is not None
        after, moved = after.contiguous(), workspace.empty(shape, sweep.dtype)
        args.after, args.moved = after.data_ptr(), moved.data_ptr()
    if before is not None and _sums(p, sweep):
        return Adjoint(None, lambda0, moved, *_gradients(sweep, before))
    a = workspace.empty(shape, sweep.dtype)
    args.a = a.data_ptr()
    sweep.run()
    return Adjoint(a, lambda0, moved)


def _sums(p: Problem, sweep: _Sweep) -> bool:
    """Whether the gradients of W and b are cheaper made by the sweep than as products behind it."""
    deep = p.W.dim() == 3 and p.u is None and p.ragged is None
    return deep and sweep.layout == _NARROW and sweep.N <= _SUMMED


def _gradients(sweep: _Sweep, before: Before) -> tuple[Tensor, Tensor]:
    """The gradients of W and b of every step: run the sweep, which sums over groups of rows."""
    args, N = sweep.args, sweep.N
    x0, others = rows(before[0]), before[1].contiguous()
    args.x0, args.x0_row, args.states = x0.data_ptr(), x0.stride(0), others.data_ptr()
    groups = -(-sweep.B // sweep.lanes)
    W = workspace.empty((groups, sweep.T, N, N), sweep.dtype)
    b = workspace.empty((groups, sweep.T, N), sweep.dtype)
    args.g_W, args.g_b = W.data_ptr(), b.data_ptr()
    sweep.run()
    return W.sum(0), b.sum(0)


def inverse(p: Problem, last: Tensor, rounds: int) -> Undone:
    """See `Kernel.inverse`. The trace is in a form that only `backward` above can read."""
    sweep = _Sweep(p, _INVERSE)
    if sweep.layout == _THIN:
        if sweep.N > _NARROWEST or p.ragged is not None:  # few rows per weight: little to gain
            return fused.inverse(p, last, rounds)
        sweep = _Sweep(p, _INVERSE, _NARROW)
    sweep.drive(p)
    sweep.cost *= rounds + 1
    x = last.clone(memory_format=torch.contiguous_format)
    shape, after = p.shape(sweep.N), None
    previous, trace = workspace.empty(shape, sweep.dtype), sweep.keep(p)
    args = sweep.args
    args.rounds, args.lambda0, args.states = rounds, x.data_ptr(), previous.data_ptr()
    if sweep.slopes == _PARTS:
        after = workspace.empty(shape, sweep.dtype)
        args.after = after.data_ptr()
    sweep.run()
    return Undone(previous, x, trace, after)
