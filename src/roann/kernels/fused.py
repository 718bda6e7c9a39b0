"""The scan with a hand-written adjoint, in torch operations only: any device, any float dtype.

The input projection is one GEMM for all steps; W and O share one GEMM per step; the adjoint
sweep (Eq. 13, 22, 23) needs the slopes φ′(y) and nothing else, and never divides by α.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from roann.kernels.linear import Dense
from roann.kernels.problem import Problem


def project(p: Problem) -> Tensor | None:
    """W_i u + b for all steps: (T, B, N), or per-step biases (T, N), a bias (N,), or None."""
    if p.u is None or p.W_i is None:
        return p.b
    if p.b is None or p.b.dim() == 1:
        return F.linear(p.u, p.W_i, p.b)
    return F.linear(p.u, p.W_i) + p.b.unsqueeze(1)


def preactivations(p: Problem, previous: Tensor) -> Tensor:
    """y[k] = W x[k] + W_i u[k+1] + b for known states `previous` = x[0] … x[T−1]: one GEMM."""
    y = torch.matmul(previous, p.W.mT)
    drive = project(p)
    if drive is None:
        return y
    return y + (drive.unsqueeze(1) if drive.dim() == 2 else drive)


def forward(p: Problem, keep_slopes: bool) -> tuple[Tensor, Tensor | None]:
    """See `Kernel.forward`. W may be rectangular when T = 1."""
    B, N = p.x0.shape[0], p.W.shape[-2]
    drive = project(p)
    per_step_drive = drive is not None and drive.dim() > 1
    # One GEMM for both products wherever W and O are matrices of the same kind.
    joint = None
    if isinstance(p.O, Dense) and p.O.stacked == (p.W.dim() == 3):
        joint = torch.cat([p.W, p.O.matrix], dim=-2).mT
    states = p.x0.new_empty(p.steps, B, N)
    slopes = p.x0.new_empty(p.steps, B, N) if keep_slopes else None
    x = p.x0
    for k in range(p.steps):
        n, alpha, out = p.rows(k), p.alpha_at(k), states[k]
        if joint is not None:
            both = torch.matmul(x[:n], joint[k] if joint.dim() == 3 else joint)
            y, turned = both[:, :N], both[:, N:]
        else:
            y = torch.matmul(x[:n], (p.W[k] if p.W.dim() == 3 else p.W).mT)
            turned = p.O.at(k).apply(x[:n])
        if drive is not None:
            here = drive[k] if per_step_drive else drive
            y = y + (here[:n] if here.dim() == 2 else here)
        torch.mul(turned, 1 - alpha, out=out[:n]).add_(alpha * p.phi.value(y))
        if slopes is not None:
            slopes[k, :n] = p.phi.slope(y)
        if n < B:
            out[n:] = x[n:]
            if slopes is not None:
                slopes[k, n:] = 0
        x = out
    return states, slopes


def backward(
    p: Problem, slopes: Tensor, g_states: Tensor | None, g_last: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """See `Kernel.backward`."""
    lam = torch.zeros_like(slopes[0]) if g_last is None else g_last.clone()
    adjoints = torch.empty_like(slopes) if p.alpha.requires_grad else None
    for k in reversed(range(p.steps)):
        if g_states is not None:
            lam += g_states[k]
        if adjoints is not None:
            adjoints[k] = lam
        n, alpha, a = p.rows(k), p.alpha_at(k), slopes[k]
        a.mul_(lam).mul_(alpha)
        back = torch.matmul(a[:n], p.W[k] if p.W.dim() == 3 else p.W)
        turned = (1 - alpha) * lam[:n]
        O = p.O.at(k)
        if isinstance(O, Dense):
            back.addmm_(turned, O.matrix)
        else:
            back += O.apply_transpose(turned)
        lam = back if n == lam.shape[0] else torch.cat([back, lam[n:]])
    return slopes, lam, adjoints


def inverse(p: Problem, last: Tensor, rounds: int) -> Tensor:
    """x[0] … x[T−1] as (T, B, N) from x[T] = `last`; `p.x0` is not read.

    Each step is undone by `rounds` rounds of a contraction: see Note [Undoing a step].
    """
    drive = project(p)
    previous = last.new_empty(p.steps, *last.shape)
    x = last
    for k in reversed(range(p.steps)):
        n, alpha, O = p.rows(k), p.alpha_at(k), p.O.at(k)
        W = p.W[k] if p.W.dim() == 3 else p.W
        here = None if drive is None else (drive[k] if drive.dim() > 1 else drive)
        if here is not None and here.dim() == 2:
            here = here[:n]
        target = x[:n] / (1 - alpha)
        scale = alpha / (1 - alpha)
        guess = O.apply_transpose(target)
        for _ in range(rounds):
            y = torch.matmul(guess, W.mT)
            if here is not None:
                y = y + here
            guess = O.apply_transpose(target - scale * p.phi.value(y))
        previous[k, :n] = guess
        if n < x.shape[0]:
            previous[k, n:] = x[n:]
        x = previous[k]
    return previous
