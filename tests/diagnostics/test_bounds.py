"""Theorems II.1 and III.1: what was measured lies where they say, and where they do not reach."""

from __future__ import annotations

import math

import pytest
import torch
from drawn_models import Drawn, feed_forward, normal, recurrent, seeded, theorem
from hypothesis import given
from hypothesis import strategies as st

from roann import RoaFNN, RoaLayer, RoaRNN, RoaRNNCell
from roann.diagnostics import (
    bounds_of,
    log_singular_values,
    roa_bounds,
    spectral_norm,
    trajectory,
)

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

ROUNDING = 1e-11  # float64, at most 30 factors of at most 7 rows


@theorem
@given(recurrent())
def test_every_singular_value_of_a_roarnn_lies_in_the_finite_interval(drawn: Drawn) -> None:
    path = trajectory(drawn.rnn, drawn.inputs, drawn.h0)
    bounds = bounds_of(drawn.rnn, len(path))
    assert bounds is not None
    assert bounds.hypothesis == (bounds.finite.lower > 0)
    logs = log_singular_values(path.jacobians())
    assert bounds.finite.contains(logs, ROUNDING)
    assert bounds.sharp.contains(logs, ROUNDING)
    assert bool((logs <= bounds.asymptotic.log_upper + ROUNDING).all())  # the upper half always


@theorem
@given(recurrent(vector_alpha=False))
def test_weyl_bounds_every_singular_value_of_every_step(drawn: Drawn) -> None:
    rnn = drawn.rnn
    alpha, W, O = rnn.alpha, rnn.weight_hh_l0.detach(), rnn.filter_l0.to_dense().double()
    for J in trajectory(rnn, drawn.inputs, drawn.h0).jacobians():
        DW = J - (1 - alpha) * O  # = α D W
        deviation = (torch.linalg.svdvals(J) - (1 - alpha)).abs().max()
        assert deviation <= torch.linalg.matrix_norm(DW, 2) + 1e-14
        assert torch.linalg.matrix_norm(DW, 2) <= alpha * spectral_norm(W) + 1e-14  # r ≤ 1


def test_the_papers_lower_bound_fails_at_finite_depth() -> None:
    """φ = id, W = −σO, L = 50, ρ = 5, σ = 2: inside the hypotheses, below the stated bound.

    Every singular value is (1 − α(1+σ))^(L−1) = 1.7e-8, while Theorem III.1 claims at least
    e^(−15) = 3.1e-7. The finite interval holds, with equality at its lower end.
    """
    L, rho, sigma = 50, 5.0, 2.0
    kw = {"nonlinearity": "identity", "max_norm": None, "dtype": torch.float64}
    rnn = RoaRNN(1, 6, rho=rho, horizon=L - 1, **kw)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(-sigma * rnn.filter_l0.to_dense())
    bounds = bounds_of(rnn, L - 1)
    assert bounds is not None
    assert bounds.hypothesis
    assert bounds.rho < (L - 1) / (1 + sigma)
    values = log_singular_values(trajectory(rnn, normal(L - 1, 1)).jacobians()).exp()
    assert bool((values / 1.67e-8 - 1).abs().max() < 0.01)
    assert bounds.asymptotic.lower == pytest.approx(math.exp(-15), rel=1e-9)
    assert not bounds.asymptotic.contains(values.log(), 1.0)  # e times below, not a rounding
    assert bounds.finite.lower == pytest.approx(float(values.min()), rel=1e-10)
    assert bounds.finite.contains(values.log(), ROUNDING)


def test_the_upper_end_is_attained() -> None:
    kw = {"nonlinearity": "identity", "max_norm": None, "dtype": torch.float64}
    rnn = RoaRNN(1, 5, rho=2.0, horizon=20, **kw)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(3.0 * rnn.filter_l0.to_dense())
    bounds = bounds_of(rnn, 20)
    assert bounds is not None
    logs = log_singular_values(trajectory(rnn, normal(20, 1)).jacobians())
    assert float(logs.max()) == pytest.approx(bounds.finite.log_upper, rel=1e-12)
    assert float(logs.max()) < bounds.asymptotic.log_upper


