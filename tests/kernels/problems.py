"""Random problems for the sweeps, and their truth: autograd through the reference step."""

from dataclasses import replace

import torch

from roann.kernels import reference
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import Dense, Gather, Planes, Rotation
from roann.kernels.problem import Problem
from roann.kernels.ragged import Ragged

FORMS = ("dense", "gather", "rotation", "planes")
ALPHAS = {"scalar": (), "vector": ("N",), "step": ("T", 1), "both": ("T", "N")}


def normal(g, *shape):
    return torch.randn(shape, generator=g, dtype=torch.float64)


def make_filter(g, form, N, steps):
    """A random orthogonal map; one per step if `steps` is a number."""
    if steps is not None:
        each = [make_filter(g, form, N, None) for _ in range(steps)]
        tensors = zip(*(f.tensors() for f in each), strict=True)
        return each[0].with_tensors(tuple(torch.stack(t) for t in tensors))
    if form == "dense":
        return Dense(torch.linalg.qr(normal(g, N, N)).Q.contiguous())
    order = torch.randperm(N, generator=g)
    if form == "gather":
        return Gather(order, order.argsort())
    if form == "planes":
        angle = normal(g, N // 2)
        cos, sin = (f(angle).repeat_interleave(2) for f in (torch.cos, torch.sin))
        sin[1::2] *= -1
        odd = torch.ones(N % 2).double()
        return Planes(torch.cat([cos, odd]), torch.cat([sin, 0 * odd]))
    cos, sin, partner = torch.ones(N).double(), torch.zeros(N).double(), torch.arange(N)
    for i, j in order[: N // 2 * 2].view(-1, 2).tolist():
        angle = normal(g)
        cos[i] = cos[j] = angle.cos()
        sin[i], sin[j] = angle.sin(), -angle.sin()
        partner[i], partner[j] = j, i
    return Rotation(cos, sin, partner)


def make(
    T, B, N, I=2, phi="tanh", form="dense", alpha="scalar", deep=False, deep_O=False, bias=True,
    ragged=False, dtype=torch.float64, seed=0, top=0.5, learned=False,
):  # fmt: skip
    """A problem whose tensors are exact in `dtype`; α is at most `top`, and at most 1."""
    g = torch.Generator().manual_seed(seed)
    shape = tuple({"T": T, "N": N}.get(n, n) for n in ALPHAS[alpha])
    sizes = sorted(torch.randint(1, B + 1, (T,), generator=g).tolist())[::-1]
    over_time = (sum(sizes),) if ragged else (T, B)
    p = Problem(
        x0=normal(g, B, N),
        u=normal(g, *over_time, I) if I else None,
        W=normal(g, T, N, N) / N**0.5 if deep else normal(g, N, N) / N**0.5,
        W_i=normal(g, N, I) if I else None,
        b=(normal(g, T, N) if deep else normal(g, N)) if bias else None,
        O=make_filter(g, form, N, T if deep_O else None),
        alpha=(torch.rand(shape, generator=g, dtype=torch.float64) * top).clamp_max(1),
        phi=ACTIVATIONS[phi],
        steps=T,
        ragged=Ragged(tuple(sizes)) if ragged else None,
    )
    p = cast(p, dtype)
    return replace(p, terms=learned)


def cast(p, dtype):
    def one(t):
        return t.to(dtype) if t is not None and t.is_floating_point() else t

    names = ("x0", "u", "W", "W_i", "b", "alpha")
    O = p.O.with_tensors(tuple(one(t) for t in p.O.tensors()))
    return replace(p, O=O, **{name: one(getattr(p, name)) for name in names})


def plain(p, g_states, g_last):
    """States, a, λ[0] and λ (φ − O x) by autograd through the reference step, in float64.

    a = ∂ℓ/∂y and λ (φ − O x) = ∂ℓ/∂α of one row, unit and step, so they are the gradients of zeros
    added to the drive and to α.
    """
    p = cast(replace(p, alpha=p.alpha.detach()), torch.float64)
    x = x0 = p.x0.clone().requires_grad_()
    zero = p.x0.new_zeros(p.shape(x0.shape[-1])).requires_grad_()
    more_alpha = torch.zeros_like(zero).requires_grad_()
    states = []
    for k in range(p.steps):
        one = p.segment(k, k + 1, x)
        drive = p.at(zero, k)
        if p.b is not None:
            drive = drive + (p.b[k] if p.b.dim() == 2 else p.b)
        if p.u is not None:
            drive = drive + p.at(p.u, k) @ p.W_i.mT
        n = p.rows(k)
        W = one.W[0] if one.W.dim() == 3 else one.W
        alpha = p.alpha_at(k) + p.at(more_alpha, k)
        moved = reference.step(x[:n], drive, W, p.O.at(k), alpha, p.phi)
        x = torch.cat([moved, x[n:]])
        states.append(moved)
    total = sum((moved * p.at(g_states, k)).sum() for k, moved in enumerate(states))
    (total + (x * g_last).sum()).backward()
    join = torch.stack if p.ragged is None else torch.cat
    return join(states).detach(), zero.grad, x0.grad, more_alpha.grad


def gradients_for(p, seed=1):
    g = torch.Generator().manual_seed(seed)
    B, N = p.x0.shape
    return normal(g, *p.shape(N)).to(p.W.dtype), normal(g, B, N).to(p.W.dtype)


def close(got, want, N):
    """Equal to the rounding of sums of N + 30 terms of order one."""
    got, want = got.detach(), want.detach()
    bound = 4 * torch.finfo(got.dtype).eps * (N + 30)
    assert got.shape == want.shape
    assert float((got - want).abs().max()) <= bound * max(1.0, float(want.abs().max()))


def all_before(p, states):
    """x[k] of every row before it moves, from x[1] … x[T]; those of the first step come first."""
    first, others, places = p.before(states)
    others = others.flatten(0, -2) if places is None else others[places]
    return torch.cat([first.flatten(0, -2), others])
