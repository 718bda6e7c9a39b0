"""Other integrators, by torchdiffeq: an extra (`pip install roann[ode]`)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from roann import _checks

Field = Callable[[Tensor], Tensor]


def check(method: str) -> str:
    """`method` if torchdiffeq is there and knows it."""
    try:
        integrate(lambda x: -x, torch.zeros(1), method, 1e-3)
    except ValueError as error:
        if "method" not in str(error):
            raise
        _checks.fail("method", "a method of torchdiffeq, such as 'dopri5' or 'rk4'", repr(method))
    return method


def integrate(field: Field, x: Tensor, method: str, tolerance: float) -> Tensor:
    """x(1) from ẋ = field(x), x(0) = x; differentiable through the solver's own steps."""
    try:
        from torchdiffeq import odeint  # type: ignore[import-untyped]
    except ImportError as error:
        raise ImportError(
            f"method: expected torchdiffeq to be installed for {method!r}; pip install roann[ode]"
        ) from error
    time = torch.tensor([0.0, 1.0], dtype=x.dtype, device=x.device)
    path: Tensor = odeint(
        lambda _, y: field(y), x, time, method=method, rtol=tolerance, atol=tolerance
    )
    return path[-1]
