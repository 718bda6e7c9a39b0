"""The picture of a certificate: one dot for each value, and lines at the ends of the bounds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from roann import RoaRNN, certify
from roann.lab.figures import certificate_spectrum, save
from roann.lab.figures.style import svg_bytes

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")


def seeded():
    return torch.Generator().manual_seed(0)


def certificate():
    f64 = torch.float64
    rnn = RoaRNN(2, 8, rho=0.1, horizon=50, dtype=f64, generator=seeded())
    return certify(rnn, torch.randn(50, 2, 2, dtype=f64, generator=seeded()))


def test_dots_are_the_values_and_lines_the_ends(tmp_path):
    certified = certificate()
    figure = certificate_spectrum(certified)
    target = save(figure, tmp_path / "spectrum.png")
    assert target.read_bytes().startswith(b"\x89PNG")
    axes = figure.axes[0]
    assert len(axes.lines) == 2 + 4  # two runs, two ends of two intervals
    for line, run in zip(axes.lines, certified.log_singular_values, strict=False):
        assert list(line.get_xdata()) == list(range(1, 9))
        assert list(line.get_ydata()) == pytest.approx((run / math.log(10)).tolist())
    low, high = axes.lines[2].get_ydata()[0], axes.lines[3].get_ydata()[0]
    assert low * math.log(10) == pytest.approx(certified.bounds.finite.log_lower)
    assert high * math.log(10) == pytest.approx(certified.bounds.finite.log_upper)
    assert all(low <= y <= high for y in axes.lines[0].get_ydata())


def test_without_a_theorem_there_are_dots_alone():
    rnn = nn.RNN(2, 3)
    assert len(certificate_spectrum(certify(rnn, torch.zeros(4, 2))).axes[0].lines) == 1


def test_a_value_of_zero_has_no_dot():
    class Cut:
        state_size = 2

        def step(self, x, u):
            return x * torch.tensor([1.0, 0.0])

    line = certificate_spectrum(certify(Cut(), torch.zeros(3, 1))).axes[0].lines[0]
    assert line.get_xydata().shape == (1, 2)
    assert line.get_xydata()[0].tolist() == pytest.approx([1, 0], abs=1e-15)


def test_equal_certificates_give_equal_bytes():
    assert svg_bytes(certificate_spectrum(certificate())) == svg_bytes(
        certificate_spectrum(certificate())
    )
