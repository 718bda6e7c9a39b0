"""Filters with few numbers: plane rotations, O(N), and products of reflections, O(kN)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Unpack, final

import torch
from torch import Tensor

from roann import _checks
from roann.filters.base import Common, Filter, _Source, rounding
from roann.kernels.linear import Linear, Rotation


@final
class Rotations(Filter):
    r"""Random rotations of N/2 disjoint random planes, O(N) to store and apply.

    .. math:: (O x)_i = \cos\theta_i\, x_i + \sin\theta_i\, x_{p(i)},
        \quad \theta_{p(i)} = -\theta_i, \quad \theta_i \sim U(0, 2\pi)

    Its eigenvalues are e^{±iθ}, spread over the circle, and its powers are the same rotations by
    multiples of θ. With an odd number of coordinates one of them stays as it is.

    Example:
        >>> O = Rotations(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> x = torch.ones(6, dtype=torch.float64)
        >>> bool((O.matvec(x).norm() - x.norm()).abs() < 1e-14)
        True

    Reference: an O(N) member of the family of Section II-C of the paper.
    """

    name = "rotations"
    has_powers = True
    angle: Tensor
    partner: Tensor

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        n, half = self.larger, self.larger // 2
        order = source.permutations(*self._lead(), n)
        theta = 2 * math.pi * source.uniform(*self._lead(), half)
        first, second, rest = order[..., :half], order[..., half : 2 * half], order[..., 2 * half :]
        still = torch.zeros_like(rest, dtype=theta.dtype)
        partner = torch.cat([second, first, rest], -1).gather(-1, order.argsort(-1))
        angle = torch.cat([theta, -theta, still], -1).gather(-1, order.argsort(-1))
        return {"angle": angle, "partner": partner}

    def _check(self, buffers: Mapping[str, Tensor]) -> None:
        angle, partner = buffers["angle"], buffers["partner"]
        _checks.permutation("partner", partner)
        if not torch.equal(partner.gather(-1, partner), partner.sort(-1).values):
            _checks.fail("partner", "pairs, each the partner of the other", "longer cycles")
        if not bool(angle.to(self.angle.dtype).isfinite().all()):  # as it will be kept
            _checks.fail("angle", "finite numbers", "NaN or infinity")
        if not torch.equal(angle.gather(-1, partner), -angle):
            _checks.fail("angle", "opposite angles of partners, and 0 of one without", "others")

    def _core(self) -> Linear:
        return self.turned(torch.ones((), dtype=self.angle.dtype, device=self.angle.device))

    def turned(self, power: Tensor) -> Rotation:
        """O raised to a real power, exactly: every angle times `power`, of shape () or (T, 1)."""
        angle = self._held("angle") * power
        return Rotation(torch.cos(angle), torch.sin(angle), self.partner.expand(angle.shape))

    def generator_of(self, x: Tensor) -> Tensor:
        """(log O) x."""
        return self.angle.to(x.dtype) * x.index_select(-1, self.partner)


@dataclass(eq=False)
class _Reflections(Linear):
    """H_1 H_2 … H_k with H = I − 2 v vᵀ, for unit v: vectors (k, N), or (T, k, N)."""

    rank = 2
    vectors: Tensor

    def _reflect(self, x: Tensor, order: range) -> Tensor:
        for j in order:
            v = self.vectors[..., j, :]
            if self.stacked:
                v = v.reshape(v.shape[0], *(1,) * (x.dim() - 2), v.shape[-1])
            x = x - 2 * (x * v).sum(-1, keepdim=True) * v
        return x

    def matvec(self, x: Tensor) -> Tensor:
        return self._reflect(x, range(self.vectors.shape[-2] - 1, -1, -1))

    def matvec_transpose(self, x: Tensor) -> Tensor:
        return self._reflect(x, range(self.vectors.shape[-2]))

    def to_dense(self) -> Tensor:
        *lead, _, N = self.vectors.shape
        eye = torch.eye(N, dtype=self.vectors.dtype, device=self.vectors.device)
        return self.matvec_transpose(eye.expand(*lead, N, N))


@final
class Householder(Filter):
    r"""A product of k reflections in uniformly random directions, O(kN) to store and apply.

    .. math:: O = H_1 \cdots H_k, \quad H_j = I - 2 v_j v_j^T, \quad \lVert v_j \rVert = 1

    Args:
        reflections: k, at least 1; further arguments as in `Filter`.

    Example:
        >>> O = Householder(4, reflections=1, generator=torch.Generator().manual_seed(0))
        >>> bool((O.to_dense().trace() - 2).abs() < 1e-6)  # one eigenvalue −1, three +1
        True

    Reference: an O(kN) member of the family of Section II-C of the paper.
    """

    name = "householder"
    vectors: Tensor

    def __init__(
        self,
        out_features: int,
        in_features: int | None = None,
        *,
        reflections: int = 8,
        **common: Unpack[Common],
    ) -> None:
        self._reflections = _checks.size("reflections", reflections)
        super().__init__(out_features, in_features, **common)

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        v = source.normal(*self._lead(), self._reflections, self.larger)
        return {"vectors": v / torch.linalg.vector_norm(v, dim=-1, keepdim=True)}

    def _check(self, buffers: Mapping[str, Tensor]) -> None:
        v = buffers["vectors"]
        defect = float((v.to(torch.float64).square().sum(-1) - 1).abs().max())
        if not defect <= rounding(v.dtype, self.larger):
            _checks.fail("vectors", "unit vectors", f"a squared length {defect:.3e} away from 1")

    def _core(self) -> Linear:
        return _Reflections(self._held("vectors"))

    def _sharpen(self, value: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(value, dim=-1, keepdim=True)
        near = (norms - 1).abs() <= 0.1  # vectors that someone gave another length are left alone
        return torch.where(near, value / norms, value)

    def settings(self) -> dict[str, Any]:
        return {"reflections": self._reflections}
