"""A cap on ‖W‖₂ that holds in every forward pass: rigorous, stateless and differentiable.

The layer computes with W · min(1, c / S), whose norm is at most c, where S ≥ ‖W‖₂ is the Schatten
norm of Note [A norm from above] in `roann.theorem`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from roann import _checks
from roann.filters.base import full_precision
from roann.kernels.products import gram, is_plain, same, square_and_bound, transposed_product
from roann.kernels.watch import applied, is_dual, without_autocast
from roann.theorem import schatten, schatten_and_power

CAP = 10.0  # of "auto"
MARGIN = 0.9  # "auto" stays this far within the hypothesis
SAFE = 1e10  # between 1 / SAFE and SAFE, WᵀW has no over- or underflow that matters


def given_cap(max_norm: object, alpha: float | Tensor, r: float) -> float | None:
    """The argument `max_norm` of a layer: c, or None for no cap.

    "auto" is 10, or less where the horizon is so short that the hypothesis α(1 + rc) < 1 asks for
    it; none for α = 0, where W does not act, and α = 1, where there is no theorem.
    """
    if max_norm is None:
        return None
    if max_norm != "auto":
        return _checks.real("max_norm", max_norm, positive=True)
    most = float(alpha.max()) if isinstance(alpha, Tensor) else float(alpha)
    return min(CAP, MARGIN * (1 / most - 1) / r) if 0 < most < 1 else None


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
    found = _capped_at_once(W, max_norm) if W.is_cpu else None
    return _capped_by_parts(W, max_norm) if found is None else found


def _capped_at_once(W: Tensor, max_norm: float) -> Tensor | None:
    """`capped` of plain numbers, which is W where one product shows it; None for others."""
    if not is_plain(W):
        return None
    now, made = W.detach(), None
    with without_autocast(W):
        A, square = square_and_bound(now.to(full_precision(W.dtype)))
        if square <= max_norm * max_norm:  # which, unlike a power, may overflow
            return W
        if W.dim() == 2:
            given = A if 1 / SAFE < square < SAFE else None
            made = applied(_Capped, W, now.clone(), max_norm, given)
    return made


def _capped_by_parts(W: Tensor, max_norm: float) -> Tensor:
    """`capped` by operations that compilers, transforms and second derivatives may follow."""
    full = W.to(full_precision(W.dtype))
    with without_autocast(full):
        # A compiler, or forward mode of this tensor or of one inside it, takes plain operations.
        if torch.compiler.is_compiling() or is_dual(full):
            bound = schatten(full)
        else:
            bound = _Schatten.apply(full)[0]  # type: ignore[no-untyped-call]
    return _scaled(full, bound, _limit(W, max_norm)).to(W.dtype)


def _limit(W: Tensor, max_norm: float) -> float:
    """c, less what rounding the entries to a reduced dtype may add: ‖E‖ ≤ ‖E‖_F ≤ u √N ‖W‖."""
    if W.dtype == full_precision(W.dtype):
        return max_norm  # S has room for it
    return max_norm / (1 + torch.finfo(W.dtype).eps / 2 * math.sqrt(min(W.shape[-2:])))


def _scaled(W: Tensor, bound: Tensor, max_norm: float) -> Tensor:
    limit = torch.full_like(bound, max_norm)
    scale = limit / torch.maximum(bound, limit)  # exactly 1 below the cap
    return W * scale[..., None, None]


def _along(W: Tensor, power: Tensor) -> tuple[Tensor, Tensor]:
    """W A^(2^m), along which ∂S/∂W points, and its product with W."""
    tall = W.shape[-1] <= W.shape[-2]  # then the power, which is symmetric, is one of WᵀW
    along = transposed_product(W.mT, power) if tall else transposed_product(power, W)
    return along, (along * W).sum((-2, -1)).clamp_min(torch.finfo(W.dtype).tiny)


class _Schatten(torch.autograd.Function):
    """`schatten` with the gradient of Note [A norm from above]: one product in place of twelve."""

    generate_vmap_rule = True

    @staticmethod
    def forward(W: Tensor) -> tuple[Tensor, Tensor]:
        return schatten_and_power(W, gram)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Tensor | None) -> Tensor:
        W, bound, power = ctx.saved_tensors
        with without_autocast(W):
            if torch.is_grad_enabled():  # the way back is differentiated, too
                bound, power = schatten_and_power(W, gram)
            along, length = _along(W, power)
            scale: Tensor = g * bound / length  # S is homogeneous, so ⟨∂S/∂W, W⟩ = S
            return scale[..., None, None] * along


class CapMemo:
    """`capped` for a weight that is asked for step after step: computed once while it stays.

    It compares the numbers, so whatever changes them is noticed. The result may be differentiated
    as often as it is used, because it keeps what it needs.
    """

    def __init__(self) -> None:
        self._last: tuple[Tensor, Tensor, float, Tensor] | None = None

    def __call__(self, W: Tensor, max_norm: float | None, x: Tensor) -> Tensor:
        """`capped(W, max_norm)` for a step from x."""
        if max_norm is None:
            return W
        found = self._remembered(W, max_norm) if type(x) is Tensor and is_plain(W) else None
        return capped(W, max_norm) if found is None else found

    def _remembered(self, W: Tensor, max_norm: float) -> Tensor | None:
        graph = torch.is_grad_enabled() and W.requires_grad
        if self._last is not None:
            key, copy, limit, found = self._last
            usable = key is W and limit == max_norm and (found.requires_grad or not graph)
            usable = usable and (torch.is_inference_mode_enabled() or not found.is_inference())
            if usable and same(copy, W):
                return found if graph or found is W else found.detach()
        new = _capped_at_once(W, max_norm)
        if new is not None:
            self._last = W, W.detach().clone(), max_norm, new
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> CapMemo:
        return CapMemo()

    def __reduce__(self) -> tuple[type[CapMemo], tuple[()]]:
        return CapMemo, ()


class _Capped(torch.autograd.Function):
    """`capped` as one function that keeps what its gradient needs, so that it can be shared."""

    @staticmethod
    def forward(ctx: Any, W: Tensor, copy: Tensor, max_norm: float, A: Tensor | None) -> Tensor:
        full, limit = copy.to(full_precision(W.dtype)), _limit(W, max_norm)
        bound, power = schatten_and_power(full, gram, A)
        scale = limit / max(float(bound), limit)  # exactly 1 below the cap
        ctx.W, ctx.copy, ctx.max_norm, ctx.found = W, copy, max_norm, (full, power, scale)
        return (full * scale).to(W.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # the way back is differentiated, too
            if not same(ctx.copy, ctx.W):
                _checks.fail(
                    "weight_hh", "the weight of the step", "one changed since", error=RuntimeError
                )
            new = _capped_by_parts(ctx.W, ctx.max_norm)
            (slope,) = torch.autograd.grad(new, ctx.W, g, create_graph=True)
            return slope, None, None, None
        W, power, scale = ctx.found
        g = g.to(W.dtype)
        if scale < 1:
            with without_autocast(W):
                along, length = _along(W, power)
                # scale = c / S, and ∂S/∂W = S along / length
                g = scale * torch.addcmul(g, along, (g * W).sum() / length, value=-1)
        return g.to(ctx.copy.dtype), None, None, None
