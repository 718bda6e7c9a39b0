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


def _tanh_slope(f: Tensor) -> Tensor:
    return 1 - f.square()


def _sigmoid_slope(f: Tensor) -> Tensor:
    return f * (1 - f)


def _relu_slope(f: Tensor) -> Tensor:
    return (f > 0).to(f.dtype)


def _leaky_relu_slope(f: Tensor) -> Tensor:
    return torch.full_like(f, LEAK).masked_fill(f > 0, 1)


def _leaky_relu(y: Tensor) -> Tensor:
    return F.leaky_relu(y, LEAK)


def _softplus(y: Tensor) -> Tensor:
    # Not F.softplus, which replaces the curve by a line above 20, visibly so in float64.
    return torch.logaddexp(y, torch.zeros_like(y))


def _softplus_slope(f: Tensor) -> Tensor:
    return -torch.expm1(-f)


def _identity(y: Tensor) -> Tensor:
    return y


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("relu", 0, torch.relu, _relu_slope, 1.0, None),
        Activation("tanh", 1, torch.tanh, _tanh_slope, 1.0, 1.0),
        Activation("sigmoid", 2, torch.sigmoid, _sigmoid_slope, 0.25, 1.0),
        Activation("identity", 3, _identity, torch.ones_like, 1.0, None),
        Activation("leaky_relu", 4, _leaky_relu, _leaky_relu_slope, 1.0, None),
        Activation("softplus", 5, _softplus, _softplus_slope, 1.0, None),
    )
}
