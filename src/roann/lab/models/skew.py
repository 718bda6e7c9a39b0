"""Skew matrices from their free entries, their first values, and the Cayley map.

Note [Only free numbers are stored]: a skew matrix of size N has N(N − 1)/2 free entries. They are
stored as one vector, so that what an optimiser moves, what a checkpoint holds and what a table
counts is the same number; public code stores N² and trains half of them. That is one reason
not to use `torch.nn.utils.parametrizations.orthogonal` here. The other is the start: with its base,
W = B exp(A) starts from A = 0, not from the published A; without it, no first W can be assigned.
The tests check both maps against it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

ANGLES: tuple[str, ...] = ("henaff", "cayley")


def skew_size(n: int) -> int:
    """How many free entries a skew matrix (n, n) has."""
    return n * (n - 1) // 2


def skew(entries: Tensor, n: int) -> Tensor:
    """A = U − Uᵀ, with U strictly upper triangular, filled row by row.

    Example:
        >>> skew(torch.tensor([1.0, 2.0, 3.0]), 3).tolist()
        [[0.0, 1.0, 2.0], [-1.0, 0.0, 3.0], [-2.0, -3.0, 0.0]]
    """
    i, j = torch.triu_indices(n, n, 1, device=entries.device)
    U = entries.new_zeros(n, n).index_put((i, j), entries)
    return U - U.mT


@torch.no_grad()
def block_angles_(entries: Tensor, n: int, kind: str, generator: torch.Generator | None) -> None:
    """Fill with the skew matrix of ⌊n/2⌋ planes: a_k at (2k, 2k+1), zero elsewhere.

    "henaff": a ~ U(−π, π). "cayley": a = −tan(s/2), s ~ U(0, π/2); through the Cayley map s is
    the angle of the rotation, through exp the angle is a itself, in (−1, 0].
    """
    planes = torch.empty(n // 2, dtype=entries.dtype, device=entries.device)
    if kind == "henaff":
        planes.uniform_(-math.pi, math.pi, generator=generator)
    else:
        planes.uniform_(0, math.pi / 2, generator=generator).div_(2).tan_().neg_()
    row = torch.arange(0, 2 * (n // 2), 2, device=entries.device)
    entries.zero_()
    entries[row * n - row * (row + 1) // 2] = planes


def cayley(A: Tensor) -> Tensor:
    """(I + A)⁻¹ (I − A): orthogonal for skew A, unitary for skew-Hermitian A."""
    eye = torch.eye(A.shape[0], dtype=A.dtype, device=A.device)
    W: Tensor = torch.linalg.solve(eye + A, eye - A)
    return W


def skew_hermitian(entries: Tensor) -> Tensor:
    """K = −Kᴴ from a real matrix (N, N): every one of the N² real dimensions of u(N), once.

    Entry (i, j) above the diagonal is Re K_ij, (j, i) below it is Im K_ij, the diagonal is
    Im K_ii / √2: then the N² directions are orthogonal and of one length, √2.
    """
    re, im = entries.triu(1), entries.tril(-1)
    diagonal = torch.diag(entries.diagonal() * math.sqrt(2))
    return torch.complex(re - re.mT, im + im.mT + diagonal)
