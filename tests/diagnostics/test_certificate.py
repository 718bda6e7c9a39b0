"""The certificate: the right words for each case, and the same numbers as its parts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from drawn_models import Drawn, normal, recurrent, seeded, theorem
from hypothesis import given
from torch import Tensor, nn

from roann import PAPER, RoaFNN, RoaRNN
from roann.diagnostics import Certificate, bounds_of, certify, log_singular_values, trajectory

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

DOUBLE = torch.float64


def roarnn(rho: float, T: int, N: int = 8, **settings: Any) -> RoaRNN:
    kw = {"max_norm": None, "dtype": DOUBLE} | settings
    return RoaRNN(2, N, rho=rho, horizon=T, generator=seeded(0), **kw)


@theorem
@given(recurrent())
def test_the_certificate_is_its_parts(drawn: Drawn) -> None:
    certificate = certify(drawn.rnn, drawn.inputs, drawn.h0)
    path = trajectory(drawn.rnn, drawn.inputs, drawn.h0)
    assert certificate.bounds == bounds_of(drawn.rnn, len(path))
    assert certificate.inside
    assert certificate.complete
    torch.testing.assert_close(
        certificate.log_singular_values, log_singular_values(path.jacobians()), rtol=1e-9, atol=1e-9
    )


def test_words_where_the_theorem_holds() -> None:
    certificate = certify(roarnn(0.1, 100), normal(100, 3, 2))
    assert certificate.verdict.startswith("The theorem holds: every singular value lies in [")
    assert certificate.verdict.endswith("gradients survive in every direction.")
    assert "paper's bound" not in certificate.verdict
    assert certificate.log_singular_values.shape == (3, 8)


def test_words_where_the_papers_bound_fails() -> None:
    kw = {"nonlinearity": "identity", "max_norm": None, "dtype": DOUBLE}
    rnn = RoaRNN(1, 4, rho=5.0, horizon=49, **kw)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(-2 * rnn.filter_l0.to_dense())
    verdict = certify(rnn, normal(49, 1)).verdict
    assert verdict.startswith("The theorem holds")
    assert "Some lie below the paper's bound, which holds only as M → ∞." in verdict
    assert verdict.endswith("gradients vanish.")


def test_words_where_the_bound_is_vacuous() -> None:
    certificate = certify(roarnn(5.0, 400, N=16, **PAPER), normal(400, 2))
    assert certificate.bounds is not None
    assert certificate.bounds.vacuous
    assert certificate.verdict.startswith("The bound is vacuous: it holds, but is too wide")
    assert "(vacuous)" in str(certificate)


def test_words_where_the_hypothesis_is_violated() -> None:
    rnn = RoaRNN(2, 8, alpha=0.5, max_norm=None, dtype=DOUBLE, generator=seeded(0))
    certificate = certify(rnn, normal(4, 2))
    assert certificate.bounds is not None
    assert not certificate.bounds.hypothesis
    assert certificate.verdict.startswith("The hypothesis is violated (ρ = 2, but M/(1+rσ) = ")
    assert "no lower bound; the upper one holds" in certificate.verdict
    assert " ≥ " in str(certificate)


def test_words_for_widths() -> None:
    falling = certify(RoaFNN([4, 3, 2], rho=0.1, dtype=DOUBLE, generator=seeded(0)), normal(4))
    assert falling.verdict.startswith("The theorem holds: the largest singular value lies in")
    rising = certify(RoaFNN([2, 3, 4], rho=0.1, dtype=DOUBLE, generator=seeded(0)), normal(5, 2))
    assert "for widths that increase the theorem has no lower one." in rising.verdict
    assert "With each layer's own ‖W‖ the 2 largest lie in [" in rising.verdict
    assert falling.inside
    assert rising.inside


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.LSTM(2, 8, dtype=DOUBLE), "gradients vanish."),
        (nn.GRU(2, 8, dtype=DOUBLE), "gradients survive, but not in every direction."),
        (nn.RNN(2, 8, dtype=DOUBLE), "gradients explode."),
    ],
    ids=["vanish", "some survive", "explode"],
)
def test_words_for_other_systems(model: nn.Module, words: str) -> None:
    steps = {"LSTM": 120, "GRU": 100, "RNN": 60}[type(model).__name__]
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(0.3 * normal(*p.shape, seed=len(name)))
        if isinstance(model, nn.GRU):  # keep one neuron for ever
            model.bias_hh_l0[8] += 60.0
        if isinstance(model, nn.RNN):
            model.weight_hh_l0.mul_(0.0).fill_diagonal_(2.0)
            model.weight_ih_l0.zero_()
            model.bias_ih_l0.zero_()
            model.bias_hh_l0.zero_()
    certificate = certify(model, normal(steps, 2))
    name = type(model).__name__
    assert certificate.verdict.startswith(f"No theorem covers {name}; this is a measurement.")
    assert certificate.verdict.endswith(words)
    assert certificate.bounds is None
    assert certificate.inside is None
    assert "hypothesis" not in str(certificate)


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (0.7, "gradients shrink, at best to 2.25e-05 of their length."),
        (1.4, "gradients grow, at worst to 2.42e+04 times their length."),
        (0.9, "gradients survive in every direction."),
    ],
)
def test_words_between_surviving_and_lost(factor: float, words: str) -> None:
    """0.7³⁰ is no rounding error, and yet nobody would say that such a gradient survives."""
    rnn = nn.RNN(2, 4, nonlinearity="relu", dtype=DOUBLE)
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
        rnn.weight_hh_l0.fill_diagonal_(factor)
        rnn.bias_hh_l0.fill_(1.0)  # every unit is active
    assert certify(rnn, normal(30, 2)).verdict.endswith(words)


def test_of_a_stack_it_says_which_recurrence_was_measured() -> None:
    kw = {"max_norm": None, "dtype": DOUBLE}
    stack = RoaRNN(2, 8, 2, rho=0.5, horizon=30, generator=seeded(0), **kw)
    with torch.no_grad():
        stack.weight_hh_l1.mul_(1000)
    first, second = (certify(stack, normal(30, 2), layer=k) for k in (0, 1))
    assert "RoaRNN, recurrence 0 of 2, 30 maps" in str(first)
    assert "This is recurrence 0 of 2" in first.verdict
    assert "RoaRNN, recurrence 1 of 2, 30 maps" in str(second)
    assert "gradients explode" in second.verdict
    assert "recurrence" not in certify(roarnn(0.5, 30), normal(30, 2)).verdict


def test_inputs_of_another_width_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match=r"inputs: expected a last dimension of input_size=2, got"):
        certify(roarnn(0.5, 30), normal(30, 1, 3))


def test_words_where_the_model_is_not_what_it_says() -> None:
    good = certify(roarnn(0.1, 50), normal(50, 2))
    bad = Certificate(
        good.model, good.maps, good.log_singular_values + 5, True, good.bounds, good.slack
    )
    assert bad.verdict.startswith("The measured values leave the interval that must hold")


def test_it_prints_in_columns() -> None:
    lines = str(certify(roarnn(0.1, 100), normal(100, 2, 2))).splitlines()
    rows, verdict = lines[: lines.index("")], lines[-1]
    names = ["system", "‖W‖, max φ′", "hypothesis", "paper, M → ∞", "this M", "measured", "median"]
    width = max(map(len, names))
    assert [row[:width].rstrip() for row in rows] == names
    assert all(row[width : width + 2] == "  " for row in rows)
    assert rows[0].endswith("RoaRNN, 100 maps")
    assert rows[5].endswith("(all 8, 2 runs)")
    assert verdict.startswith("The theorem holds")


def test_extremes_for_wide_states() -> None:
    rnn, u = roarnn(0.5, 30, N=24), normal(30, 2, 2)
    all_of_them, extremes = certify(rnn, u), certify(rnn, u, spectrum="extremes")
    assert not extremes.complete
    assert extremes.inside
    assert "extremes only" in str(extremes)
    assert extremes.log_largest == pytest.approx(all_of_them.log_largest, abs=1e-8)
    assert extremes.log_smallest == pytest.approx(all_of_them.log_smallest, abs=1e-8)
    neck = RoaFNN([6, 3, 6], rho=0.1, dtype=DOUBLE, generator=seeded(0))
    certificate = certify(neck, normal(6), spectrum="extremes")
    assert certificate.inside
    assert certificate.log_singular_values.shape == (1,)


def test_float32_has_its_own_slack() -> None:
    """α = 0: the interval is the point 1, and a rounded O is orthogonal only to float32."""
    rnn = RoaRNN(2, 16, alpha=0.0, filter="haar", generator=seeded(0))
    certificate = certify(rnn, torch.zeros(300, 2))
    assert certificate.bounds is not None
    assert certificate.bounds.finite.lower == certificate.bounds.finite.upper == 1
    assert certificate.inside
    assert certificate.slack < 0.01
    assert not certificate.bounds.finite.contains(certificate.log_singular_values)


def test_layers_and_systems_with_step() -> None:
    rnn = RoaRNN(2, 4, num_layers=2, rho=0.1, horizon=9, dtype=DOUBLE, generator=seeded(0))
    second = certify(rnn, normal(9, 2), layer=1)
    assert second.inside
    assert second.bounds == bounds_of(rnn, 9, layer=1)

    class Halving:
        state_size = 3

        def step(self, x: Tensor, u: Tensor) -> Tensor:
            return x / 2 + u

    measured = certify(Halving(), normal(20, 1))
    assert measured.log_largest == pytest.approx(-20 * math.log(2))
    assert measured.model == "Halving"


def test_unknown_spectrum() -> None:
    with pytest.raises(ValueError, match="did you mean 'extremes'"):
        certify(roarnn(0.1, 5), normal(5, 2), spectrum="extreme")
