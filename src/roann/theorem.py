"""The two theorems as numbers: where the singular values of the input–output Jacobian must lie.

Derivations are in docs/mathematics.md ("The theorems", "Vector ρ", "The cap on ‖W‖").

Note [Two intervals, one limit]
-------------------------------
A step has the Jacobian J = α D W + (1−α) O with D = diag φ′(y), 0 ≤ φ′ ≤ r and ‖W‖ = σ. By Weyl's
inequality, over M maps with α = ρ/M,

    (1 − α(1+rσ))^M  ≤  σ_i(J_M … J_1)  ≤  (1 + α(rσ−1))^M            (`finite`)
    exp(−ρ(1+rσ))    ≤  σ_i             ≤  exp(ρ(rσ−1))               (`asymptotic`)

where the left sides need α(1+rσ) < 1. Both sides of `finite` grow towards those of `asymptotic`: so
the paper's upper bound holds for every M, its lower one in the limit only. Where map k has its own
α_k, the products are over 1 − α_k(1+rσ) and 1 + α_k(rσ−1), and the hypothesis is that of every map.

Note [Bounds with a vector α]
-----------------------------
If α is one number per neuron, from a = min α to z = max α, a step has

    1 − z(1 + rσ)  ≤  σ_i(J)  ≤  1 − a + rσ z,

of which the lower end is attained. The least upper end is, with c = rσ and m = (a+z)/2,

    U  =  1 − a + ca                             if  2cm(1−a) ≤ a(2−2m),
          1 − z + cz                             if  2cm(1−z) ≥ z(2−2m),
          ((m − az)(1 − m + c²m) / (m(1−m)))^½   else.                 (`sharp`)

Note [Widths]
-------------
Theorem II.1 bounds the largest singular value from below only for non-increasing widths. The same
step by step argument says more. If no width exceeds the one before, every J_l^T stretches every
vector by at least 1 − α(1+rσ_l); if no width is below the one before, every J_l does. So for widths
that first fall (weakly) and then rise (weakly) *all* min_l N_l possibly non-zero singular values
are at least the product of these factors: `sharp`, with each layer's own σ_l. For widths that rise
and then fall nothing holds: O_1 = (1, 0)^T and O_2 = (0, 1) have O_2 O_1 = 0.

Note [A norm from above]
------------------------
Power iteration bounds ‖W‖₂ from below and proves nothing. The Schatten norm bounds it from above,

    ‖W‖₂  ≤  S = (tr A^(p/2))^(1/p)  ≤  N^(1/p) ‖W‖₂,    A = WᵀW,    ∂S/∂W = W A^(2^m) / S^(p−1),

with p = 2^(m+1) + 2 by m squarings. m = 5 gives p = 66: S is at most 1.08 ‖W‖₂ for N = 128. A, and
its power after three squarings, is divided by its Frobenius norm, so that nothing over- or
underflows; S is raised by `2 N eps` for the rounding of the products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from roann import _checks

# Beyond this factor a gradient is lost beside its neighbours in float32: vanished or exploded.
LOST = -math.log(torch.finfo(torch.float32).eps)
SQUARINGS = 5
POWER = 2 ** (SQUARINGS + 1) + 2  # p of the Schatten norm


@dataclass(frozen=True)
class Interval:
    """An interval for singular values, kept as logarithms so that nothing over- or underflows.

    Attributes:
        log_lower: log of the lower end; −∞ where nothing is claimed.
        log_upper: log of the upper end.
        count: how many singular values, from the largest, the lower end covers; None for all.
    """

    log_lower: float
    log_upper: float
    count: int | None = None

    @property
    def lower(self) -> float:
        """The lower end (0 where nothing is claimed)."""
        return math.exp(self.log_lower)

    @property
    def upper(self) -> float:
        """The upper end (∞ beyond the range of a float)."""
        return math.exp(self.log_upper) if self.log_upper < 709 else math.inf

    @property
    def vacuous(self) -> bool:
        """Whether it allows gradients both to vanish and to explode."""
        return self.log_lower < -LOST and self.log_upper > LOST

    def contains(self, log_values: Tensor, slack: float = 0.0) -> bool:
        """Whether singular values (…, K), as logarithms, largest first, lie inside.

        `slack` widens both ends, in logarithms, for the rounding of what was measured.
        """
        below = log_values[..., : self.count]
        return bool(
            (log_values <= self.log_upper + slack).all() and (below >= self.log_lower - slack).all()
        )

    def __str__(self) -> str:
        return f"[{number(self.log_lower)}, {number(self.log_upper)}]"


@dataclass(frozen=True)
class Bounds:
    """What the theorems say of M maps. See `roa_bounds`.

    Attributes:
        maps: M, the number of maps (the paper's L − 1).
        rho: ρ = max α · M, over all neurons and maps.
        rho_limit: M / (1 + rσ).
        sigma: σ = max ‖W‖.
        r: the largest slope of φ.
        asymptotic: the paper's interval, the limit of the next.
        finite: the interval that holds for this M.
        sharp: the same with each map's own ‖W_l‖, and for a vector α the least upper end; it
            covers all singular values.
    """

    maps: int
    rho: float
    rho_limit: float
    sigma: float
    r: float
    asymptotic: Interval
    finite: Interval
    sharp: Interval

    @property
    def hypothesis(self) -> bool:
        """ρ < M / (1 + rσ)."""
        return self.rho < self.rho_limit

    @property
    def vacuous(self) -> bool:
        """Whether `finite` is vacuous."""
        return self.finite.vacuous


def roa_bounds(
    alpha: float | Tensor,
    sigma: float | Tensor,
    maps: int | None = None,
    r: float = 1.0,
    widths: Sequence[int] | None = None,
) -> Bounds:
    r"""The intervals of Theorems II.1 and III.1 for M maps, in the limit and for this M.

    .. math::
        \Bigl[(1-\alpha(1+r\sigma))^M,\ (1+\alpha(r\sigma-1))^M\Bigr]
        \ \longrightarrow\
        \Bigl[e^{-\rho(1+r\sigma)},\ e^{\rho(r\sigma-1)}\Bigr], \quad \rho = \alpha M

    Args:
        alpha: α, one number, one per neuron (N,), or one (or one per neuron) for each map, (M, 1)
            or (M, N).
        sigma: ‖W‖, or a vector with one per map.
        maps: M; not needed if `sigma` is a vector.
        r: the largest slope of φ.
        widths: N_0, …, N_M of a feed-forward network; None for a recurrent one, whose maps are
            square. With widths, `asymptotic` and `finite` bound the largest singular value, from
            below only if no width exceeds the one before.

    Example:
        >>> b = roa_bounds(alpha=5 / 49, sigma=2.0, maps=49)
        >>> print(b.finite, b.asymptotic, b.hypothesis, b.vacuous)
        [1.67e-08, 117] [3.06e-07, 148] True False
        >>> all_equal = 49 * math.log(1 - 5 / 49 * 3)  # phi = id, W = -2 O: the lower end is met
        >>> abs(all_equal - b.finite.log_lower)
        0.0

    Reference: Eq. (15), (16) and Theorem III.1 of the paper; Note [Two intervals, one limit].
    """
    sigmas = _sigmas(sigma, maps)
    M, top = len(sigmas), float(sigmas.max())
    low, high = _extremes_of(alpha, M)
    if widths is not None and len(widths) != M + 1:
        _checks.fail("widths", f"{M + 1} widths for {M} maps", len(widths))
    weyl, grow = high * (1 + r * top), high * r * top - low
    claimed = float(weyl.max()) < 1 and (widths is None or _falls(widths))
    count = None if widths is None else 1
    return Bounds(
        maps=M,
        rho=float(high.max()) * M,
        rho_limit=M / (1 + r * top),
        sigma=top,
        r=r,
        asymptotic=Interval(-_total(weyl, M) if claimed else -math.inf, _total(grow, M), count),
        finite=Interval(
            _total(torch.log1p(-weyl), M) if claimed else -math.inf,
            _total(torch.log1p(grow), M),
            count,
        ),
        sharp=_sharp(low, high, sigmas, r, widths),
    )


def number(log: float) -> str:
    """exp(log) for reading: as a decimal where a float can hold it, else as a power of e."""
    return f"{math.exp(log):.3g}" if abs(log) < 200 or log == -math.inf else f"e^{log:.0f}"


def _extremes_of(alpha: float | Tensor, M: int) -> tuple[Tensor, Tensor]:
    """min α and max α, of all maps (1,) or of each (M,)."""
    values = torch.as_tensor(alpha, dtype=torch.float64).detach().cpu()
    if values.dim() == 2 and values.shape[0] != M:
        _checks.fail("alpha", f"{M} rows, one for each map", tuple(values.shape))
    rows = values if values.dim() == 2 else values.reshape(1, -1)
    low, high = rows.amin(1), rows.amax(1)
    if not 0 <= float(low.min()) <= float(high.max()) <= 1:
        _checks.fail("alpha", "numbers in [0, 1]", f"[{low.min():g}, {high.max():g}]")
    return low, high


def _total(values: Tensor, M: int) -> float:
    """The sum over M maps of one value for all of them, or of one for each."""
    return M / len(values) * float(values.sum())


def _sigmas(sigma: float | Tensor, maps: int | None) -> Tensor:
    """One ‖W_l‖ for each map."""
    sigmas = torch.as_tensor(sigma, dtype=torch.float64).detach().cpu()
    if not bool((sigmas.isfinite() & (sigmas >= 0)).all()):
        _checks.fail("sigma", "norms that are finite and not negative", sigma)
    if sigmas.dim() == 0:
        if maps is None:
            _checks.fail("maps", "the number of maps", None, "pass maps=M, or one sigma per map")
        return sigmas.expand(_checks.size("maps", maps))
    if maps is not None and maps != len(sigmas):
        _checks.fail("maps", f"{len(sigmas)}, the number of sigmas", maps)
    return sigmas


def _falls(widths: Sequence[int]) -> bool:
    """Whether no width exceeds the one before."""
    return all(a >= b for a, b in pairwise(widths))


def _log_norm(low: Tensor, high: Tensor, c: Tensor) -> Tensor:
    """log U of Note [Bounds with a vector α]."""
    m = (low + high) / 2
    both = low * high
    # U² − 1, so that nothing is lost for small α; the denominator is zero only where it is unused.
    excess = (c**2 * m * (m - both) - both * (1 - m)) / (m * (1 - m)).clamp_min(1e-300)
    at_low = c * 2 * m * (1 - low) <= low * (2 - 2 * m)
    at_high = c * 2 * m * (1 - high) >= high * (2 - 2 * m)
    inside = torch.log1p(excess) / 2
    ends = torch.where(at_low, torch.log1p(c * low - low), torch.log1p(c * high - high))
    return torch.where(at_low | at_high, ends, inside)


def _sharp(
    low: Tensor, high: Tensor, sigmas: Tensor, r: float, widths: Sequence[int] | None
) -> Interval:
    """The product over maps of each map's own interval; see Note [Widths]."""
    below = 1 - high * (1 + r * sigmas)
    lower = float(below.log().sum()) if bool((below > 0).all()) else -math.inf
    upper = float(_log_norm(low, high, r * sigmas).sum())
    if widths is None:
        return Interval(lower, upper)
    narrow = min(widths)
    at = widths.index(narrow)
    valley = _falls(widths[: at + 1]) and _falls(widths[at:][::-1])
    return Interval(lower if valley else -math.inf, upper, narrow)


def schatten(W: Tensor) -> Tensor:
    r"""An upper bound of ‖W‖₂, at most N^(1/66) above it, as a differentiable function of W.

    .. math:: \lVert W \rVert_2 \le \bigl(\mathrm{tr}\,(W^T W)^{33}\bigr)^{1/66}

    Shape: W (…, N_out, N_in) gives (…).

    Example:
        >>> W = torch.diag(torch.tensor([3.0, 1.0]).double())
        >>> bool(3 <= schatten(W) < 3.0001)
        True

    Reference: Note [A norm from above] in `roann.theorem`.
    """
    return schatten_and_power(W)[0]


def power_norms(W: Tensor, rounds: int = 16) -> Tensor:
    """‖W‖₂ of each matrix of a stack (L, N_out, N_in) from below, by power iteration: (L,)."""
    v = W.mT @ W.sum(-1, keepdim=True) + W.abs().amax(-2).unsqueeze(-1)
    for _ in range(rounds):
        v = v / torch.linalg.vector_norm(v, dim=-2, keepdim=True).clamp_min(1e-30)
        v = W.mT @ (W @ v)
    norms: Tensor = torch.linalg.vector_norm(v, dim=-2).squeeze(-1)
    return norms.sqrt()


def plain_gram(A: Tensor) -> Tensor:
    """AᵀA."""
    return A.mT @ A


def schatten_and_power(
    W: Tensor, gram: Callable[[Tensor], Tensor] = plain_gram, A: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """S, and A^(2^m) up to a factor, A = WᵀW, or WWᵀ if that is smaller.

    `gram` computes XᵀX: of a symmetric X, that is its square. A may be given if nothing in it
    over- or underflowed.
    """
    tiny, size = torch.finfo(W.dtype).tiny, W.new_ones(())
    if A is None:
        largest = W.detach().abs().amax((-2, -1), keepdim=True).clamp_min(tiny)
        V = W / largest
        A, size = gram(V if W.shape[-1] <= W.shape[-2] else V.mT), largest[..., 0, 0]
    power, log = A, A.new_zeros(A.shape[:-2])
    for k in range(SQUARINGS):
        if k % 3 == 0:  # the norm falls by N⁴ at most until the next time
            length = torch.linalg.vector_norm(power.detach(), dim=(-2, -1)).clamp_min(tiny)
            power, log = power / length[..., None, None], log + length.log()
        power, log = gram(power), 2 * log
    trace = (A * power).sum((-2, -1)).clamp_min(tiny)
    above = 1 + 2 * max(W.shape[-2:]) * torch.finfo(W.dtype).eps
    return above * size * ((trace.log() + log) / POWER).exp(), power
