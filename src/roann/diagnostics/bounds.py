"""The theorems' intervals of a model as it stands."""

from __future__ import annotations

import torch
from torch import Tensor

from roann.diagnostics.extremes import extremes, random_unit
from roann.diagnostics.systems import roa
from roann.theorem import Bounds, roa_bounds

EXACT = 768  # the largest side for which ‖W‖ is computed by SVD


def bounds_of(model: object, maps: int | None = None, *, layer: int = 0) -> Bounds | None:
    """The bounds of a model of ours; None for other systems.

    They hold for its weights as they stand or, with a `max_norm` and a ρ that is not learned, for
    all weights.

    Args:
        model: `RoaRNN`, `RoaRNNCell`, `RoaFNN`, `RoaLayer`, or `RoaODE` and `RoaEuler` at
            intervals of `dt`.
        maps: M, the number of steps, for a recurrent model.
        layer: which recurrence of a model of several, counted as in h_n.

    Example:
        >>> import roann
        >>> net = roann.RoaFNN([4] * 101, rho=1.0, init="orthogonal")  # 100 maps with ‖W‖ = 1
        >>> bounds = bounds_of(net)
        >>> bool(abs(bounds.asymptotic.upper - 1) < 1e-5)  # exp(ρ(rσ − 1)) = 1
        True

    Reference: Theorems II.1 and III.1 of the paper.
    """
    ours = roa(model, layer)
    if ours is None:
        return None
    cap = ours.max_norm
    if cap is None:
        sigma = torch.cat([spectral_norm(W).reshape(-1) for W in ours.weights])
    else:
        count = sum(len(W) if W.dim() == 3 else 1 for W in ours.weights)
        sigma = torch.full((count,), cap, dtype=torch.float64)
    if ours.widths is not None:
        return roa_bounds(ours.alpha, sigma, maps, ours.phi.r, ours.widths)
    return roa_bounds(ours.alpha, float(sigma), maps, ours.phi.r)


def spectral_norm(W: Tensor) -> Tensor:
    """‖W‖, by SVD up to a side of 768, by power iteration (in its Krylov form) beyond.

    The Krylov value is raised by its residual, so that a bound built on it errs on the safe side.

    Args:
        W: a matrix, or a stack of them.

    Shape:
        W (…, N_out, N_in); the result is (…), float64 on the CPU.

    Example:
        >>> W = torch.diag(torch.tensor([3.0, -5.0, 1.0], dtype=torch.float64))
        >>> float(spectral_norm(W)) - 5
        0.0

    Reference: σ of Theorems II.1 and III.1 of the paper.
    """
    W = W.detach()
    if min(W.shape[-2:]) <= EXACT:
        norms: Tensor = torch.linalg.matrix_norm(W.to("cpu", torch.float64), ord=2)
        return norms
    flat = W.reshape(-1, *W.shape[-2:])
    if flat.dtype in (torch.float16, torch.bfloat16):
        flat = flat.float()
    return torch.tensor([_krylov_norm(A) for A in flat], dtype=torch.float64).reshape(W.shape[:-2])


def _krylov_norm(A: Tensor) -> float:
    start = random_unit(A.shape[1], A)
    found = extremes(lambda v: A @ v, lambda u: A.mT @ u, start, steps=300, tolerance=1e-5)
    return found.largest + found.largest_residual
