"""The setting of the layers in estimators: its gain by hand, and what a user may change."""

import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

import torch

from roann import RoaRNN
from roann.estimators import Options, RoaClassifier
from roann.estimators.layers import layer_options
from roann.nn.gain import steady_gain


def test_the_gain_by_hand():
    """α = 1/10,000: 10 where inputs add up for the whole horizon, 100 where planes turn fast."""
    gain = steady_gain(17, 10_000.0)
    still, slow, fast = gain[:8], gain[8:10], gain[10:16]
    torch.testing.assert_close(still, torch.full((8,), 10.0, dtype=torch.float64))
    torch.testing.assert_close(slow, torch.full((2,), 10.0, dtype=torch.float64))
    torch.testing.assert_close(fast, torch.full((6,), 100.0, dtype=torch.float64))
    assert float(gain[16]) == pytest.approx(10)  # a coordinate without a plane stands still


@pytest.mark.parametrize("given", [{"alpha": 0.1}, {"rho": 0.3}, {"filter": "qr"}], ids=str)
def test_what_a_user_sets_has_the_layers_own_gain(given):
    options = layer_options(8, 100.0, given)
    assert "gain" not in options
    rnn = RoaRNN(2, 8, **options)
    assert rnn.gain_of("_l0").tolist() == pytest.approx([rnn.alpha**-0.5] * 8)


def test_an_estimator_has_it():
    X = torch.randn(12, 30, 1, generator=torch.Generator().manual_seed(0)).numpy()
    y = [0, 1] * 6
    model = RoaClassifier(hidden_size=8, max_epochs=1, horizon=25.0, random_state=0).fit(X, y)
    rnn = model.networks_[0].layers[0]
    assert rnn.alpha == pytest.approx(1 / 25)
    torch.testing.assert_close(rnn.gain_of("_l0").double(), steady_gain(8, 25.0))
    assert float(rnn.bias_l0.detach().std()) > 0.3
    options = Options(layer={"gain": 2.0})
    own = RoaClassifier(hidden_size=8, max_epochs=1, options=options, random_state=0).fit(X, y)
    assert own.networks_[0].layers[0].gain_of("_l0").tolist() == [2.0] * 8
