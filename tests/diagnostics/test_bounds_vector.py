"""The theorems with an α of each neuron and of each map: Note [Bounds with a vector α]."""

from __future__ import annotations

import math

import pytest
import torch
from drawn_models import Drawn, normal, recurrent, seeded, theorem
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from roann import RoaFNN, RoaRNN, multiscale
from roann.diagnostics import (
    bounds_of,
    certify,
    log_singular_values,
    roa_bounds,
    trajectory,
)
from roann.kernels.activations import ACTIVATIONS

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

DOUBLE = torch.float64
ROUNDING = 1e-11

levels = st.floats(0.0, 1.0)


def worst(low: float, high: float, c: float) -> tuple[float, Tensor]:
    """max over v of ‖(1−α) v‖ + c ‖α v‖ for α = (low, high), by trying; and the best v."""
    p = torch.linspace(0, 1, 200_001, dtype=DOUBLE)
    A = (1 - p) * (1 - low) ** 2 + p * (1 - high) ** 2
    B = (1 - p) * low**2 + p * high**2
    values = A.sqrt() + c * B.sqrt()
    best = int(values.argmax())
    return float(values[best]), torch.stack([(1 - p[best]).sqrt(), p[best].sqrt()])


@theorem
@given(levels, levels, st.floats(0.0, 20.0))
def test_the_sharp_upper_end_is_the_maximum(a: float, z: float, c: float) -> None:
    low, high = min(a, z), max(a, z)
    bounds = roa_bounds(torch.tensor([low, high], dtype=DOUBLE), c, 1)
    found = bounds.sharp.upper
    assert found == pytest.approx(worst(low, high, c)[0], rel=1e-9, abs=1e-9)
    assert found <= bounds.finite.upper * (1 + 1e-12)
    inner = min(max(low, 0.3 * low + 0.7 * high), high)  # rounding may put it outside
    between = torch.tensor([low, inner, high], dtype=DOUBLE)
    assert roa_bounds(between, c, 1).sharp.upper == found  # only the extremes count


@pytest.mark.parametrize(("low", "high", "c"), [(0.01, 0.3, 1.0), (0.001, 0.1, 3.0), (0, 0.5, 0.7)])
def test_both_ends_of_a_step_are_attained(low: float, high: float, c: float) -> None:
    """A W that turns α v onto (1−α) v: no smaller upper end holds; and W = −σ for the lower one."""
    alpha = torch.tensor([low, high], dtype=DOUBLE)
    bounds = roa_bounds(alpha, c, 1)
    v = worst(low, high, c)[1]
    straight, bent = (1 - alpha) * v, alpha * v
    W = c * torch.outer(bent / bent.norm(), straight / straight.norm())
    J = torch.diag(alpha) @ W + torch.diag(1 - alpha)  # φ = id, O = I
    assert float(torch.linalg.matrix_norm(J, 2)) == pytest.approx(bounds.sharp.upper, rel=1e-9)
    assert bounds.sharp.upper < bounds.finite.upper - 1e-4
    if high * (1 + c) < 1:
        J = torch.diag(alpha) * -c + torch.diag(1 - alpha)
        smallest = float(torch.linalg.svdvals(J)[-1])
        assert smallest == pytest.approx(bounds.sharp.lower, rel=1e-12)


@theorem
@given(recurrent(vector_alpha=True))
def test_every_singular_value_lies_between_rho_max_and_rho_min(drawn: Drawn) -> None:
    path = trajectory(drawn.rnn, drawn.inputs, drawn.h0)
    M, alpha = len(path), drawn.rnn.alpha
    assert isinstance(alpha, Tensor)
    bounds = bounds_of(drawn.rnn, M)
    assert bounds is not None
    logs = log_singular_values(path.jacobians())
    assert bounds.sharp.contains(logs, ROUNDING)
    assert bounds.finite.contains(logs, ROUNDING)
    r_sigma, most, least = bounds.r * bounds.sigma, float(alpha.max()) * M, float(alpha.min()) * M
    assert bounds.asymptotic.log_upper == pytest.approx(r_sigma * most - least, abs=1e-9)
    assert bool((logs <= r_sigma * most - least + ROUNDING).all())  # for every M
    if bounds.hypothesis:
        assert bounds.asymptotic.log_lower == pytest.approx(-most * (1 + r_sigma), abs=1e-9)
    assert bounds.finite.log_upper <= bounds.asymptotic.log_upper + ROUNDING
    assert bounds.sharp.log_upper <= bounds.finite.log_upper + ROUNDING


