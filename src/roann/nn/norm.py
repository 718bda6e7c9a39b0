"""A cap on ‖W‖₂ that holds in every forward pass: rigorous, stateless and differentiable.

The layer computes with W · min(1, c / S), whose norm is at most c, where S ≥ ‖W‖₂ is the Schatten
norm of Note [A norm from above] in `roann.theorem`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from roann.filters.base import full_precision
from roann.theorem import schatten, schatten_and_power


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

    Reference: Note [A norm from above] in `roann.theorem`.
    """
    if max_norm is None:
        return W
    full = W.to(full_precision(W.dtype))
    bound: Tensor
    if torch.compiler.is_compiling() or forward_ad.unpack_dual(full).tangent is None:  # type: ignore[no-untyped-call]
        bound = _Schatten.apply(full)[0]  # type: ignore[no-untyped-call]
    else:  # forward mode
        bound = schatten(full)
    scale = max_norm / bound.clamp_min(max_norm)
    return (full * scale[..., None, None]).to(W.dtype)


def _slope(W: Tensor, bound: Tensor, power: Tensor) -> Tensor:
    """∂S/∂W. It points along W A^(2^m), and as S is homogeneous, ⟨∂S/∂W, W⟩ = S."""
    along = W @ power if W.shape[-1] <= W.shape[-2] else power @ W
    length = (along * W).sum((-2, -1)).clamp_min(torch.finfo(W.dtype).tiny)
    return (bound / length)[..., None, None] * along


class _Schatten(torch.autograd.Function):
    """`schatten` with the gradient of Note [A norm from above]: one product in place of twelve."""

    generate_vmap_rule = True

    @staticmethod
    def forward(W: Tensor) -> tuple[Tensor, Tensor]:
        return schatten_and_power(W)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor | None) -> Tensor:
        W, bound, power = ctx.saved_tensors
        if torch.is_grad_enabled():  # the way back is differentiated, too
            bound, power = schatten_and_power(W)
        return g[..., None, None] * _slope(W, bound, power)
