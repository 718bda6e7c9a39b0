"""How intervals of time become steps: A held fixed ("euler"), or O turned ("isometric").

Derivations are in docs/mathematics.md, "Continuous time".

Note [Two readings of unequal intervals]
----------------------------------------
The continuous layer is τ ẋ = A x + φ(W x + b + W_i u) with A = α⁻¹((1−α)O − I) and α = Δt/τ. A step
of length Δt_k = s Δt is one of the discrete layer with α_k = sα and

    euler       O_k = ((1−s) I + s(1−α) O) / (1−α_k)      A is held; orthogonal for s = 1 only
    isometric   O_k = O^s                                 orthogonal for every s

So under unequal intervals the gradients of *euler* vanish, or explode, like those of any other
system. Those of *isometric* lie in [Π_k (1 − α_k(1+rσ)), Π_k (1 + α_k(rσ−1))], if Δt_k (1+rσ) < τ
for the longest interval: what counts is the time that passed, not how often it was looked at.

Note [Which filters have powers]
--------------------------------
O^s must be real and continuous in s, so O must lie on a one-parameter group of rotations. Rotations
of planes do, and their powers cost O(N): every angle times s. So the isometric reading takes the
designed spectra ("broad", …), "rotations", or "identity", which is its own power.

Note [The fields behind the readings]
-------------------------------------
As Δt_k → 0 each reading becomes a differential equation, which a solver can integrate:

    euler       ẋ = (F(x) − x)/Δt           F the discrete layer; the paper's (A x + φ)/τ
    isometric   ẋ = (log O) x/Δt + (φ − x)/τ

The first forgets, as fast as e^(−(1−(1−α)cos θ)) in one Δt; the second does not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from roann import _checks
from roann.filters import Filter
from roann.filters.base import full_precision
from roann.kernels.linear import FORMS, Linear

READINGS = ("isometric", "euler")


@dataclass(eq=False)
class Blend(Linear):
    """stay · x + turn · M x: a step of Euler's as a kernel may take it; not orthogonal.

    stay and turn are (1,) or (N,) for one step, (T, 1) or (T, N) with M (T, N, N) for a stack, or
    (B, 1) or (B, N) with M (N, N) for rows that differ.
    """

    name = "blend"
    rank = 2
    stay: Tensor
    turn: Tensor
    matrix: Tensor

    def shapes(self, out: int, into: int) -> tuple[tuple[int, ...], ...]:
        """See `Linear.shapes`; stay and turn may be one number for all neurons."""
        return tuple(self.stay.shape[-1:]), tuple(self.turn.shape[-1:]), (out, into)

    def _beside(self, v: Tensor, x: Tensor) -> Tensor:
        return v.unsqueeze(1) if self.stacked and x.dim() == 3 else v

    def matvec(self, x: Tensor) -> Tensor:
        """The map."""
        through = torch.matmul(x, self.matrix.mT)
        return self._beside(self.stay, x) * x + self._beside(self.turn, x) * through

    def matvec_transpose(self, x: Tensor) -> Tensor:
        """Its transpose."""
        through = torch.matmul(self._beside(self.turn, x) * x, self.matrix)
        return self._beside(self.stay, x) * x + through

    def to_dense(self) -> Tensor:
        """The map as a matrix, or a stack of them."""
        stay = self.stay.expand(*self.stay.shape[:-1], self.matrix.shape[-1])
        return torch.diag_embed(stay) + self.turn.unsqueeze(-1) * self.matrix


def check(filter: Filter) -> None:
    """Refuse a filter without real powers: see Note [Which filters have powers]."""
    if not filter.has_powers:
        _checks.fail(
            "filter",
            "'broad' or another filter with real powers for isometric steps",
            repr(filter.name),
            "other matrices have no real power for every interval; RoaEuler takes them",
        )


FORMS[Blend.name] = Blend


def isometric(filter: Filter, alpha: float | Tensor, s: Tensor) -> tuple[Tensor, Linear]:
    """α_k and O_k = O^s of steps of s = Δt_k/Δt, of shape (…, 1)."""
    return alpha * s, filter.turned(s.to(full_precision(s.dtype)))


def euler(filter: Filter, alpha: float | Tensor, s: Tensor, stack: bool) -> tuple[Tensor, Linear]:
    """α_k and O_k of Euler's steps of s = Δt_k/Δt, of shape (…, 1), with A held fixed."""
    alphas = alpha * s
    rest = 1 - alphas
    matrix = filter.to_dense().to(s.dtype)
    if stack:  # a view: T equal matrices take no memory
        matrix = matrix.expand(len(s), *matrix.shape)
    return alphas, Blend((1 - s) / rest, s * (1 - alpha) / rest, matrix)


def intervals_of(
    times: Tensor | None, intervals: Tensor | None, dt: float, T: int, B: int
) -> Tensor | None:
    """Δt_k as (T,), or (T, B) for rows that differ, in float64; None if all are Δt."""
    if times is not None and intervals is not None:
        _checks.fail("times", "None when intervals are given", "both", "pass one of the two")
    given, name = (times, "times") if intervals is None else (intervals, "intervals")
    if given is None:
        return None
    if not isinstance(given, Tensor) or tuple(given.shape) not in ((T,), (T, B)):
        got = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
        _checks.fail(name, f"a tensor ({T},), or ({T}, {B}) with one column for each row", got)
    steps = given.to(torch.float64)
    if intervals is None:  # the first step takes Δt: there is no time stamp before it
        steps = torch.cat([torch.full_like(steps[:1], dt), steps.diff(dim=0)])
    return steps


def within(steps: Tensor, lengths: Tensor) -> Tensor:
    """Steps (T, B) with zeros behind the end of each row."""
    k = torch.arange(len(steps), device=steps.device).unsqueeze(1)
    return torch.where(k < lengths.to(steps.device), steps, 0.0)


def moves_on(steps: Tensor, name: str) -> None:
    """Refuse steps into the past, and steps that are not numbers."""
    if _known(steps) and not bool((steps.isfinite() & (steps >= 0)).all()):
        what = "finite numbers that never fall" if name == "times" else "finite, none below 0"
        _checks.fail(name, what, f"a smallest step of {float(steps.detach().min()):g}")


def fits(alphas: Tensor, reading: str) -> None:
    """Refuse intervals longer than τ: α_k would leave [0, 1]."""
    if not _known(alphas):
        return
    most = float(alphas.detach().amax()) if alphas.numel() else 0.0
    if most > 1 or (reading == "euler" and most >= 1):
        _checks.fail(
            "intervals",
            "steps shorter than τ = dt / alpha",
            f"one of {most:g} τ",
            "lower rho, raise horizon or dt, or split long gaps",
        )


def _known(t: Tensor) -> bool:
    """Whether its numbers can be read: not on meta, in a compiler or in a function transform."""
    if t.is_meta or torch.compiler.is_compiling():
        return False
    return torch.func.debug_unwrap(t) is t
