"""Singular values, Lyapunov exponents and eigenvalues of long products of Jacobians.

Note [Every singular value of a long product]
---------------------------------------------
P = J_M … J_1 cannot be formed: over a thousand steps its singular values span more than any
floating point format. Three facts make them computable all the same.

1. *QR accumulation.* With J_k Q_{k−1} = Q_k R_k, P Q_0 = Q_M (R_M … R_1) = Q_M R, so P has the
   singular values of the triangular R. The logarithms of R's diagonal are the usual Lyapunov
   sums; they are *not* the singular values of P, which the part above the diagonal changes.
2. *A graded form.* For a generic orthogonal Q_0 (drawn once, `_mixing`) the QR factorisation of
   P_k Q_0 reveals the rank at every k: the rows of R fall in size from first to last, up to a
   modest factor. So R = diag(exp s) U with unit rows in U is safe to keep: the update
   R_k diag(exp s) U of row i only needs exp(s_l − s_i) with l ≥ i, which cannot overflow, and
   where it underflows the term is negligible in *that row*, relative to its own size.
3. *One-sided Jacobi.* Rotations make the rows of R mutually orthogonal; then their lengths are
   the singular values. A rotation of two rows of very different sizes only subtracts from the
   small one its projection on the large one, which in units of the small row is again free of
   overflow. Demmel and Veselić (1992): the relative error of *every* singular value is governed
   by the conditioning of U, not by the grading exp s.

All is done in float64 on the CPU. The result is exact for some factors J_k + E_k with
‖E_k‖ of the order of eps·‖J_k‖; a singular factor therefore shows as a value of the order of
eps (or exactly zero, log −∞), not as an error.

Note [Singular values that are exactly zero]
--------------------------------------------
A delay line forgets: the product of its Jacobians is nilpotent, and its singular values are 0.

* *Rounding ends.* Where the rank has been lost, more rows of U are left than its space has room
  for. Jacobi subtracts from such a row all there is, and what remains, eps of its length, is
  rounding that again points along the others: it shrinks by eps forever and never becomes
  orthogonal. So a row below N·eps of the largest length it ever had is set to zero. Its own
  rounding was as large, so this is no error that was not there before.
* *Zeros are counted.* Before that, each factor leaves rounding of the order of eps in place of the
  zero. What does not depend on rounding is the pattern: of a chain, only so many coordinates carry
  anything from x_0 to x_k, and the rank cannot exceed their number at any k (`_Flow`). All
  singular values beyond it are exactly zero, and said to be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from roann import _checks

EPS = torch.finfo(torch.float64).eps
KAPPA = 1e-4  # above this ratio of the extreme singular values LAPACK is accurate to 1e-11
SWEEPS = 60  # Jacobi converges quadratically: about ten sweeps are seen for hundreds of rows


def log_singular_values(jacobians: Iterable[Tensor], every: int = 1) -> Tensor:
    r"""Logarithms of all singular values of a product, of any length and any grading.

    .. math:: \log \sigma_i(J_M \cdots J_2 J_1), \quad \sigma_1 \ge \sigma_2 \ge \dots

    Args:
        jacobians: J_1, J_2, …, J_M in the order in which they act; read once.
        every: how many factors are multiplied plainly between two factorisations. It saves
            time and costs accuracy by the condition number of the partial products.

    Shape:
        each J_k (…, N_k, N_{k−1}); the result is (…, min(N_0, N_M)), float64 on the CPU.
        A singular value of zero has the logarithm −∞.

    Example:
        >>> J = torch.diag(torch.tensor([1.0, 0.1], dtype=torch.float64))
        >>> logs = log_singular_values([J] * 1000)  # the second singular value is 1e-1000
        >>> [round(v / math.log(10), 9) + 0.0 for v in logs.tolist()]
        [0.0, -1000.0]

    Reference: the singular values of Theorem III.1; Note [Every singular value of a long product].
    """
    first: Tensor | None = None
    flow = _Flow()
    for Q, R in _factorised(flow.watched(jacobians), every):
        if first is None:
            first = R
            U = torch.eye(R.shape[-1], dtype=torch.float64).expand(*R.shape[:-2], -1, -1)
            s = torch.zeros(R.shape[:-2] + R.shape[-1:], dtype=torch.float64)
        U, s = _times(R, U, s)
        last = Q
    if first is None:
        _checks.fail("jacobians", "at least one matrix", "none")
    logs = _jacobi(U, s)
    count = min(first.shape[-1], last.shape[-2])
    zeros = logs.new_full((*logs.shape[:-1], count - logs.shape[-1]), -math.inf)
    beyond = torch.arange(count) >= flow.rank.unsqueeze(-1)
    return torch.cat([logs, zeros], -1).masked_fill(beyond, -math.inf)


def lyapunov_exponents(jacobians: Iterable[Tensor], every: int = 1) -> Tensor:
    r"""The mean logarithmic rates at which a volume carried along is stretched.

    .. math:: \lambda_i = \frac{1}{M} \sum_{k=1}^{M} \log |(R_k)_{ii}|,
              \quad J_k Q_{k-1} = Q_k R_k

    Their sum is the mean of log|det J_k| for every M; each alone is a limit as M grows.

    Args:
        jacobians: J_1, …, J_M in the order in which they act; read once.
        every: how many factors are multiplied plainly between two factorisations.

    Shape:
        each J_k (…, N, N); the result is (…, N), largest first, float64 on the CPU.

    Example:
        >>> J = torch.tensor([[2.0, 1.0], [0.0, 0.5]], dtype=torch.float64)
        >>> rates = lyapunov_exponents([J] * 4000)  # tends to the logarithms of |eigenvalues|
        >>> bool((rates.exp() - torch.tensor([2.0, 0.5])).abs().max() < 1e-3)
        True

    Reference: the logarithmic growth behind Theorem III.1, per step.
    """
    total: Tensor | None = None
    steps = itertools.count()  # asked for once by each factor
    for _, R in _factorised((J for J, _ in zip(jacobians, steps, strict=False)), every):
        if R.shape[-2] != R.shape[-1]:
            _checks.fail("jacobians", "square matrices", f"{tuple(R.shape[-2:])}")
        rates = R.diagonal(dim1=-2, dim2=-1).abs().log()
        total = rates if total is None else total + rates
    if total is None:
        _checks.fail("jacobians", "at least one matrix", "none")
    return (total / next(steps)).sort(dim=-1, descending=True).values


def eigenvalues(jacobian: Tensor) -> Tensor:
    r"""The complex eigenvalues of a step Jacobian: an annulus for a random orthogonal O.

    .. math:: \operatorname{eig}\bigl(\alpha\,\mathrm{diag}(\phi'(y))\,W + (1-\alpha)\,O\bigr)

    Args:
        jacobian: J.

    Shape:
        J (…, N, N); the result is (…, N), complex128 on the CPU, largest modulus first.

    Example:
        >>> O = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
        >>> bool((eigenvalues(0.9 * O).abs() - 0.9).abs().max() < 1e-12)
        True

    Reference: the last remark of Section III.A of the paper.
    """
    values: Tensor = torch.linalg.eigvals(jacobian.detach().to("cpu", torch.float64))
    return values.gather(-1, values.abs().argsort(dim=-1, descending=True))


def _mixing(n: int) -> Tensor:
    """A generic orthogonal (n, n), from a private generator: so it is repeatable."""
    private = torch.Generator().manual_seed(n)
    Q: Tensor = torch.linalg.qr(torch.randn(n, n, generator=private, dtype=torch.float64)).Q
    return Q


def _grouped(jacobians: Iterable[Tensor], every: int) -> Iterator[Tensor]:
    """Products of `every` successive factors, in float64."""
    _checks.size("every", every)
    partial, count = None, 0
    for k, J in enumerate(jacobians):
        exact = J.detach().to("cpu", torch.float64)
        if not bool(exact.isfinite().all()):
            _checks.fail("jacobians", "finite entries", f"NaN or infinity in factor {k}")
        if partial is not None and (count == every or exact.shape != partial.shape):
            yield partial
            partial = None
        # Only equal squares are multiplied: behind a change of width the rank must stay visible.
        partial, count = (exact, 1) if partial is None else (exact @ partial, count + 1)
    if partial is not None:
        yield partial


def _factorised(jacobians: Iterable[Tensor], every: int) -> Iterator[tuple[Tensor, Tensor]]:
    """(Q_k, R_k) with J_k Q_{k−1} = Q_k R_k; the trapezoidal R_k follows changes of width."""
    Q: Tensor | None = None
    for J in _grouped(jacobians, every):
        if Q is None:
            Q = _mixing(J.shape[-1])
        Q, R = torch.linalg.qr(J @ Q)
        yield Q, R


def _times(R: Tensor, U: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """R · diag(exp s) · U as a new (U, s) with unit rows, for an upper trapezoidal R."""
    rows = R.shape[-2]
    top = s.flip(-1).cummax(-1).values.flip(-1)[..., :rows]  # the largest s_l with l ≥ i
    safe = torch.where(top.isneginf(), 0.0, top)
    grade = (s.unsqueeze(-2) - safe.unsqueeze(-1)).clamp(max=0.0).exp()  # l < i: R is zero there
    rows_new = (R * grade) @ U
    length = rows_new.norm(dim=-1)
    unit = rows_new / torch.where(length == 0, 1.0, length).unsqueeze(-1)
    return unit, safe + length.log()


class _Flow:
    """An upper bound on the rank of a product, from the zeros of its factors alone."""

    live: Tensor  # which coordinates of x_k depend on x_0
    rank: Tensor  # how many coordinates carry anything, where the chain so far is narrowest

    def watched(self, jacobians: Iterable[Tensor]) -> Iterator[Tensor]:
        """The same factors, counted as they go by."""
        for k, J in enumerate(jacobians):
            passes = (J.detach() != 0).cpu()
            if k == 0:
                self.live = torch.ones(J.shape[:-2] + J.shape[-1:], dtype=torch.bool)
                self.rank = self.live.sum(-1)
            passes &= self.live.unsqueeze(-2)
            self.live = passes.any(-1)
            narrowest = torch.minimum(passes.any(-2).sum(-1), self.live.sum(-1))
            self.rank = torch.minimum(self.rank, narrowest)
            yield J


def _rounds(p: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The p − 1 rounds of a tournament: every pair of p (even) players meets once."""
    players = list(range(p))
    for _ in range(p - 1):
        yield torch.tensor(players[: p // 2]), torch.tensor(players[p // 2 :][::-1])
        players.insert(1, players.pop())


def _well_conditioned(U: Tensor, s: Tensor) -> Tensor | None:
    """The same by LAPACK, where its error (eps of the largest) is small beside the smallest."""
    top = s.amax(dim=-1, keepdim=True)
    if not bool((s - top > math.log(KAPPA)).all()):
        return None
    values: Tensor = torch.linalg.svdvals((s - top).exp().unsqueeze(-1) * U)
    if not bool((values[..., -1] > KAPPA * values[..., 0]).all()):
        return None
    return values.log() + top


def _jacobi(U: Tensor, s: Tensor) -> Tensor:
    """Logarithms of the singular values of diag(exp s) · U, largest first."""
    plain = _well_conditioned(U, s)
    if plain is not None:
        return plain
    rows = s.shape[-1]
    if rows % 2:
        U = torch.cat([U, U.new_zeros((*U.shape[:-2], 1, U.shape[-1]))], -2)
        s = torch.cat([s, s.new_full((*s.shape[:-1], 1), -math.inf)], -1)
    tolerance = EPS * U.shape[-1]
    tournament = list(_rounds(s.shape[-1]))
    most = s  # the largest length each row ever had
    for _ in range(SWEEPS):
        s, order = s.sort(dim=-1, descending=True)
        U, most = U.gather(-2, order.unsqueeze(-1).expand_as(U)), most.gather(-1, order)
        worst = 0.0
        for i, j in tournament:
            U, s, cosine = _rotate(U, s, i, j)
            worst = max(worst, cosine)
            most = torch.maximum(most, s)
            # Only rounding is left of such a row: Note [Singular values that are exactly zero].
            lost = s < most + math.log(tolerance)
            if bool(lost.any()):
                s, most = s.masked_fill(lost, -math.inf), most.masked_fill(lost, -math.inf)
                U = U.masked_fill(lost.unsqueeze(-1), 0.0)
        if worst <= tolerance:
            return s.sort(dim=-1, descending=True).values[..., :rows]
    raise RuntimeError(f"one-sided Jacobi did not converge in {SWEEPS} sweeps")


def _rotate(U: Tensor, s: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor, float]:
    """Make rows i and j orthogonal, pair by pair; also the largest cosine there was.

    With q = exp(s_small − s_large) and c the cosine of the rows, t = tan θ solves
    c q t² + (1 − q²) t − c q = 0, and τ = t/q stays finite as q → 0.
    """
    swap = s[..., j] > s[..., i]
    big, small = torch.where(swap, j, i), torch.where(swap, i, j)

    def row(index: Tensor) -> Tensor:
        return U.gather(-2, index.unsqueeze(-1).expand(*index.shape, U.shape[-1]))

    a, b, s_a, s_b = row(big), row(small), s.gather(-1, big), s.gather(-1, small)
    gap = torch.where(s_b.isneginf(), -math.inf, s_b - s_a)
    c, q, d = (a * b).sum(-1), gap.exp(), -torch.expm1(2 * gap)
    root = d + (d.square() + (2 * c * q).square()).sqrt()
    tau = torch.where(c == 0, 0.0, 2 * c / torch.where(root == 0, 1.0, root))
    t = tau * q
    cos = (1 + t.square()).rsqrt()
    new_a = cos.unsqueeze(-1) * (a + (t * q).unsqueeze(-1) * b)
    new_b = cos.unsqueeze(-1) * (b - tau.unsqueeze(-1) * a)
    for index, new in ((big, new_a), (small, new_b)):
        length = new.norm(dim=-1)
        unit = new / torch.where(length == 0, 1.0, length).unsqueeze(-1)
        U = U.scatter(-2, index.unsqueeze(-1).expand_as(unit), unit)
        s = s.scatter_add(-1, index, length.log())
    return U, s, float(c.abs().max()) if c.numel() else 0.0
