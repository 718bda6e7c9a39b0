"""The equation as a plain loop, which every other implementation is tested against.

No other Python code computes it: the fused kernel and `roann.Roa` call `mix`, diagnostics call
`step`. The native kernel has it in C++, and `roann.export` as operators of ONNX. The loop can be
differentiated to any order, and is safe under `torch.func`, `vmap` and any dtype or device.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from roann.kernels.activations import Activation
from roann.kernels.linear import Linear
from roann.kernels.problem import Problem


def mix(
    value: Tensor,
    Ox: Tensor,
    alpha: Tensor | float,
    rest: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """α φ + (1 − α) O x from φ and O x; into `out`, which may not need a gradient, if given.

    `rest` is 1 − α where a loop has it at hand: for a number the difference costs as much as a map.
    `step` has the same sum as one operation, `torch.lerp`, with other rounding.

    Example:
        >>> mix(torch.tensor([1.0]), torch.tensor([3.0]), 0.25)
        tensor([2.5000])
    """
    scale = 1 - alpha if rest is None else rest
    if out is None:
        return alpha * value + scale * Ox
    return torch.mul(Ox, scale, out=out).add_(alpha * value)


def step(
    x: Tensor,
    drive: Tensor | None,
    W: Tensor,
    O: Linear,
    alpha: Tensor | float,
    phi: Activation,
) -> Tensor:
    """One step of Eq. (12) and (19): α φ(W x + drive) + (1 − α) O x.

    `drive` is W_i u + b, in whole or in part; α multiplies from the left, entry by entry:
    torch.lerp(a, b, α) = (1 − α) a + α b.
    """
    biased = drive is not None and drive.dim() == 1  # then it is one operation with the product
    y = F.linear(x, W, drive if biased else None)
    if drive is not None and not biased:
        y = y + drive
    return torch.lerp(O.matvec(x), phi.value(y), alpha)


def scan(p: Problem) -> tuple[Tensor, Tensor]:
    """The states x[1] … x[T], as (T, B, N_out) or packed, and x[T] as (B, N_out)."""
    x, states = p.x0, []
    for k in range(p.steps):
        n = p.rows(k)
        W = p.W[k] if p.W.dim() == 3 else p.W
        drive = p.b[k] if p.b is not None and p.b.dim() == 2 else p.b
        if p.u is not None and p.W_i is not None:
            drive = F.linear(p.at(p.u, k), p.W_i, drive)
        new = step(x[:n], drive, W, p.O.at(k), p.alpha_at(k), p.phi)
        x = new if n == x.shape[0] else torch.cat([new, x[n:]])
        states.append(new)
    return (torch.stack(states) if p.ragged is None else torch.cat(states)), x
