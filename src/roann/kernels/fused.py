"""The scan with a hand-written adjoint, in torch operations only: any device, any float dtype.

The input projection is one GEMM for all steps; W and O share one GEMM per step; the adjoint
sweep (Eq. 13, 22, 23) needs the slopes φ′(y) and nothing else, and never divides by α.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from roann.kernels.linear import Dense, Linear
from roann.kernels.problem import Adjoint, Before, Problem, Trace


def project(p: Problem) -> Tensor | None:
    """W_i u + b for all steps: over time, or one for all rows (T, 1, N), a bias (N,), or None."""
    b = p.b
    if b is not None and b.dim() == 2:
        if p.ragged is None:
            b = b.unsqueeze(1)
        else:
            b = b.repeat_interleave(torch.tensor(p.ragged.sizes, device=b.device), 0)
    if p.u is None or p.W_i is None:
        return b
    if b is None or b.dim() == 1:
        return F.linear(p.u, p.W_i, b)
    return F.linear(p.u, p.W_i) + b


def preactivations(p: Problem, previous: Tensor) -> Tensor:
    """y[k] = W x[k] + W_i u[k+1] + b for known states `previous` = x[0] … x[T−1]: one GEMM."""
    y = Dense(p.W).apply(previous) if p.ragged is None else _turned(p, Dense(p.W), previous)
    drive = project(p)
    return y if drive is None else y + drive


def turned(p: Problem, previous: Tensor) -> Tensor:
    """O x[k] for known states `previous` = x[0] … x[T−1]."""
    return p.O.apply(previous) if p.ragged is None else _turned(p, p.O, previous)


def _turned(p: Problem, map: Linear, packed: Tensor) -> Tensor:
    if not map.stacked:
        return map.apply(packed)
    return torch.cat([map.at(k).apply(p.at(packed, k)) for k in range(p.steps)])


def forward(p: Problem, keep: bool) -> tuple[Tensor, Trace | None]:
    """See `Kernel.forward`. W may be rectangular when T = 1."""
    N = p.W.shape[-2]
    drive = project(p)
    # One GEMM for both products wherever W and O are matrices of the same kind.
    joint = None
    if isinstance(p.O, Dense) and p.O.stacked == (p.W.dim() == 3):
        joint = torch.cat([p.W, p.O.matrix], dim=-2).mT
    states = p.x0.new_empty(p.shape(N))
    slopes = torch.empty_like(states) if keep else None
    moved = torch.empty_like(states) if keep and p.alpha.requires_grad else None
    x = p.x0
    for k in range(p.steps):
        x, alpha, out = x[: p.rows(k)], p.alpha_at(k), p.at(states, k)
        if joint is not None:
            both = torch.matmul(x, joint[k] if joint.dim() == 3 else joint)
            y, Ox = both[:, :N], both[:, N:]
        else:
            y = torch.matmul(x, (p.W[k] if p.W.dim() == 3 else p.W).mT)
            Ox = p.O.at(k).apply(x)
        if drive is not None:
            y = y + (p.at(drive, k) if drive.dim() > 1 else drive)
        value = p.phi.value(y)
        torch.mul(Ox, 1 - alpha, out=out).add_(alpha * value)
        if slopes is not None:
            p.at(slopes, k).copy_(p.phi.slope(y))
        if moved is not None:
            torch.sub(value, Ox, out=p.at(moved, k))
        x = out
    return states, None if slopes is None else Trace(slopes, moved)


def backward(
    p: Problem,
    trace: Trace,
    g_states: Tensor | None,
    g_last: Tensor | None,
    before: Before | None = None,
) -> Adjoint:
    """See `Kernel.backward`."""
    slopes, moved = trace
    B, N = p.x0.shape[0], slopes.shape[-1]
    lam = slopes.new_zeros(B, N) if g_last is None else g_last.clone()
    for k in reversed(range(p.steps)):
        n, alpha, a = p.rows(k), p.alpha_at(k), p.at(slopes, k)
        here = lam[:n]
        if g_states is not None:
            here += p.at(g_states, k)
        if moved is not None:
            p.at(moved, k).mul_(here)
        a.mul_(here).mul_(alpha)
        back = torch.matmul(a, p.W[k] if p.W.dim() == 3 else p.W)
        rest = (1 - alpha) * here
        O = p.O.at(k)
        if isinstance(O, Dense):
            back.addmm_(rest, O.matrix)
        else:
            back += O.apply_transpose(rest)
        if n == B:
            lam = back
        else:
            lam[:n] = back
    return Adjoint(slopes, lam, moved)


def inverse(p: Problem, last: Tensor, rounds: int) -> tuple[Tensor, Tensor, Trace]:
    """See `Kernel.inverse`."""
    drive = project(p)
    previous = last.new_empty(p.shape(last.shape[-1]))
    x = last.clone()
    for k in reversed(range(p.steps)):
        n, alpha, O = p.rows(k), p.alpha_at(k), p.O.at(k)
        W = p.W[k] if p.W.dim() == 3 else p.W
        here = p.at(drive, k) if drive is not None and drive.dim() > 1 else drive
        target = x[:n] / (1 - alpha)
        scale = alpha / (1 - alpha)
        guess = O.apply_transpose(target)
        for _ in range(rounds):
            y = torch.matmul(guess, W.mT)
            if here is not None:
                y = y + here
            guess = O.apply_transpose(target - scale * p.phi.value(y))
        p.at(previous, k).copy_(guess)
        x[:n] = guess
    y = preactivations(p, previous)
    moved = p.phi.value(y) - turned(p, previous) if p.alpha.requires_grad else None
    return previous, x, Trace(p.phi.slope(y), moved)
