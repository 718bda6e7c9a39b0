"""Singular values that are exactly zero: delay lines, dead units, narrow places, no rounding."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from drawn_models import normal, theorem
from hypothesis import given
from hypothesis import strategies as st
from test_spectrum import Scaled, exact_logs
from torch import Tensor, nn

from roann.diagnostics import (
    end_to_end_jacobian,
    extreme_log_singular_values,
    gradient_along_time,
    log_singular_values,
    step_jacobian,
    trajectory,
)

DOUBLE = torch.float64
EPS = torch.finfo(DOUBLE).eps


def shift(weights: Tensor) -> Tensor:
    """A delay line: what is in place i goes, times a weight, to place i + 1."""
    return torch.diag(weights, -1)


class Taps(nn.Module):
    """Delay lines above each other: a layer reads the oldest entry of its line, and its input."""

    def __init__(self, width: int, delays: tuple[int, ...], seed: int) -> None:
        super().__init__()
        self.width, self.delays = width, delays
        self.K = [normal(width, 2 * width, seed=seed + k) for k in range(len(delays))]
        self.state_size = width * (1 + sum(delays))

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        y, after = u, []
        lines = x[..., self.width :].split([self.width * s for s in self.delays], -1)
        for K, line in zip(self.K, lines, strict=True):
            after.append(torch.cat([line[..., self.width :], y], -1))
            y = torch.relu(torch.cat([y, line[..., : self.width]], -1) @ K.T)
        return torch.cat([y, *after], -1)


def rank(factors: list[Tensor]) -> int:
    """Of the product of these very floats, in fractions."""
    n = factors[0].shape[-1]
    P = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    for J in factors:
        rows = [[Fraction(v) for v in row] for row in J.tolist()]
        P = [[sum(a * P[k][j] for k, a in enumerate(row)) for j in range(n)] for row in rows]
    found = 0
    for column in range(n):
        pivot = next((r for r in range(found, len(P)) if P[r][column]), None)
        if pivot is None:
            continue
        P[found], P[pivot] = P[pivot], P[found]
        for r in range(found + 1, len(P)):
            f = P[r][column] / P[found][column]
            P[r] = [a - f * b for a, b in zip(P[r], P[found], strict=True)]
        found += 1
    return found


def assert_as_plain(factors: list[Tensor], every: int = 1) -> Tensor:
    """As the SVD of the plain product, to the rounding of its factors; returns the logarithms."""
    P = torch.eye(factors[0].shape[-1], dtype=DOUBLE)
    size = 1.0
    for J in factors:
        P, size = J @ P, size * float(torch.linalg.matrix_norm(J, 2))
    found = log_singular_values(factors, every)
    assert not bool(found.isnan().any())
    assert bool((found[:-1] >= found[1:]).all())
    atol = 4 * len(factors) * max(P.shape) * EPS * size
    torch.testing.assert_close(found.exp(), torch.linalg.svdvals(P), rtol=1e-11, atol=atol)
    return found


@theorem
@given(n=st.integers(1, 9), M=st.integers(1, 12), seed=st.integers(0, 10_000))
def test_a_delay_line_keeps_products_of_its_weights_and_forgets_the_rest(
    n: int, M: int, seed: int
) -> None:
    weights = [normal(n - 1, seed=seed + k) for k in range(M)]
    found = log_singular_values([shift(w) for w in weights])
    # From place i to i + M: the weights of the places it passes, one of each factor.
    kept = [
        sum(math.log(abs(float(w[i + k]))) for k, w in enumerate(weights))
        for i in range(max(n - M, 0))
    ]
    assert found[: len(kept)].tolist() == pytest.approx(sorted(kept, reverse=True), abs=1e-11)
    assert bool((found[len(kept) :] == -math.inf).all())


@theorem
@given(
    n=st.integers(2, 7),
    M=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    whole=st.booleans(),
    every=st.integers(1, 3),
)
def test_triangular_maps_with_an_empty_diagonal(
    n: int, M: int, seed: int, whole: bool, every: int
) -> None:
    factors = [torch.triu(normal(n, n, seed=seed + k), 1) for k in range(M)]
    if whole:  # small integers: the plain product is exact
        factors = [(2 * J).round() for J in factors]
    found = assert_as_plain(factors, every)
    assert bool((found[max(n - M, 0) :] == -math.inf).all())
    if not whole:
        assert bool((found[: max(n - M, 0)] > -math.inf).all())


@theorem
@given(
    width=st.integers(1, 3),
    delays=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    T=st.integers(1, 12),
    seed=st.integers(0, 10_000),
)
def test_delay_lines_with_taps(width: int, delays: tuple[int, ...], T: int, seed: int) -> None:
    """More rows than their space has room for: Jacobi once turned their rounding for ever."""
    path = trajectory(
        Taps(width, delays, seed),
        normal(T, width, seed=seed),
        normal(width * (1 + sum(delays)), seed=seed + 1),
    )
    found = assert_as_plain(list(path.jacobians()))
    if sum(delays) < T:
        assert bool((found == -math.inf).all())


@theorem
@given(
    n=st.integers(2, 6),
    M=st.integers(1, 30),
    seed=st.integers(0, 10_000),
    density=st.sampled_from([0.1, 0.3, 0.6]),
)
def test_no_zero_is_claimed_that_is_none(n: int, M: int, seed: int, density: float) -> None:
    """The pattern bounds the rank from above: against the true rank, in fractions."""
    open_ = [torch.rand(n, n, generator=torch.manual_seed(seed + k)) < density for k in range(M)]
    factors = [(3 * normal(n, n, seed=seed + k)).round() * o for k, o in enumerate(open_)]
    found = log_singular_values(factors)
    assert not bool(found.isnan().any())
    assert int((found > -math.inf).sum()) >= rank(factors)


@theorem
@given(
    n=st.integers(2, 8),
    M=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    every=st.integers(1, 3),
)
def test_a_delay_line_seen_from_elsewhere(n: int, M: int, seed: int, every: int) -> None:
    """No entry is zero, so rounding is all there is to see of the zeros; but it must end."""
    Q = torch.linalg.qr(normal(n, n, seed=seed)).Q
    factors = [Q @ shift(normal(n - 1, seed=seed + k)) @ Q.T for k in range(M)]
    assert_as_plain(factors, every)


@theorem
@given(
    n=st.integers(2, 8),
    r=st.integers(1, 4),
    M=st.integers(1, 12),
    seed=st.integers(0, 10_000),
    every=st.integers(1, 3),
)
def test_factors_without_full_rank(n: int, r: int, M: int, seed: int, every: int) -> None:
    size = math.sqrt(n * r)
    factors = [
        normal(n, r, seed=seed + k) @ normal(r, n, seed=seed + k + 999) / size for k in range(M)
    ]
    assert_as_plain(factors, every)


@theorem
@given(n=st.integers(2, 8), M=st.integers(1, 200), seed=st.integers(0, 10_000))
def test_units_that_die_and_wake(n: int, M: int, seed: int) -> None:
    """Masks of relu: rows that are zero, others at other steps; any length must end."""
    factors = [
        (normal(n, 1, seed=seed + k) > -0.5) * normal(n, n, seed=seed + k) / math.sqrt(n)
        for k in range(M)
    ]
    found = log_singular_values(factors)
    alive = min(int((J != 0).any(-1).sum()) for J in factors)
    assert bool((found[alive:] == -math.inf).all())
    assert not bool(found.isnan().any())


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (4, 2), (2, 4)])
def test_nothing_at_all(shape: tuple[int, int]) -> None:
    found = log_singular_values([torch.zeros(shape)])
    assert found.tolist() == [-math.inf] * min(shape)
    rest = [torch.eye(shape[1]), torch.zeros(shape), torch.eye(shape[0])]
    assert log_singular_values(rest).tolist() == [-math.inf] * min(shape)


def test_zeros_of_one_row_of_a_batch_are_its_own() -> None:
    n, M = 5, 6
    kept = [normal(n, n, seed=k) for k in range(M)]
    lines = [shift(normal(n - 1, seed=k)) for k in range(M)]
    found = log_singular_values([torch.stack(pair) for pair in zip(kept, lines, strict=True)])
    torch.testing.assert_close(found[0], log_singular_values(kept), rtol=1e-11, atol=1e-10)
    assert bool((found[1] == -math.inf).all())


@pytest.mark.parametrize("ratio", [1e-3, 1e-8, 1e-12])
def test_what_is_only_small_is_not_taken_for_zero(ratio: float) -> None:
    """Rows that are parallel up to 1e-10, and fall apart in size, in the end by up to 1e-720."""
    near = torch.tensor([[1.0, 1.0], [1.0, 1.0 + 1e-10]], dtype=DOUBLE)
    factors = [near] + [torch.diag(torch.tensor([1.0, ratio], dtype=DOUBLE))] * 60
    expected = exact_logs(factors)
    # The angle, and with it the small value, is known to eps / 1e-10.
    assert log_singular_values(factors).tolist() == pytest.approx(expected, abs=4 * EPS / 1e-10)


def test_extremes_of_nothing_through_changing_widths() -> None:
    """It dies between layers of other widths than the ends."""
    layers = [lambda x: torch.cat([x, x]), lambda x: 0 * x, lambda x: x[..., :3]]
    path = trajectory(layers, normal(2))
    assert bool((extreme_log_singular_values(path)[0] == -math.inf).all())


def test_a_list_of_functions_is_a_feed_forward_model() -> None:
    weights = [normal(*shape, seed=k) for k, shape in enumerate([(4, 3), (4, 4), (2, 4)])]
    layers = [lambda x, W=W: torch.tanh(x @ W.T) for W in weights]
    x = normal(5, 3)
    path = trajectory(layers, x)
    assert [tuple(state.shape) for state in path.states] == [(5, 3), (5, 4), (5, 4), (5, 2)]
    product = end_to_end_jacobian(layers, x)
    torch.testing.assert_close(
        log_singular_values(path.jacobians()).exp(), torch.linalg.svdvals(product)
    )
    found, _ = extreme_log_singular_values(path)
    torch.testing.assert_close(found.exp(), torch.linalg.svdvals(product))
    slope = 1 - torch.tanh(x[0] @ weights[0].T).square()
    torch.testing.assert_close(step_jacobian(layers, x[0]), slope.unsqueeze(-1) * weights[0])
    norms = gradient_along_time(layers, x, lambda y: y.sum())
    assert norms.shape == (4,)
    leaf = x.clone().requires_grad_()
    y = leaf
    for layer in layers:
        y = layer(y)
    (expected,) = torch.autograd.grad(y.sum(), leaf)
    torch.testing.assert_close(norms[0], expected.norm())


@pytest.mark.parametrize("model", [[], [torch.tanh, 3]])
def test_a_list_of_anything_else_is_refused(model: list[object]) -> None:
    with pytest.raises(ValueError, match="model: expected at least one function, and only functi"):
        trajectory(model, normal(2))


def test_a_system_that_forgets_through_its_steps() -> None:
    """As a probe sees it: the trajectory of a delay line of five places, after four and five."""
    for T, kept in ((4, 1), (5, 0)):
        system = Scaled(shift(torch.full((4,), 2.0, dtype=DOUBLE)))
        path = trajectory(system, torch.zeros(T, 1, dtype=DOUBLE))
        found = log_singular_values(path.jacobians())
        expected = [T * math.log(2)] * kept + [-math.inf] * (5 - kept)
        assert found.tolist() == pytest.approx(expected)
