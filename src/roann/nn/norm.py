"""A cap on ‖W‖₂ that holds in every forward pass: rigorous, stateless and differentiable.

Note [A bound from above]
-------------------------
Power iteration bounds ‖W‖₂ from below and proves nothing. The Schatten norm bounds it from above:

    ‖W‖₂ = σ_max  ≤  S = (Σ σ_i^p)^(1/p)  ≤  N^(1/p) σ_max,    Σ σ_i^p = tr (WᵀW)^(p/2).

With p = 2^(m+1) + 2 the trace is that of A · A^(2^m), A = WᵀW: m squarings and one sum over the
entries of two symmetric matrices. Its gradient needs no more than one further product,

    ∂S/∂W = W A^(2^m) / S^(p−1).

m = 5 gives p = 66: S is at most N^(1/66) times ‖W‖₂, 1.08 for N = 128 if all singular values are
equal, and 1.01 for a Gaussian matrix. Each square is divided by its Frobenius norm, and the
logarithms of these are added up, so that nothing over- or underflows. Rounding of the products
changes S by a factor of at most 1 + O(N eps), for which S is raised by `2 N eps`.

The layer computes with W · min(1, c / S), whose norm is at most c.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from roann.filters.base import full_precision
from roann.kernels.operator import without_autocast

SQUARINGS = 5
POWER = 2 ** (SQUARINGS + 1) + 2  # p


def schatten(W: Tensor) -> Tensor:
    r"""An upper bound of ‖W‖₂, at most N^(1/66) above it, as a differentiable function of W.

    .. math:: \lVert W \rVert_2 \le \bigl(\mathrm{tr}\,(W^T W)^{33}\bigr)^{1/66}

    Shape: W (…, N_out, N_in) gives (…).

    Example:
        >>> W = torch.diag(torch.tensor([3.0, 1.0]).double())
        >>> bool(3 <= schatten(W) < 3.0001)
        True

    Reference: Note [A bound from above] in `roann.nn.norm`.
    """
    return _found(W)[0]


def capped(W: Tensor, max_norm: float | None) -> Tensor:
    r"""W, scaled down where its norm would exceed `max_norm`.

    .. math:: W \min(1, c / S(W)), \quad S(W) \ge \lVert W \rVert_2

    Args:
        W: a matrix, or a stack of them.
        max_norm: c; None for W as it is.

    Shape: W (…, N_out, N_in) gives the same.

    Example:
        >>> W = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
        >>> bool(torch.linalg.matrix_norm(capped(W, 0.5), 2) <= 0.5)
        True
        >>> capped(W, 100.0) is W or bool((capped(W, 100.0) == W).all())
        True

    Reference: Note [A bound from above] in `roann.nn.norm`.
    """
    if max_norm is None:
        return W
    with without_autocast(W):  # it would round the products, and the bound with them
        return _capped(W, max_norm)


def _capped(W: Tensor, max_norm: float) -> Tensor:
    full = W.to(full_precision(W.dtype))
    bound: Tensor
    if torch.compiler.is_compiling() or forward_ad.unpack_dual(full).primal is full:  # type: ignore[no-untyped-call]
        bound = _Schatten.apply(full)[0]  # type: ignore[no-untyped-call]
    else:  # forward mode, of this tensor or of one inside it
        bound = schatten(full)
    limit = torch.full_like(bound, max_norm)
    scale = limit / torch.maximum(bound, limit)  # exactly 1 below the cap
    return (full * scale[..., None, None]).to(W.dtype)


def _found(W: Tensor) -> tuple[Tensor, Tensor]:
    """S, and A^(2^m) up to a factor, A = WᵀW, or WWᵀ if that is smaller."""
    tiny = torch.finfo(W.dtype).tiny
    size = W.detach().abs().amax((-2, -1), keepdim=True).clamp_min(tiny)
    V = W / size
    A = V.mT @ V if W.shape[-1] <= W.shape[-2] else V @ V.mT
    power, log = A, A.new_zeros(A.shape[:-2])
    for _ in range(SQUARINGS):
        length = torch.linalg.vector_norm(power.detach(), dim=(-2, -1)).clamp_min(tiny)
        power = power / length[..., None, None]
        power, log = power @ power, 2 * (log + length.log())
    trace = (A * power).sum((-2, -1)).clamp_min(tiny)
    above = 1 + 2 * max(W.shape[-2:]) * torch.finfo(W.dtype).eps
    return above * size[..., 0, 0] * ((trace.log() + log) / POWER).exp(), power


def _slope(W: Tensor, bound: Tensor, power: Tensor) -> Tensor:
    """∂S/∂W. It points along W A^(2^m), and as S is homogeneous, ⟨∂S/∂W, W⟩ = S."""
    along = W @ power if W.shape[-1] <= W.shape[-2] else power @ W
    length = (along * W).sum((-2, -1)).clamp_min(torch.finfo(W.dtype).tiny)
    return (bound / length)[..., None, None] * along


class _Schatten(torch.autograd.Function):
    """`schatten` with the gradient of Note [A bound from above]: one product in place of twelve."""

    generate_vmap_rule = True

    @staticmethod
    def forward(W: Tensor) -> tuple[Tensor, Tensor]:
        return _found(W)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor | None) -> Tensor:
        W, bound, power = ctx.saved_tensors
        with without_autocast(W):
            if torch.is_grad_enabled():  # the way back is differentiated, too
                bound, power = _found(W)
            return g[..., None, None] * _slope(W, bound, power)
