"""Extreme singular values of a map that is only known by its two products.

Note [How far to trust a Krylov value]
--------------------------------------
Golub–Kahan–Lanczos is power iteration that keeps its past vectors. After k steps from v_1 it holds
A V = U B with orthonormal V (n, k), U and a bidiagonal B (k, k). The singular values of B lie
inside those of A: the largest rises to ‖A‖ from below, the smallest sinks to σ_min from above.
The residual β_k |u_k| of a triplet of B (u_k its last entry) bounds the distance to *some* singular
value of A; from a random start that one is the extreme one but for a vanishing chance. The large
end is found quickly. The small end is found as quickly only if it is well seen from the large one,
that is if the condition number is moderate; the residual tells.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


class Extremes(NamedTuple):
    """The largest and the smallest singular value found, with the residual of each."""

    largest: float
    smallest: float
    largest_residual: float
    smallest_residual: float


def random_unit(n: int, like: Tensor) -> Tensor:
    """A unit vector from a private generator: repeatable, and independent of the global seed."""
    private = torch.Generator().manual_seed(n)
    v = torch.randn(n, generator=private, dtype=torch.float64)
    unit: Tensor = v / v.norm()
    return unit.to(like.device, like.dtype)


def extremes(
    matvec: Product,
    matvec_transpose: Product,
    start: Tensor,
    steps: int,
    tolerance: float = 0.0,
) -> Extremes:
    """Golub–Kahan–Lanczos with full reorthogonalisation, from the unit vector `start`.

    It ends after `steps` steps, when the space is exhausted, or when the residual of the largest
    value falls below `tolerance` times that value.
    """
    tiny = torch.finfo(start.dtype).eps
    v, V, U = start, [start], list[Tensor]()
    diagonal, above = list[float](), list[float]()
    found = Extremes(0.0, 0.0, 0.0, 0.0)
    for k in range(min(steps, start.shape[0])):
        u = _orthogonal_to(U, matvec(v))
        diagonal.append(float(u.norm()))
        scale = max(diagonal)
        if diagonal[-1] <= tiny * scale:  # A is singular on this space, or zero
            return _of_bidiagonal(diagonal, above, 0.0)
        U.append(u / diagonal[-1])
        v = _orthogonal_to(V, matvec_transpose(U[-1]))
        beta = float(v.norm())
        found = _of_bidiagonal(diagonal, above, beta)
        if beta <= tiny * scale * start.shape[0] or (
            found.largest_residual < tolerance * found.largest
        ):
            return found
        if k + 1 < start.shape[0]:
            above.append(beta)
            v = v / beta
            V.append(v)
    return found


def _orthogonal_to(basis: list[Tensor], x: Tensor) -> Tensor:
    """x without its components along an orthonormal basis; twice, because once loses digits."""
    if basis:
        B = torch.stack(basis)
        for _ in range(2):
            x = x - torch.mv(B.mT, torch.mv(B, x))
    return x


def _of_bidiagonal(diagonal: list[float], above: list[float], beta: float) -> Extremes:
    """The extreme values of upper bidiagonal B, and β times the last entries of their u."""
    B = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if len(diagonal) > 1:
        B = B + torch.diag(torch.tensor(above[: len(diagonal) - 1], dtype=torch.float64), 1)
    left, values, _ = torch.linalg.svd(B)
    residual = beta * left[-1].abs()
    return Extremes(float(values[0]), float(values[-1]), float(residual[0]), float(residual[-1]))
