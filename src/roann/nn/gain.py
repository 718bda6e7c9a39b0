"""The gain γ of the drive, with which an input leaves a visible trace at any horizon.

Note [Where the gain comes from]
--------------------------------
One step adds α φ(…) to the state: with α = ρ / T and a drive of size 1, what one input leaves
behind is of size ρ / T. So the drive has a gain,

    x[k+1] = α φ(W x[k] + γ ⊙ (W_i u[k+1] + b)) + (1 − α) O x[k],    γ = α^(−1/2),

with which T independent inputs together leave a state of one size, whatever T, if φ is a rectifier:
"The gain" in docs/mathematics.md. No Jacobian has γ in it, so the theorems hold as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from roann import _checks
from roann.filters import make


def gain_for(alpha: float | Tensor, features: int) -> Tensor:
    r"""γ of every coordinate, from α.

    .. math:: \gamma = \alpha^{-1/2}

    γ = 1 where α is 0 or 1: there is no memory to fill, or none to keep.

    Args:
        alpha: α, a number or (N,).
        features: N.

    Shape: (N,), in float64.

    Example:
        >>> gain_for(1 / 400, 2)
        tensor([20., 20.], dtype=torch.float64)

    Reference: Note [Where the gain comes from] in `roann.nn.gain`.
    """
    number = not isinstance(alpha, Tensor)
    a = torch.as_tensor(alpha, dtype=torch.float64, device="cpu" if number else None).detach()
    a = a.expand(*a.shape[:-1], features)
    found = a.clamp_min(torch.finfo(a.dtype).tiny).rsqrt()
    return torch.where((a > 0) & (a < 1), found, torch.ones_like(found))


def steady_gain(hidden_size: int, horizon: float, rho: float = 1.0) -> Tensor:
    r"""γ of every neuron of a layer with the filter "broad", one per plane.

    .. math:: \gamma_j = \alpha^{-1/2} \max(1, r_j / \sqrt{T})^{-1/2}, \quad
        r_j = \min(T, 2 / \theta_j)

    At ρ = 1 this is the geometric mean of α^(−1/2), which noise asks for, and 1 / (α r), which a
    mean asks for that adds up over r of T steps. Estimators take it.

    Args:
        hidden_size: N.
        horizon: T.
        rho: ρ; α = ρ / T.

    Shape: (N,), in float64.

    Example:
        >>> steady_gain(16, 400.0)[[0, 15]]
        tensor([ 4.4721, 20.0000], dtype=torch.float64)
    """
    O = make({"name": "broad", "horizon": horizon}, hidden_size, dtype=torch.float64)
    theta = torch.zeros(hidden_size, dtype=torch.float64)
    turning = O.get_buffer("angle").repeat_interleave(2)
    theta[: len(turning)] = turning
    r = 1 / torch.clamp_min(theta / 2, 1 / horizon)
    gain: Tensor = (rho / horizon) ** -0.5 * (r * (1 / horizon) ** 0.5).clamp_min(1).rsqrt()
    return gain


def given_gain(gain: object, features: int | None) -> float | Tensor | None:
    """The argument `gain` of a layer: a number, one per neuron, or None for `gain_for`.

    `features` is N, where all scans have the same.
    """
    if gain is None:
        return None
    if not isinstance(gain, Tensor):
        return _checks.real("gain", gain, positive=True)
    if features is None or gain.shape != (features,) or not gain.is_floating_point():
        what = f"shape {tuple(gain.shape)} of {gain.dtype}"
        tensor = "" if features is None else f" or a float tensor ({features},)"
        _checks.fail("gain", f"None, a number{tensor}", what)
    if not gain.is_meta and not bool((gain.isfinite() & (gain > 0)).all()):
        _checks.fail("gain", "finite numbers above 0", f"[{gain.min():g}, {gain.max():g}]")
    return gain.detach().clone()