@theorem
@given(
    rho=st.floats(1e-4, 5.0),
    sigma=st.floats(0.0, 10.0),
    r=st.sampled_from([0.25, 1.0]),
    maps=st.integers(100, 10_000),
)
def test_the_finite_interval_grows_towards_the_papers(
    rho: float, sigma: float, r: float, maps: int
) -> None:
    near = roa_bounds(rho / maps, sigma, maps, r)
    far = roa_bounds(rho / (100 * maps), sigma, 100 * maps, r)
    assert near.hypothesis
    for side in ("log_lower", "log_upper"):
        limit = getattr(near.asymptotic, side)
        assert limit == pytest.approx(getattr(far.asymptotic, side), rel=1e-9, abs=1e-12)
        gaps = [limit - getattr(b.finite, side) for b in (near, far)]
        assert gaps[1] >= -1e-9  # the finite value lies below its limit …
        assert gaps[1] <= gaps[0] / 50 + 1e-9  # … by O(1/M)


@theorem
@given(feed_forward("falling"))
def test_a_narrowing_roafnn_is_bounded_on_both_sides(drawn: tuple[RoaFNN, torch.Tensor]) -> None:
    net, x = drawn
    bounds = bounds_of(net)
    assert bounds is not None
    logs = log_singular_values(trajectory(net, x).jacobians())
    assert bounds.hypothesis == (bounds.finite.lower > 0)
    assert bounds.finite.contains(logs, ROUNDING)  # the largest
    assert bounds.sharp.contains(logs, ROUNDING)  # all of them
    assert bounds.sharp.log_lower >= bounds.finite.log_lower - ROUNDING
    assert bounds.sharp.log_upper <= bounds.finite.log_upper + ROUNDING


@theorem
@given(feed_forward("rising"))
def test_a_widening_roafnn_has_the_upper_bound_only(drawn: tuple[RoaFNN, torch.Tensor]) -> None:
    net, x = drawn
    bounds = bounds_of(net)
    assert bounds is not None
    logs = log_singular_values(trajectory(net, x).jacobians())
    if len(set(net.sizes)) > 1:
        assert bounds.finite.lower == bounds.asymptotic.lower == 0
    assert bounds.finite.contains(logs, ROUNDING)
    assert bounds.sharp.contains(logs, ROUNDING)  # our Note [Widths]: all of them, from below too


@theorem
@given(feed_forward("any"))
def test_no_widths_break_what_is_claimed(drawn: tuple[RoaFNN, torch.Tensor]) -> None:
    net, x = drawn
    bounds = bounds_of(net)
    assert bounds is not None
    logs = log_singular_values(trajectory(net, x).jacobians())
    assert bounds.finite.contains(logs, ROUNDING)
    assert bounds.sharp.contains(logs, ROUNDING)


def test_widths_that_rise_and_fall_can_lose_everything() -> None:
    """O_1 = e_i and O_2 = e_j^T with i ≠ j: no lower bound can hold, and none is claimed."""
    nets = [
        RoaFNN([1, 2, 1], alpha=0.0, filter="permutation", generator=seeded(s)) for s in range(20)
    ]
    lost = [n for n in nets if bool(n(torch.ones(1)) == 0)]
    assert lost
    bounds = bounds_of(lost[0])
    assert bounds is not None
    assert bounds.sharp.lower == bounds.finite.lower == 0
    assert bounds.hypothesis


