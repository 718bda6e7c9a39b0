"""Filters that are full matrices: the paper's QR, Haar, and any matrix the user gives.

Note [Why a sign-fixed QR]
    The Q of a QR decomposition is unique only up to the signs of its columns, and the usual
    algorithm fixes them by the data, so the Q of a Gaussian matrix is not uniform over the
    orthogonal group. Multiplying each column by the sign of R's diagonal makes Q unique and,
    for a Gaussian matrix, exactly Haar distributed (Mezzadri 2006).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from roann import _checks
from roann.filters.base import Filter, _Source, rounding
from roann.kernels.linear import Dense, Linear


class _Matrix(Filter):
    matrix: Tensor

    def _core(self) -> Linear:
        return self.form()

    def form(self) -> Linear:
        """The matrix itself."""
        return Dense(self._held("matrix"))

    def _sharpen(self, value: Tensor) -> Tensor:
        wide = self.out_features <= self.in_features
        n = min(self.out_features, self.in_features)
        eye = torch.eye(n, dtype=value.dtype, device=value.device)
        for _ in range(4):  # Newton–Schulz: each step squares the defect, 1e-2 or 1e-7 at first
            gram = value @ value.mT if wide else value.mT @ value
            # A matrix that someone made anything but orthogonal is left alone.
            defect = (gram - eye).abs().amax((-2, -1), keepdim=True)
            near = defect <= 0.1
            step = 1.5 * eye - 0.5 * gram
            value = torch.where(near, step @ value if wide else value @ step, value)
        return value

    def _check(self, buffers: Mapping[str, Tensor]) -> None:
        O = buffers["matrix"]
        self._orthogonal(O, rounding(O.dtype, self.larger))

    def _orthogonal(self, O: Tensor, allowed: float) -> None:
        M = O.to(torch.float64)
        gram = M @ M.mT if self.out_features <= self.in_features else M.mT @ M
        gram.diagonal(dim1=-2, dim2=-1).sub_(1)
        defect = float(gram.abs_().max())
        if not defect <= allowed:
            _checks.fail(
                "filter",
                f"a semi-orthogonal matrix (largest entry of |O Oᵀ − I| at most {allowed:.1e})",
                f"a matrix with defect {defect:.3e}",
                "orthogonalise it first, e.g. with torch.linalg.qr",
            )


def _q(D: Tensor, sign_fixed: bool) -> Tensor:
    """The semi-orthogonal factor of D (…, out, in), tall or wide."""
    wide = D.shape[-2] < D.shape[-1]
    Q: Tensor
    Q, R = torch.linalg.qr(D.mT if wide else D)
    if sign_fixed:
        signs = torch.where(R.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).to(Q.dtype)
        Q = Q * signs.unsqueeze(-2)
    return Q.mT if wide else Q


@final
class QR(_Matrix):
    r"""The paper's filter: Q of the QR decomposition of a matrix uniform in (−1, 1).

    .. math:: D = Q R, \quad D_{ij} \sim U(-1, 1), \quad O = Q

    No sign is fixed, so O is *not* uniform over the orthogonal group: see `Haar`.

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> O = QR(5, generator=g, dtype=torch.float64).to_dense()
        >>> bool((O @ O.T - torch.eye(5)).abs().max() < 1e-14)
        True

    Reference: "How to generate random semi-orthogonal matrices", Section II-C of the paper.
    """

    name = "qr"

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        D = 2 * source.uniform(*self._lead(), self.out_features, self.in_features) - 1
        return {"matrix": _q(D, sign_fixed=False)}


@final
class Haar(_Matrix):
    r"""Uniform over the orthogonal group (Haar measure): see Note [Why a sign-fixed QR].

    .. math:: D = Q R, \quad D_{ij} \sim N(0, 1), \quad O = Q\, \mathrm{sign}(\mathrm{diag} R)

    Example:
        >>> g = torch.Generator().manual_seed(0)
        >>> O = Haar(3, 5, generator=g, dtype=torch.float64).to_dense()
        >>> bool((O @ O.T - torch.eye(3)).abs().max() < 1e-14)
        True

    Reference: Mezzadri, "How to generate random matrices from the classical compact groups".
    """

    name = "haar"

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        D = source.normal(*self._lead(), self.out_features, self.in_features)
        return {"matrix": _q(D, sign_fixed=True)}


@final
class Given(_Matrix):
    r"""A matrix of your own, checked for orthogonality.

    Args:
        matrix: (out, in) with O Oᵀ = I or OᵀO = I to rounding; (depth, out, in) for a stack.

    Example:
        >>> O = Given(torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        >>> O.matvec(torch.tensor([3.0, 4.0]))
        tensor([ 4., -3.])

    Reference: Definition II.2 of the paper.
    """

    name = "given"

    def __init__(
        self,
        matrix: Tensor,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(matrix, Tensor) or matrix.dim() not in (2, 3):
            shape = tuple(matrix.shape) if isinstance(matrix, Tensor) else type(matrix).__name__
            _checks.fail("matrix", "a tensor (out, in) or (depth, out, in)", shape)
        if not matrix.is_floating_point():
            _checks.fail("matrix", "a real floating point dtype", matrix.dtype, error=TypeError)
        self._given = [matrix.detach()]
        *lead, rows, columns = matrix.shape
        super().__init__(
            rows,
            columns,
            depth=lead[0] if lead else None,
            device=matrix.device if device is None else device,
            dtype=matrix.dtype if dtype is None else dtype,
        )

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        O = self._given.pop()
        if not O.is_meta:
            eps = torch.finfo(O.dtype).eps
            limit = min(10 * self.larger * eps, rounding(O.dtype, self.larger))
            self._orthogonal(O, limit)
        return {"matrix": O.to(torch.float64)}

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Nothing: a matrix of your own cannot be drawn again; `load_state_dict` brings it back."""
