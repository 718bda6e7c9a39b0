"""Spectra of long products, against exact arithmetic and against what theory says."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from drawn_models import Drawn, normal, recurrent, seeded, theorem
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from roann import RoaRNN
from roann.diagnostics import (
    bounds_of,
    eigenvalues,
    end_to_end_jacobian,
    extreme_log_singular_values,
    log_singular_values,
    lyapunov_exponents,
    step_jacobian,
    trajectory,
)

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

DOUBLE = torch.float64


def exact_logs(factors: list[Tensor], digits: int = 2400) -> list[float]:
    """log σ_i of the product of these very floats, in `digits` decimal digits."""
    with mpmath.workdps(digits):
        P = mpmath.eye(factors[0].shape[-1])
        for J in factors:
            P = mpmath.matrix(J.tolist()) * P
        squares = mpmath.eigsy(P.T * P, eigvals_only=True)
        return sorted((float(mpmath.log(e) / 2) for e in squares), reverse=True)


def graded(n: int, M: int, seed: int, ratio: float) -> list[Tensor]:
    """Random factors whose product has logarithms of σ_i falling to about M·log(ratio)."""
    scales = torch.logspace(0, math.log10(ratio), n, dtype=DOUBLE)
    return [normal(n, n, seed=seed + k) * scales / math.sqrt(n) for k in range(M)]


@pytest.mark.parametrize(
    ("n", "M", "ratio"), [(2, 300, 1e-3), (3, 250, 1e-3), (4, 220, 1e-3), (5, 60, 1.0)]
)
def test_against_exact_arithmetic_on_widely_graded_products(n: int, M: int, ratio: float) -> None:
    factors = graded(n, M, seed=n, ratio=ratio)
    expected = exact_logs(factors)
    if ratio < 1:
        assert expected[0] - expected[-1] > 1000  # far beyond the range of any float
        assert expected[-1] < -1500
    found = log_singular_values(factors)
    assert found.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-9)


def test_against_exact_arithmetic_where_nothing_helps() -> None:
    """Growth first in one direction, then in another; triangular; in increasing order."""
    n = 4
    upper = torch.triu(torch.ones(n, n, dtype=DOUBLE), 1)
    rising = torch.diag(torch.tensor([1e-3, 0.5, 1.0, 2.0], dtype=DOUBLE))
    rolled = [
        torch.diag(torch.tensor([0.1, 1.0, 0.5, 2.0], dtype=DOUBLE).roll(k)) for k in range(50)
    ]
    for factors in ([rising] * 100, [rising + upper] * 60, [rising + upper.T] * 60, rolled):
        expected = exact_logs(factors)
        assert log_singular_values(factors).tolist() == pytest.approx(expected, rel=1e-10, abs=1e-9)


def test_diagonals_of_the_qr_accumulation_are_not_singular_values() -> None:
    """Why Jacobi follows: one shear has |R_ii| = 1 twice but singular values 10.1 and 0.099."""
    shear = torch.tensor([[1.0, 10.0], [0.0, 1.0]], dtype=DOUBLE)
    expected = torch.linalg.svdvals(shear).log()
    torch.testing.assert_close(log_singular_values([shear]), expected, rtol=1e-13, atol=0)
    assert (lyapunov_exponents([shear]) - expected).abs().max() > 0.1


@theorem
@given(
    n=st.integers(1, 6),
    M=st.integers(1, 40),
    seed=st.integers(0, 10_000),
    every=st.integers(1, 5),
)
def test_logarithms_add_up_to_those_of_the_determinants(
    n: int, M: int, seed: int, every: int
) -> None:
    factors = [normal(n, n, seed=seed + k) for k in range(M)]
    volume = sum(float(torch.linalg.slogdet(J).logabsdet) for J in factors)
    assert float(log_singular_values(factors, every).sum()) == pytest.approx(volume, abs=1e-6)
    assert float(lyapunov_exponents(factors, every).sum()) * M == pytest.approx(volume, abs=1e-6)


@theorem
@given(recurrent())
def test_short_products_agree_with_the_plain_svd(drawn: Drawn) -> None:
    path = trajectory(drawn.rnn, drawn.inputs, drawn.h0)
    values = log_singular_values(path.jacobians()).exp()
    product = end_to_end_jacobian(drawn.rnn, drawn.inputs, drawn.h0)
    torch.testing.assert_close(
        values, torch.linalg.svdvals(product), rtol=1e-10, atol=1e-13 * float(values.max())
    )


def test_jacobi_agrees_with_lapack_for_many_rows() -> None:
    """An odd number of rows, a spread that sends it to Jacobi, still within reach of LAPACK."""
    n = 31
    Q = [torch.linalg.qr(normal(n, n, seed=k)).Q for k in range(2)]
    sigma = torch.logspace(0, -9, n, dtype=DOUBLE)
    found = log_singular_values([Q[0] * sigma @ Q[1]])
    torch.testing.assert_close(found.exp(), sigma, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.exp()[:20], sigma[:20], rtol=1e-9, atol=0)


def test_a_batch_is_its_rows() -> None:
    factors = [normal(2, 3, 4, 4, seed=k) for k in range(60)]
    found = log_singular_values(factors)
    assert found.shape == (2, 3, 4)
    for a in range(2):
        for b in range(3):
            alone = log_singular_values([J[a, b] for J in factors])
            torch.testing.assert_close(found[a, b], alone, rtol=1e-11, atol=1e-10)


def test_changes_of_width_and_zero_singular_values() -> None:
    shapes = [(5, 3), (2, 5), (4, 2), (4, 4)]
    factors = [normal(*shape, seed=k) for k, shape in enumerate(shapes)]
    product = factors[3] @ factors[2] @ factors[1] @ factors[0]
    for every in (1, 2, 7):
        found = log_singular_values(factors, every)
        torch.testing.assert_close(found[:2].exp(), torch.linalg.svdvals(product)[:2])
        assert found.shape == (3,)
        assert found[2] == -math.inf  # through two neurons the rank is two, exactly
    dead = torch.diag(torch.tensor([2.0, 0.0, 3.0], dtype=DOUBLE))
    logs = log_singular_values([dead] * 500)
    assert logs[:2].tolist() == pytest.approx([500 * math.log(3), 500 * math.log(2)])
    assert logs[2] < -1e4
    assert bool((log_singular_values([torch.zeros(2, 2)] * 3) == -math.inf).all())


def test_lyapunov_exponents_tend_to_the_growth_rates() -> None:
    J = torch.tensor([[2.0, 1.0, 3.0], [0.0, 0.5, 1.0], [0.0, 0.0, 0.25]], dtype=DOUBLE)
    rates = lyapunov_exponents([J] * 8000, every=4)
    expected = torch.tensor([2.0, 0.5, 0.25], dtype=DOUBLE).log()
    torch.testing.assert_close(rates, expected, rtol=0, atol=5e-4)
    long = log_singular_values([J] * 2000) / 2000
    torch.testing.assert_close(long, expected, rtol=0, atol=2e-3)


@theorem
@given(recurrent())
def test_eigenvalues_lie_in_the_annulus(drawn: Drawn) -> None:
    """σ_min ≤ |λ| ≤ σ_max, and so between the ends of the interval for one map."""
    path = trajectory(drawn.rnn, drawn.inputs[:1], drawn.h0)
    bounds = bounds_of(drawn.rnn, 1)
    assert bounds is not None
    moduli = eigenvalues(next(path.jacobians())).abs()
    assert bool((moduli[:-1] >= moduli[1:]).all())
    assert bool((moduli <= bounds.finite.upper * (1 + 1e-9)).all())
    assert bool((moduli >= bounds.finite.lower * (1 - 1e-9)).all())


def test_the_annulus_of_a_random_filter_and_the_point_of_the_identity() -> None:
    angles = {}
    for filter in ("haar", "identity"):
        rnn = RoaRNN(1, 40, alpha=1e-3, filter=filter, dtype=DOUBLE, generator=seeded(0))
        values = eigenvalues(step_jacobian(rnn, normal(40), normal(1)))
        assert float((values.abs() - 1).abs().max()) < 0.02
        angles[filter] = torch.angle(values)
    assert float(angles["identity"].abs().max()) < 0.02  # all near the point (1, 0)
    gaps = angles["haar"].sort().values.diff()
    assert float(gaps.max()) < 0.7  # spread over the whole circle


class Scaled(nn.Module):
    """x′ = A x: a system that explodes or vanishes as fast as one likes."""

    def __init__(self, A: Tensor) -> None:
        super().__init__()
        self.A = nn.Parameter(A)
        self.state_size = A.shape[0]

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return x @ self.A.T


def test_extremes_without_a_matrix() -> None:
    rnn = RoaRNN(2, 24, rho=1.0, horizon=40, dtype=DOUBLE, generator=seeded(0))
    u = normal(40, 3, 2)
    path = trajectory(rnn, u)
    exact = log_singular_values(path.jacobians())
    found, residual = extreme_log_singular_values(path)
    torch.testing.assert_close(found, exact[:, [0, -1]], rtol=0, atol=1e-8)
    assert float(residual.max()) < 1e-8
    few, large = extreme_log_singular_values(path, steps=5)
    assert bool((few[:, 0] <= exact[:, 0] + 1e-12).all())  # from inside, on both sides
    assert bool((few[:, 1] >= exact[:, -1] - 1e-12).all())
    assert float(large.max()) > 1e-3  # and the residual says so


@pytest.mark.parametrize("size", [1e4, 1e-4])
def test_extremes_far_outside_the_range_of_floats(size: float) -> None:
    A = size * torch.linalg.qr(normal(5, 5)).Q
    path = trajectory(Scaled(A), torch.zeros(200, 1, dtype=DOUBLE))
    expected = 200 * math.log(size)
    found, _ = extreme_log_singular_values(path)
    assert found.tolist() == pytest.approx([expected] * 2, rel=1e-12)
    assert log_singular_values(path.jacobians()).tolist() == pytest.approx(
        [expected] * 5, rel=1e-12
    )


def test_extremes_of_nothing() -> None:
    path = trajectory(Scaled(torch.zeros(3, 3, dtype=DOUBLE)), torch.zeros(4, 1, dtype=DOUBLE))
    assert bool((extreme_log_singular_values(path)[0] == -math.inf).all())


def test_repeatable_and_silent() -> None:
    factors = graded(4, 50, seed=0, ratio=0.1)
    state = torch.random.get_rng_state()
    first, second = log_singular_values(factors), log_singular_values(iter(factors))
    assert torch.equal(first, second)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="jacobians: expected at least one matrix"):
        log_singular_values([])
    with pytest.raises(ValueError, match="NaN or infinity in factor 1"):
        log_singular_values([torch.eye(2), torch.full((2, 2), math.nan)])
    with pytest.raises(ValueError, match="every: expected at least 1"):
        log_singular_values([torch.eye(2)], every=0)
    with pytest.raises(ValueError, match="jacobians: expected square matrices"):
        lyapunov_exponents([torch.ones(2, 3)])
