"""Sums over rows by the compiled kernel: the gradients of weights, and symmetric products."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from roann import _checks
from roann.kernels import outer, workspace
from roann.kernels.library import Outer, library
from roann.kernels.outer import Maybe

DTYPES = {torch.float32: 0, torch.float64: 1}
WIDEST_OUTER = 512  # from some way beyond, BLAS may be faster at sums over rows


def check(code: int) -> None:
    """An error for what the library could not do."""
    if code == 1:
        expected = "memory for the workspace of the native kernel"
        _checks.fail("batch", expected, "none", "use a smaller batch", MemoryError)
    if code:
        cure = "a permutation or partner holds each of 0 … N − 1 once"
        _checks.fail("O", "places from 0 to N − 1", "one outside", cure, IndexError)


def rows(t: Tensor) -> Tensor:
    """t with its last dimension contiguous, as the kernel reads it."""
    return t if t.stride(-1) == 1 or t.shape[-1] == 1 else t.contiguous()


def add_outer(
    a: Tensor, x: Tensor, u: Maybe, W: Maybe, W_i: Maybe, b: Maybe, places: Maybe = None
) -> None:
    """See `Kernel.add_outer`: all three in one pass.

    BLAS would need two, and its threads may not be those of the sweep that comes next.
    """
    sums = [t for t in (W, W_i, b) if t is not None]
    wide = a.shape[1] > WIDEST_OUTER or (u is not None and u.shape[1] > outer.FEW_INPUTS)
    if wide or not all(t.is_contiguous() for t in sums):
        outer.add_outer(a, x, u, W, W_i, b, places)
        return
    kept = [a, rows(x)] + ([] if u is None else [rows(u)])
    args = Outer(DTYPES[a.dtype], library().isa, torch.get_num_threads())
    args.N = a.shape[1]
    if W is not None:
        args.M, args.W = x.shape[1], W.data_ptr()
    if W_i is not None and u is not None:
        args.I, args.W_i = u.shape[1], W_i.data_ptr()
    if b is not None:
        args.b = b.data_ptr()
    _add_blocks(args, kept, places)


def gram(A: Tensor) -> Tensor:
    """AᵀA of a matrix (rows, N), N at most `WIDEST_OUTER`: half of the products."""
    A, N = rows(A), A.shape[1]
    made, threads = workspace.empty((N, N), A.dtype).zero_(), torch.get_num_threads()
    args = Outer(DTYPES[A.dtype], library().isa, threads, N=N, M=N, W=made.data_ptr(), symmetric=1)
    _add_blocks(args, [A, A])
    return made


def _add_blocks(args: Outer, arrays: list[Tensor], places: Maybe = None) -> None:
    """Sums over all rows of a, x and perhaps u, in calls that do not take too long."""
    # On one thread of a slow processor, without BLAS, a quarter takes long enough.
    block = max(1, outer.CALL // 4 // (args.N * (args.M + args.I + 1)))
    for low in range(0, len(arrays[0]), block):
        cut = [t[low : low + block] for t in arrays]
        if places is not None:
            cut[1], args.places = arrays[1], places[low:].data_ptr()
        _add_block(args, cut)


def _add_block(args: Outer, arrays: list[Tensor]) -> None:
    """As many rows as one call may take."""
    args.rows = len(arrays[0])
    for name, t in zip(("a", "x", "u"), arrays, strict=False):
        setattr(args, name, t.data_ptr())
        setattr(args, f"{name}_row", t.stride(0))
    sums = workspace.empty((library().outer_bytes(ctypes.byref(args)),), torch.uint8)
    args.sums = sums.data_ptr()
    check(library().outer(ctypes.byref(args)))
