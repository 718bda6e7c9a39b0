"""The setting of the layers in estimators: what series are like, not how long they are.

It differs from the layers' own in ρ = 1, a drawn bias and a gain that is lower in slow planes: more
kinds of units and more nonlinearity, for short series with much to tell apart.
"""

from __future__ import annotations

from typing import Any

from roann.nn.gain import steady_gain

RHO = 1.0


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
