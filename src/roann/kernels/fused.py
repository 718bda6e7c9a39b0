"""The scan with a hand-written adjoint, in torch operations only: any device, any float dtype.

The input projection is one GEMM for all steps; W and O share one GEMM per step; the adjoint
sweep (Eq. 13, 22, 23) needs the slopes φ′(y), or what they follow from (Note [One array for two]).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from roann.kernels.linear import Dense
from roann.kernels.outer import add_outer
from roann.kernels.problem import LARGE_ALPHA, Adjoint, Before, Maybe, Problem, Room, Undone
from roann.kernels.reference import mix

__all__ = ["add_outer", "backward", "forward", "inverse", "project", "supports", "trace_room"]


def supports(p: Problem) -> bool:
    """Any device, any float dtype, any shape."""
    return True


def trace_room(p: Problem) -> Room:
    """See `Kernel.trace_room`."""
    return p.shape(p.W.shape[-2]), p.x0.dtype


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


def forward(p: Problem, keep: bool) -> tuple[Tensor, Tensor | None]:
    """See `Kernel.forward`. W may be rectangular when T = 1."""
    N = p.W.shape[-2]
    drive = project(p)
    # One GEMM for both products wherever W and O are matrices of the same kind.
    joint = None
    if isinstance(p.O, Dense) and p.O.stacked == (p.W.dim() == 3):
        joint = torch.cat([p.W, p.O.matrix], dim=-2).mT
    states = p.x0.new_empty(p.shape(N))
    trace = torch.empty_like(states) if keep else None
    x, rests = p.x0, 1 - p.alpha
    for k in range(p.steps):
        alpha, out = p.alpha_at(k), p.at(states, k)
        x = x if p.ragged is None else x[: p.rows(k)]
        if joint is not None:
            both = torch.matmul(x, joint[k] if joint.dim() == 3 else joint)
            y, Ox = both.chunk(2, -1)
        else:
            y = torch.matmul(x, (p.W[k] if p.W.dim() == 3 else p.W).mT)
            Ox = p.O.at(k).matvec(x)
        if drive is not None:
            y = y + (p.at(drive, k) if drive.dim() > 1 else drive)
        value = p.phi.value(y)
        mix(value, Ox, alpha, rests[k] if rests.dim() == 2 else rests, out)
        if trace is not None:
            p.at(trace, k).copy_(_kept(p, alpha, value, Ox))
        x = out
    return states, trace


def _kept(p: Problem, alpha: Tensor, value: Tensor, Ox: Tensor) -> Tensor:
    """What goes into the trace. See Note [One array for two] in problem.py."""
    if not p.terms:
        return p.phi.slope(value)
    return torch.where(alpha > LARGE_ALPHA, Ox, value)


def _terms(alpha: Tensor, part: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """φ and φ − O x from the part of x[k+1] that was kept, and x[k+1]."""
    large, rest = alpha > LARGE_ALPHA, 1 - alpha
    value = torch.where(large, (after - rest * part) / alpha, part)
    return value, torch.where(large, (after - part) / alpha, (part - after) / rest)


def backward(
    p: Problem, trace: Tensor, after: Maybe, g_states: Maybe, g_last: Maybe,
    before: Before | None = None,
) -> Adjoint:  # fmt: skip
    """See `Kernel.backward`."""
    B, N = p.x0.shape[0], trace.shape[-1]
    found, moved = torch.empty_like(trace), torch.empty_like(trace) if p.terms else None
    lam = trace.new_zeros(B, N) if g_last is None else g_last.clone()
    rests = 1 - p.alpha
    for k in reversed(range(p.steps)):
        n, alpha, slope, a = p.rows(k), p.alpha_at(k), p.at(trace, k), p.at(found, k)
        here = lam[:n]
        if g_states is not None:
            here += p.at(g_states, k)
        if moved is not None:
            assert after is not None
            value, difference = _terms(alpha, slope, p.at(after, k))
            torch.mul(difference, here, out=p.at(moved, k))
            slope = p.phi.slope(value)
        torch.mul(slope, here, out=a).mul_(alpha)
        back = torch.matmul(a, p.W[k] if p.W.dim() == 3 else p.W)
        rest = (rests[k] if rests.dim() == 2 else rests) * here
        O = p.O.at(k)
        if isinstance(O, Dense):
            back.addmm_(rest, O.matrix)
        else:
            back += O.matvec_transpose(rest)
        if n == B:
            lam = back
        else:
            lam[:n] = back
    return Adjoint(found, lam, moved)


def inverse(p: Problem, last: Tensor, rounds: int) -> Undone:
    """See `Kernel.inverse`."""
    drive = project(p)
    previous = last.new_empty(p.shape(last.shape[-1]))
    after = torch.empty_like(previous) if p.terms else None
    trace = torch.empty_like(previous)
    x = last.clone()
    for k in reversed(range(p.steps)):
        n, alpha, O = p.rows(k), p.alpha_at(k), p.O.at(k)
        W = p.W[k] if p.W.dim() == 3 else p.W
        here = p.at(drive, k) if drive is not None and drive.dim() > 1 else drive
        target = x[:n] / (1 - alpha)
        scale = alpha / (1 - alpha)
        if after is not None:
            p.at(after, k).copy_(x[:n])
        Ox = target
        for _ in range(rounds):
            y = torch.matmul(O.matvec_transpose(Ox), W.mT)
            value = p.phi.value(y if here is None else y + here)
            Ox = target - scale * value
        p.at(trace, k).copy_(_kept(p, alpha, value, Ox))
        x[:n] = O.matvec_transpose(Ox)
        p.at(previous, k).copy_(x[:n])
    return Undone(previous, x, trace, after)
