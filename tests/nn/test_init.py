"""How parameters are drawn: the spread that each initialisation claims."""

import pytest
import torch

from roann import RoaRNN

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "init", ["balanced", "drawn_bias", "normal", "scaled_normal", "uniform", "orthogonal"]
)
def test_initialisations(init):
    N = 200
    rnn = RoaRNN(50, N, horizon=10, init=init, generator=gen(), dtype=f64)
    W, others = rnn.weight_hh_l0.detach(), [rnn.weight_ih_l0.detach(), rnn.bias_l0.detach()]
    spread = {"normal": 1, "scaled_normal": N**-0.5, "uniform": (3 * N) ** -0.5}
    spread["balanced"] = spread["drawn_bias"] = N**-0.5
    if init == "orthogonal":
        torch.testing.assert_close(W @ W.T, torch.eye(N, dtype=f64), rtol=0, atol=1e-6)
    else:
        assert float(W.std()) == pytest.approx(spread[init], rel=0.02)
    balanced = init in ("balanced", "drawn_bias")
    wide = 1 if "normal" in init or balanced else (3 * N) ** -0.5
    into = 50**-0.5 if balanced else wide
    assert float(others[0].std()) == pytest.approx(into, rel=0.03)
    assert float(others[1].std()) == pytest.approx(0 if init == "balanced" else wide, rel=0.15)


def test_reset_parameters_leaves_the_filter():
    rnn = RoaRNN(3, 4, horizon=5, generator=gen())
    O, W = rnn.filter_l0.to_dense().clone(), rnn.weight_hh_l0.detach().clone()
    rnn.reset_parameters(gen(1))
    assert torch.equal(O, rnn.filter_l0.to_dense())
    assert not torch.equal(W, rnn.weight_hh_l0)
    rnn.reset_parameters(gen(0))
    assert torch.equal(W, rnn.weight_hh_l0)
