"""Products of matrices between two scans, by the compiled kernel where it serves.

BLAS does all of a symmetric product, where half of it is enough.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor, nn

from roann.kernels import sums, workspace
from roann.kernels.library import available
from roann.kernels.watch import watched

_compare: Any = getattr(ctypes.pythonapi, "memcmp", None)  # of C, where the process shows it
if _compare is not None:
    _compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
_NARROWEST = 96  # below, a call into the compiled kernel takes longer than the product


def gram(A: Tensor) -> Tensor:
    """AᵀA of a matrix, or of each of a stack.

    Example:
        >>> A = torch.randn(120, 99, dtype=torch.float64)
        >>> bool((gram(A) - A.T @ A).abs().max() < 1e-12)
        True
    """
    return sums.gram(A) if _served(A) else A.mT @ A


def transposed_product(A: Tensor, X: Tensor) -> Tensor:
    """AᵀX of two matrices, or of each pair of two stacks.

    Example:
        >>> A, X = torch.randn(2, 120, 99, dtype=torch.float64)
        >>> bool((transposed_product(A, X) - A.T @ X).abs().max() < 1e-12)
        True
    """
    if not (_served(A) and _served(X)):
        return A.mT @ X
    made = workspace.empty((A.shape[1], X.shape[1]), A.dtype).zero_()
    sums.add_outer(A.contiguous(), X, None, made, None, None)
    return made


def square_and_bound(W: Tensor) -> tuple[Tensor, float]:
    """WᵀW, or WWᵀ if that is smaller, and an upper bound of ‖W‖₂² ≤ ‖WᵀW‖_F; nan if W has one.

    Of a stack, the bound is that of all.

    Example:
        >>> A, bound = square_and_bound(torch.eye(4))
        >>> bool((A == torch.eye(4)).all()), 2.0 < bound < 2.001
        (True, True)
    """
    N, info = max(W.shape[-2:]), torch.finfo(W.dtype)
    A = gram(W if W.shape[-1] <= W.shape[-2] else W.mT)
    square = float(torch.linalg.vector_norm(A, dim=(-2, -1)).amax())
    # ‖W‖_F² ≤ √N ‖WᵀW‖_F bounds what rounding takes from the latter. An entry whose square
    # underflows takes √tiny at most.
    return A, (1 + 2 * N**1.5 * info.eps) * square + 2 * N * info.tiny**0.5


def same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are of one dtype and device, and equal.

    Example:
        >>> same(torch.ones(2), torch.ones(2)), same(torch.ones(2), torch.ones(2).double())
        (True, False)
    """
    if a.dtype != b.dtype or a.device != b.device:
        return False
    seen = a.shape == b.shape and a.is_contiguous() and b.is_contiguous() and a.is_cpu
    if seen and _compare is not None and not (a.is_neg() or b.is_neg()):
        return bool(_compare(a.data_ptr(), b.data_ptr(), a.nbytes) == 0)  # `torch.equal` is slow
    return torch.equal(a, b)


def is_plain(A: Tensor) -> bool:
    """Whether A is just numbers: no wrapper, and nothing watches what is done to it."""
    just_numbers = type(A) in (Tensor, nn.Parameter) and not (A.is_meta or watched(A))
    return just_numbers and torch.func.debug_unwrap(A) is A


def _served(A: Tensor) -> bool:
    """Whether the compiled kernel may read A."""
    return (
        A.dim() == 2
        and _NARROWEST <= A.shape[1] <= sums.WIDEST_OUTER
        and A.is_cpu
        and A.dtype in sums.DTYPES
        and not (torch.is_grad_enabled() and A.requires_grad)
        and is_plain(A)
        and available()
    )