@theorem
@given(
    st.lists(st.floats(0.0, 0.2), min_size=1, max_size=30),
    st.integers(1, 5),
    st.sampled_from(sorted(ACTIVATIONS)),
    st.booleans(),
    st.integers(0, 1000),
)
def test_an_alpha_of_each_map(
    alphas: list[float], N: int, phi: str, vector: bool, seed: int
) -> None:
    """A network in depth whose maps all have their own α: learned, so set through its logits."""
    M = len(alphas)
    rows = torch.tensor(alphas, dtype=DOUBLE).clamp(1e-6, 1 - 1e-6).unsqueeze(1)
    start: float | Tensor = 0.1
    if vector:
        rows = rows * torch.rand(M, N, generator=seeded(seed + 1), dtype=DOUBLE).clamp_min(0.1)
        start = torch.full((N,), 0.1, dtype=DOUBLE)
    net = RoaFNN(
        [N] * (M + 1), phi, alpha=start, learn_rho=True, dtype=DOUBLE, generator=seeded(seed)
    )
    with torch.no_grad():
        net.get_parameter("alpha_logit_0").copy_(torch.logit(rows))
    bounds = bounds_of(net)
    assert bounds is not None
    logs = log_singular_values(trajectory(net, normal(N, seed=seed)).jacobians())
    assert bounds.finite.contains(logs, ROUNDING)
    assert bounds.sharp.contains(logs, ROUNDING)
    low, high, top = rows.amin(1), rows.amax(1), bounds.r * bounds.sigma
    assert bounds.finite.log_upper == pytest.approx(
        float(torch.log1p(high * top - low).sum()), abs=1e-9
    )
    assert bounds.asymptotic.log_upper == pytest.approx(float((high * top - low).sum()), abs=1e-9)
    if bounds.hypothesis:
        lower = float(torch.log1p(-high * (1 + top)).sum())
        assert bounds.finite.log_lower == pytest.approx(lower, abs=1e-9)
    else:
        assert bounds.finite.log_lower == -math.inf


def test_the_trajectory_of_a_learned_network_is_the_network() -> None:
    net = RoaFNN([3, 4, 4, 4, 2], learn_rho=True, dtype=DOUBLE, generator=seeded(0))
    with torch.no_grad():
        net.get_parameter("alpha_logit_1").copy_(torch.tensor([[1.0], [-2.0]]))
    x = normal(5, 3)
    torch.testing.assert_close(trajectory(net, x).states[-1], net(x).detach())
    rnn = RoaRNN(
        3, 4, 2, bidirectional=True, horizon=9, learn_rho=True, dtype=DOUBLE, generator=seeded(0)
    )
    with torch.no_grad():
        for k, name in enumerate(("_l0", "_l0_reverse", "_l1", "_l1_reverse")):
            rnn.get_parameter("alpha_logit" + name).fill_(-1.0 - k)
    u = normal(9, 2, 3)
    for layer in range(4):
        path = trajectory(rnn, u, layer=layer)
        torch.testing.assert_close(path.states[-1], rnn(u)[1][layer].detach())
        bounds = bounds_of(rnn, 9, layer=layer)
        assert bounds is not None
        assert bounds.rho == pytest.approx(9 / (1 + math.exp(1.0 + layer)))


def test_certificates_of_learned_and_multiscale_models() -> None:
    g = seeded(0)
    alpha = multiscale(16, 500, 50_000).double()
    rnn = RoaRNN(
        2, 16, alpha=alpha, learn_rho=True, init="scaled_normal", dtype=DOUBLE, generator=g
    )
    certificate = certify(rnn, normal(100, 2))
    assert certificate.inside
    assert certificate.verdict.startswith("The theorem holds")
    assert certificate.bounds is not None
    assert certificate.bounds.rho == pytest.approx(100 / 500)
    net = RoaFNN([8] * 21, rho=0.1, learn_rho=True, dtype=DOUBLE, generator=g)
    deep = certify(net, normal(8))
    assert deep.inside
    assert deep.bounds is not None
    assert deep.bounds.hypothesis


def test_errors() -> None:
    with pytest.raises(ValueError, match="alpha: expected 3 rows, one for each map"):
        roa_bounds(torch.full((2, 1), 0.1), 1.0, 3)
