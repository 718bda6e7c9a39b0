"""Products of matrices between two scans, by the compiled kernel where it serves.

BLAS does all of a symmetric product, where half of it is enough.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from roann.kernels import sums, workspace
from roann.kernels.library import available
from roann.kernels.watch import watched

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


def _served(A: Tensor) -> bool:
    """Whether the compiled kernel may read A: numbers on the CPU that nobody else looks at."""
    return (
        type(A) in (Tensor, nn.Parameter)
        and A.dim() == 2
        and _NARROWEST <= A.shape[1] <= sums.WIDEST_OUTER
        and A.is_cpu
        and A.dtype in sums.DTYPES
        and not (torch.is_grad_enabled() and A.requires_grad)
        and not watched(A)
        and torch.func.debug_unwrap(A) is A
        and available()
    )
