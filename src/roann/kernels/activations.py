"""The nonlinearities φ: one table, from which layers, kernels and theorems all read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

LEAK = 0.01  # slope of leaky_relu below zero, as in torch.nn.LeakyReLU


@dataclass(frozen=True)
class Activation:
    """A nonlinearity with what the theorems need to know of it."""

    name: str
    code: int  # the number the native kernel knows it by
    value: Callable[[Tensor], Tensor]  # φ, elementwise
    slope: Callable[[Tensor], Tensor]  # φ′(y) as a function of φ(y); at a kink as torch's
    r: float  # the largest slope: φ′ takes values in [0, r] (Theorems II.1 and III.1)
    R: float | None  # |φ| ≤ R if φ is bounded


def _softplus(y: Tensor) -> Tensor:
    # Not F.softplus, which replaces the curve by a line above 20, visibly so in float64.
    return torch.logaddexp(y, torch.zeros_like(y))


def _leaky_slope(f: Tensor) -> Tensor:
    return torch.full_like(f, LEAK).masked_fill(f > 0, 1)


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("relu", 0, torch.relu, lambda f: (f > 0).to(f.dtype), 1.0, None),
        Activation("tanh", 1, torch.tanh, lambda f: 1 - f.square(), 1.0, 1.0),
        Activation("sigmoid", 2, torch.sigmoid, lambda f: f * (1 - f), 0.25, 1.0),
        Activation("identity", 3, lambda y: y, torch.ones_like, 1.0, None),
        Activation("leaky_relu", 4, lambda y: F.leaky_relu(y, LEAK), _leaky_slope, 1.0, None),
        Activation("softplus", 5, _softplus, lambda f: -torch.expm1(-f), 1.0, None),
    )
}
