"""The setting of the layers in estimators: what series are like, not how long they are.

It differs from the layers' own in ρ = 1, a drawn bias and a gain that is lower in slow planes: more
kinds of units and more nonlinearity, for short series with much to tell apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roann.filters import make

RHO = 1.0


def steady_gain(hidden_size: int, horizon: float) -> Tensor:
    r"""γ of every neuron of a layer with the filter "broad" and ρ = 1.

    .. math:: \gamma_j = \alpha^{-1/2} \max(1, r_j \sqrt\alpha)^{-1/2}, \quad
        r_j = \min(1 / \alpha, 2 / \theta_j)

    It is the geometric mean of what noise asks for, α^(−1/2), and what a mean that adds up for r
    steps does, 1 / (α r).

    Args:
        hidden_size: N.
        horizon: 1 / α.

    Shape: (N,), in float64.

    Example:
        >>> steady_gain(16, 400.0)[[0, 15]]
        tensor([ 4.4721, 20.0000], dtype=torch.float64)
    """
    alpha = RHO / horizon
    O = make({"name": "broad", "horizon": horizon}, hidden_size, dtype=torch.float64)
    theta = torch.zeros(hidden_size, dtype=torch.float64)
    turning = O.get_buffer("angle").repeat_interleave(2)
    theta[: len(turning)] = turning
    r = 1 / torch.clamp_min(theta / 2, alpha)
    gain: Tensor = alpha**-0.5 * (r * alpha**0.5).clamp_min(1).rsqrt()
    return gain


def layer_options(hidden_size: int, horizon: float, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a `RoaRNN` or `RoaODE`: this setting, and what the user gives of it.

    Example:
        >>> sorted(layer_options(4, 100.0, {"alpha": 0.1}))
        ['alpha', 'init']
    """
    options: dict[str, Any] = {"rho": RHO, "horizon": horizon, "init": "drawn_bias"}
    if not {"rho", "alpha", "horizon", "filter"} & set(given) and horizon > RHO:
        options["gain"] = steady_gain(hidden_size, horizon)
    options |= given
    if "alpha" in given:
        del options["rho"], options["horizon"]
    return options