@pytest.mark.parametrize(
    ("task", "rho", "maps", "N", "vacuous"),
    [
        ("copying", 3.0, 400, 190, True),
        ("psMNIST", 0.5, 784, 512, True),
        ("adding", 1 / 200, 200, 128, False),
    ],
)
def test_vacuous_where_the_papers_own_initialisation_makes_it_so(
    task: str, rho: float, maps: int, N: int, vacuous: bool
) -> None:
    sigma = spectral_norm(normal(N, N))
    assert float(sigma) == pytest.approx(2 * math.sqrt(N), rel=0.05)
    bounds = roa_bounds(rho / maps, sigma, maps)
    assert bounds.hypothesis
    assert bounds.vacuous is vacuous
    if task == "adding":
        assert bounds.finite.upper < 1.2


def test_nothing_overflows() -> None:
    bounds = roa_bounds(0.5, 100.0, 1_000_000)
    assert not bounds.hypothesis
    assert bounds.finite.upper == math.inf
    assert bounds.finite.log_upper == pytest.approx(1e6 * math.log(50.5))
    assert bounds.finite.lower == 0
    assert bounds.vacuous
    tiny = roa_bounds(0.4, 1.0, 1_000_000)
    assert tiny.finite.log_lower == pytest.approx(1e6 * math.log(0.2))
    assert str(tiny.finite) == f"[e^{1e6 * math.log(0.2):.0f}, 1]"
    gone = roa_bounds(1.0, 0.0, 3)
    assert gone.finite.upper == 0


def test_a_vector_alpha_uses_its_extremes() -> None:
    alpha = torch.tensor([0.01, 0.03], dtype=torch.float64)
    b = roa_bounds(alpha, 2.0, 10, r=0.5)
    assert b.finite.log_lower == pytest.approx(10 * math.log(1 - 0.03 * 2))
    assert b.finite.log_upper == pytest.approx(10 * math.log(1 - 0.01 + 0.03))
    constant = roa_bounds(torch.full((4,), 0.03, dtype=torch.float64), 2.0, 10, r=0.5)
    assert constant == roa_bounds(0.03, 2.0, 10, r=0.5)


def test_norms_exact_for_small_and_safe_for_large() -> None:
    stack = normal(3, 4, 6)
    assert torch.equal(spectral_norm(stack), torch.linalg.svdvals(stack)[:, 0])
    wide = normal(800, 900)
    exact = float(torch.linalg.matrix_norm(wide, 2))
    found = float(spectral_norm(wide))
    assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-4)
    assert float(spectral_norm(wide.bfloat16())) == pytest.approx(exact, rel=1e-2)


def test_bounds_of_finds_the_layer() -> None:
    kw = {"alpha": 0.01, "max_norm": None, "dtype": torch.float64}
    rnn = RoaRNN(2, 3, num_layers=2, bidirectional=True, **kw)
    for layer, name in enumerate(("_l0", "_l0_reverse", "_l1", "_l1_reverse")):
        bounds = bounds_of(rnn, 5, layer=layer)
        assert bounds is not None
        W = rnn.get_parameter("weight_hh" + name)
        assert bounds.sigma == float(torch.linalg.matrix_norm(W.detach(), 2))
    cell = RoaRNNCell(2, 3, nonlinearity="sigmoid", alpha=0.01)
    layer_bounds, cell_bounds = bounds_of(RoaLayer(3, 4, alpha=0.1)), bounds_of(cell, 7)
    assert layer_bounds is not None
    assert cell_bounds is not None
    assert (layer_bounds.maps, cell_bounds.maps, cell_bounds.r) == (1, 7, 0.25)
    assert bounds_of(torch.nn.LSTM(2, 3), 5) is None


def test_errors_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="maps: expected the number of maps"):
        roa_bounds(0.1, 1.0)
    with pytest.raises(ValueError, match="alpha: expected numbers in"):
        roa_bounds(1.5, 1.0, 3)
    with pytest.raises(ValueError, match="sigma: expected norms"):
        roa_bounds(0.1, math.nan, 3)
    with pytest.raises(ValueError, match="widths: expected 4 widths"):
        roa_bounds(0.1, 1.0, 3, widths=[2, 2])
    with pytest.raises(ValueError, match="maps: expected 2"):
        roa_bounds(0.1, torch.ones(2), 3)
