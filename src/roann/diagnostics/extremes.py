"""Extreme singular values of a map that is only known by its two products, or of a long chain.

Note [How far to trust a Krylov value]
--------------------------------------
Golub–Kahan–Lanczos is power iteration that keeps its past vectors. After k steps from v_1 it holds
A V = U B with orthonormal V (n, k), U and a bidiagonal B (k, k). The singular values of B lie
inside those of A: the largest rises to ‖A‖ from below, the smallest sinks to σ_min from above.
The residual β_k |u_k| of a triplet of B (u_k its last entry) bounds the distance to *some* singular
value of A; from a random start that one is the extreme one but for a vanishing chance. The large
end is found quickly. The small end is found as quickly only if it is well seen from the large one,
that is if the condition number is moderate; the residual tells.

Note [Undoing a map that mostly copies]
---------------------------------------
The smallest singular value of P = J_M … J_1 is one over the largest of P⁻¹, and the large end is
the one a Krylov method finds, however ill-conditioned P is. So P⁻¹ must be applied: J_k x = y must
be solved for x. The state of a delay line has thousands of numbers, of which a step computes only
a few and copies the rest. Sort the places of x into those copied (C, to the places K of y) and
those lost (L), and the places of y that are no copies (M): as many are lost as are made. Then

    x_C = y_K,    x_L = B⁻¹ (y_M − E x_C),    [E B] = the rows M of J,

one LU factorisation of a small matrix B. Copies are seen from outside, without knowing the model:
J v, for a random v, repeats a number of v bit by bit where the step copies, and nowhere else but
for a vanishing chance. A number of x′ that does not depend on x gives an exact zero, or B an exact
zero for a pivot: then J_k, and so P, has a singular value that is exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from roann import _checks
from roann.diagnostics.jacobian import Trajectory
from roann.diagnostics.maps import GraphJacobian, Jacobian
from roann.diagnostics.spectrum import EPS

CHUNK = 64  # rows of a Jacobian made at once: more do not fit in a cache
MADE = 1024  # numbers that a step may compute for it to be undone
Product = Callable[[Tensor], Tensor]


def extreme_log_singular_values(path: Trajectory, steps: int = 60) -> tuple[Tensor, Tensor]:
    r"""The logarithms of the extreme singular values of ∂x_M/∂x_0, without forming a matrix.

    .. math:: \log\sigma_{\max},\ \log\sigma_{\min}\ \text{of}\ J_M \cdots J_2 J_1

    Golub–Kahan–Lanczos on products with the factors, rescaled after each so that nothing over- or
    underflows. The smallest value is an upper estimate, good if the condition number is moderate
    (as the theorems make it for our layers); see Note [How far to trust a Krylov value].

    Args:
        path: a run; the rows of a batch are taken one by one.
        steps: Krylov steps; each costs two passes along the chain.

    Shape:
        two tensors (…, 2): the values (largest, smallest), and the residual of each relative to
        it.

    Example:
        >>> import roann
        >>> from roann.diagnostics import end_to_end_jacobian, trajectory
        >>> g = torch.Generator().manual_seed(0)
        >>> rnn = roann.RoaRNN(1, 30, rho=0.1, horizon=50, generator=g)
        >>> u = torch.ones(50, 1)
        >>> found, _ = extreme_log_singular_values(trajectory(rnn, u))
        >>> exact = torch.linalg.svdvals(end_to_end_jacobian(rnn, u)).log()
        >>> bool((found - exact[[0, -1]]).abs().max() < 1e-4)
        True

    Reference: Theorems II.1 and III.1 of the paper, for widths at which an SVD is too expensive.
    """
    first, last = path.states[0], path.states[-1]
    lead = first.shape[:-1]
    with torch.no_grad():
        chain = [path.jacobian(k) for k in range(len(path))]
        found = [
            _extremes_of_chain([J.row(row) for J in chain], first[row], last[row], steps)
            for row in product(*map(range, lead))
        ]
    table = torch.tensor(found, dtype=torch.float64).reshape(*lead, 2, 2)
    return table[..., 0, :], table[..., 1, :]


def smallest_log_singular_value(path: Trajectory, steps: int = 10) -> Tensor:
    r"""The logarithm of the smallest singular value of ∂x_M/∂x_0, however small, by undoing it.

    .. math:: \log\sigma_{\min}(J_M \cdots J_1) = -\log\sigma_{\max}(J_1^{-1} \cdots J_M^{-1})

    For states too large for `log_singular_values`, of which a step computes at most 1,024
    and copies the others, as delay lines do: Note [Undoing a map that mostly copies]. −∞ where a
    step makes a number that depends on nothing before it.

    Args:
        path: a run in float64 whose state keeps its size; the rows of a batch are taken one by one.
        steps: Krylov steps; each costs two passes along the chain.

    Shape: the result has the shape of the batch.

    Example:
        >>> class Line:  # the last three numbers, the newest half the oldest
        ...     state_size = 3
        ...     def step(self, x, u):
        ...         return torch.cat([x[..., 1:], x[..., :1] / 2 + u], -1)
        >>> from roann.diagnostics import trajectory
        >>> path = trajectory(Line(), torch.ones(3000, 1, dtype=torch.float64))
        >>> round(float(smallest_log_singular_value(path)) / math.log(2), 9)  # halved 1,000 times
        -1000.0

    Reference: Theorem III.1 of the paper, for other systems than its own.
    """
    first = path.states[0]
    lead = first.shape[:-1]
    if any(x.shape[-1] != first.shape[-1] for x in path.states):
        _checks.fail("path", "states of one size", f"{first.shape[-1]} and others")
    with torch.no_grad():
        found = [_smallest(path, row, steps) for row in product(*map(range, lead))]
    return torch.tensor(found, dtype=torch.float64).reshape(lead)


def _smallest(path: Trajectory, row: tuple[int, ...], steps: int) -> float:
    """ln σ_min of one row of the batch."""
    first = path.states[0][row]
    seen = random_unit(len(first), first)
    chain = [path.jacobian(k).row(row) for k in range(len(path))]
    if any(bool((J.matvec(seen) == 0).any()) for J in chain):
        return -math.inf
    undone = list[_Undone]()
    for J in reversed(chain):
        back = _undone(J, seen)
        if back is None:
            return -math.inf
        undone.append(back)
    (largest, _), _ = _extremes_of_chain(undone, first, first, steps)
    return -largest


def _extremes_of_chain(
    chain: Sequence[Jacobian | _Undone], first: Tensor, last: Tensor, steps: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """(log largest, log smallest) of a product of factors, and their relative residuals."""
    wide = len(first) > len(last)  # then the transpose has no null space of its own
    start = v = random_unit(min(len(first), len(last)), first)
    for _ in range(3):  # a few power steps tell the scale of the product
        w, scale = _pushed(chain, v, wide)
        if scale == -math.inf:
            return (scale, scale), (0.0, 0.0)
        v, _ = _pushed(chain, w, not wide)

    def scaled(x: Tensor, transpose: bool) -> Tensor:
        unit, log = _pushed(chain, x, transpose)
        return unit * math.exp(log - scale)

    e = extremes(lambda x: scaled(x, wide), lambda x: scaled(x, not wide), start, steps)
    logs = [math.log(s) + scale if s > 0 else -math.inf for s in (e.largest, e.smallest)]
    residuals = (e.largest_residual / e.largest, e.smallest_residual / max(e.smallest, EPS))
    return (logs[0], logs[1]), residuals


def _pushed(
    chain: Sequence[Jacobian | _Undone], v: Tensor, transpose: bool
) -> tuple[Tensor, float]:
    """The direction and the log length of the product (or its transpose) applied to v."""
    log = 0.0
    for J in reversed(chain) if transpose else chain:
        v = J.matvec_transpose(v) if transpose else J.matvec(v)
        length = float(v.norm())
        if length == 0:
            return v, -math.inf
        v, log = v / length, log + math.log(length)
    return v, log


@dataclass(frozen=True)
class _Undone:
    """J⁻¹: see Note [Undoing a map that mostly copies]."""

    copied: Tensor  # C
    copies: Tensor  # K
    lost: Tensor  # L
    made: Tensor  # M
    LU: Tensor  # of B
    pivots: Tensor
    read: Tensor  # the places of C that E has entries for
    E: Tensor  # those entries

    def matvec(self, v: Tensor) -> Tensor:
        """J⁻¹ v."""
        x = torch.empty_like(v)
        x[self.copied] = v[self.copies]
        x[self.lost] = self._solve(v[self.made] - self.E @ x[self.read], transpose=False)
        return x

    def matvec_transpose(self, w: Tensor) -> Tensor:
        """J⁻ᵀ w."""
        y = torch.empty_like(w)
        y[self.made] = z = self._solve(w[self.lost], transpose=True)
        y[self.copies] = w.index_add(0, self.read, z @ self.E, alpha=-1)[self.copied]
        return y

    def _solve(self, v: Tensor, transpose: bool) -> Tensor:
        x: Tensor = torch.linalg.lu_solve(self.LU, self.pivots, v.unsqueeze(1), adjoint=transpose)
        return x.squeeze(1)


def _undone(J: Jacobian, v: Tensor) -> _Undone | None:
    """J⁻¹, found with a random v; None if J is exactly singular."""
    w = J.matvec(v)
    order = v.argsort()
    source = order[torch.searchsorted(v[order], w).clamp(max=len(v) - 1)]
    same = v[source] == w
    copied, copies, made = source[same], same.nonzero()[:, 0], (~same).nonzero()[:, 0]
    kept = torch.zeros_like(same)
    kept[copied] = True
    lost = (~kept).nonzero()[:, 0]
    if len(lost) > len(made):  # a number was copied twice
        return None
    if len(made) > MADE:
        _checks.fail("path", f"steps that compute at most {MADE} new numbers", f"{len(made)}")
    units = v.new_zeros(len(made), len(v)).scatter_(1, made.unsqueeze(1), 1.0)
    if isinstance(J, GraphJacobian) or not len(made):  # a vmap of no rows fails
        rows = torch.stack([J.matvec_transpose(e) for e in units]) if len(made) else units
    else:
        rows = vmap(J.matvec_transpose, chunk_size=CHUNK)(units)
    LU, pivots, info = torch.linalg.lu_factor_ex(rows[:, lost])
    if int(info) > 0:
        return None
    read = (kept & (rows != 0).any(0)).nonzero()[:, 0]
    return _Undone(copied, copies, lost, made, LU, pivots, read, rows[:, read])


class Extremes(NamedTuple):
    """The largest and the smallest singular value found, with the residual of each."""

    largest: float
    smallest: float
    largest_residual: float
    smallest_residual: float


def random_unit(n: int, like: Tensor) -> Tensor:
    """A unit vector from a private generator: repeatable, and independent of the global seed."""
    private = torch.Generator().manual_seed(n)
    v = torch.randn(n, generator=private, dtype=torch.float64)
    unit: Tensor = v / v.norm()
    return unit.to(like.device, like.dtype)


def extremes(
    matvec: Product,
    matvec_transpose: Product,
    start: Tensor,
    steps: int,
    tolerance: float = 0.0,
) -> Extremes:
    """Golub–Kahan–Lanczos with full reorthogonalisation, from the unit vector `start`.

    It ends after `steps` steps, when the space is exhausted, or when the residual of the largest
    value falls below `tolerance` times that value.
    """
    tiny = torch.finfo(start.dtype).eps
    v, V, U = start, [start], list[Tensor]()
    diagonal, above = list[float](), list[float]()
    found = Extremes(0.0, 0.0, 0.0, 0.0)
    for k in range(min(steps, start.shape[0])):
        u = _orthogonal_to(U, matvec(v))
        diagonal.append(float(u.norm()))
        scale = max(diagonal)
        if diagonal[-1] <= tiny * scale:  # A is singular on this space, or zero
            return _of_bidiagonal(diagonal, above, 0.0)
        U.append(u / diagonal[-1])
        v = _orthogonal_to(V, matvec_transpose(U[-1]))
        beta = float(v.norm())
        found = _of_bidiagonal(diagonal, above, beta)
        if beta <= tiny * scale * start.shape[0] or (
            found.largest_residual < tolerance * found.largest
        ):
            return found
        if k + 1 < start.shape[0]:
            above.append(beta)
            v = v / beta
            V.append(v)
    return found


def _orthogonal_to(basis: list[Tensor], x: Tensor) -> Tensor:
    """x without its components along an orthonormal basis; twice, because once loses digits."""
    if basis:
        B = torch.stack(basis)
        for _ in range(2):
            x = x - torch.mv(B.mT, torch.mv(B, x))
    return x


def _of_bidiagonal(diagonal: list[float], above: list[float], beta: float) -> Extremes:
    """The extreme values of upper bidiagonal B, and β times the last entries of their u."""
    B = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    if len(diagonal) > 1:
        B = B + torch.diag(torch.tensor(above[: len(diagonal) - 1], dtype=torch.float64), 1)
    left, values, _ = torch.linalg.svd(B)
    residual = beta * left[-1].abs()
    return Extremes(float(values[0]), float(values[-1]), float(residual[0]), float(residual[-1]))
