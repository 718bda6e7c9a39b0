"""RoaRNN from a torch.nn.RNN, and a cell that shares a layer of a RoaRNN."""

import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from roann import HypothesisWarning, RoaRNN

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1, dtype=f64):
    return torch.randn(*shape, generator=gen(seed), dtype=dtype)


def theirs(*sizes, **settings):
    torch.manual_seed(0)
    return nn.RNN(*(sizes or (3, 5)), **{"dtype": f64} | settings)


@pytest.mark.parametrize(
    ("nonlinearity", "bias", "layers", "bidirectional", "batch_first"),
    [*itertools.product(["tanh", "relu"], [True, False], [1, 3], [True, False], [True, False])],
)
def test_it_is_the_same_function(nonlinearity, bias, layers, bidirectional, batch_first):
    """Outputs, last states and gradients; the two biases become one."""
    settings = {"nonlinearity": nonlinearity, "bias": bias, "num_layers": layers}
    settings |= {"bidirectional": bidirectional, "batch_first": batch_first}
    rnn = theirs(3, 5, **settings)
    ours = RoaRNN.from_torch(rnn)
    assert ours.alpha == 1
    assert {k: getattr(ours, k) for k in settings} == settings
    assert (ours.input_size, ours.hidden_size) == (3, 5)
    u, hx = data(7, 4, 3), data(layers * (1 + bidirectional), 7 if batch_first else 4, 5, seed=2)
    results = []
    for model in (rnn, ours):
        leaf = u.clone().requires_grad_()
        output, h_n = model(leaf, hx)
        results.append([output, h_n, *torch.autograd.grad(output.sum() + h_n.sum(), leaf)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)
    parts = pack_sequence([data(5, 3), data(2, 3, seed=3)])
    torch.testing.assert_close(rnn(parts)[0].data, ours(parts)[0].data, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_dtype_device_dropout_and_mode(dtype):
    rnn = theirs(3, 5, 2, dropout=0.25, dtype=dtype).eval()
    ours = RoaRNN.from_torch(rnn)
    assert ours.dropout == 0.25
    assert not ours.training
    assert {p.dtype for p in ours.parameters()} == {dtype}
    u = data(7, 2, 3, dtype=dtype)
    torch.testing.assert_close(rnn(u)[0], ours(u)[0])
    rnn.train()
    assert RoaRNN.from_torch(rnn).training
    assert {p.device.type for p in RoaRNN.from_torch(rnn.to("meta")).parameters()} == {"meta"}


def test_the_weights_are_copies():
    rnn = theirs()
    ours = RoaRNN.from_torch(rnn)
    with torch.no_grad():
        rnn.weight_hh_l0.zero_()
    assert float(ours.weight_hh_l0.detach().abs().max()) > 0


def test_a_horizon_puts_the_weights_under_our_recurrence():
    rnn = theirs()
    ours = RoaRNN.from_torch(rnn, rho=2.0, horizon=100, filter="haar", generator=gen(4))
    assert ours.alpha == 0.02
    assert torch.equal(ours.weight_hh_l0, rnn.weight_hh_l0)
    assert torch.equal(ours.weight_ih_l0, rnn.weight_ih_l0)
    assert torch.equal(ours.bias_l0, rnn.bias_ih_l0 + rnn.bias_hh_l0)
    x, u = data(5), data(3, seed=2)
    gain = 0.02**-0.5  # a filter that mixes planes: one gain for all neurons
    y = rnn.weight_hh_l0 @ x + gain * (rnn.weight_ih_l0 @ u + rnn.bias_ih_l0 + rnn.bias_hh_l0)
    expected = 0.02 * torch.tanh(y) + 0.98 * (ours.filter_l0.to_dense() @ x)
    torch.testing.assert_close(ours.step(x, u), expected, rtol=1e-13, atol=1e-13)
    again = RoaRNN.from_torch(rnn, rho=2.0, horizon=100, filter="haar", generator=gen(4))
    assert torch.equal(again.filter_l0.to_dense(), ours.filter_l0.to_dense())
    learner = RoaRNN.from_torch(rnn, alpha=0.1, learn_rho=True)
    assert float(learner.alpha.detach()) == pytest.approx(0.1)


def test_the_warning_is_about_the_weights_it_takes():
    rnn = theirs(3, 50)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(0.01)
    RoaRNN.from_torch(rnn, horizon=2, max_norm=None)  # quiet: α(1 + ‖W‖) ≈ 0.51
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(1000)
    with pytest.warns(HypothesisWarning):
        RoaRNN.from_torch(rnn, horizon=2, max_norm=None)


def test_a_rho_wants_a_horizon():
    with pytest.raises(ValueError, match="horizon: expected the number of steps"):
        RoaRNN.from_torch(theirs(), rho=2.0)


def test_only_a_plain_rnn():
    with pytest.raises(TypeError, match=r"rnn: expected a torch.nn.RNN, got LSTM"):
        RoaRNN.from_torch(nn.LSTM(2, 3))


ALPHAS = {
    "number": 0.1,
    "vector": torch.linspace(0.01, 0.2, 5, dtype=f64),
    "row": torch.tensor([[0.1], [0.2]], dtype=f64),
    "matrix": torch.linspace(0.01, 0.2, 10, dtype=f64).reshape(2, 5),
}
two = pytest.mark.parametrize("kind", ALPHAS)


def layers(kind, **settings):
    given = {"alpha": ALPHAS[kind], "init": "scaled_normal", "dtype": f64, "bidirectional": True}
    return RoaRNN(3, 5, 2, generator=gen(), **given | settings)


@two
@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("bias", [True, False])
def test_stepping_with_a_cell_is_the_scan(kind, learn, bias):
    rnn = layers(kind, learn_rho=learn, bias=bias)
    u, expected = data(6, 2, 3), []
    inputs = u
    for layer in range(2):
        outputs = []
        for reverse in (False, True):
            cell, x, states = rnn.cell(layer, reverse), torch.zeros(2, 5, dtype=f64), []
            for here in inputs.flip(0) if reverse else inputs:
                x = cell(here, x)
                states.append(x)
            expected.append(x)
            both = torch.stack(states)
            outputs.append(both.flip(0) if reverse else both)
        inputs = torch.cat(outputs, -1)
    output, h_n = rnn(u)
    torch.testing.assert_close(h_n, torch.stack(expected), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(output, inputs, rtol=1e-12, atol=1e-13)


@two
@pytest.mark.parametrize("learn", [False, True])
def test_parameters_and_filter_are_shared(kind, learn):
    rnn = layers(kind, learn_rho=learn)
    before = torch.get_rng_state()
    cell = rnn.cell(1, reverse=True)
    assert torch.equal(before, torch.get_rng_state())
    assert cell.weight_hh is rnn.weight_hh_l1_reverse
    assert cell.weight_ih is rnn.weight_ih_l1_reverse
    assert cell.bias is rnn.bias_l1_reverse
    assert cell.filter is rnn.filter_l1_reverse
    if learn:
        assert cell.alpha_logit is rnn.alpha_logit_l1_reverse
    cell(data(2, 10)).sum().backward()
    assert float(rnn.weight_hh_l1_reverse.grad.abs().max()) == 0  # from zero, W has no part
    assert float(rnn.weight_ih_l1_reverse.grad.abs().max()) > 0
    rnn.float()
    assert cell.weight_hh.dtype == torch.float32
    assert {b.dtype for b in cell.filter.buffers()} == {torch.float32}


def test_what_a_cell_cannot_be():
    rnn = RoaRNN(3, 4, horizon=100, generator=gen())
    with pytest.raises(ValueError, match="layer: expected at most 0, got 1"):
        rnn.cell(1)
    with pytest.raises(ValueError, match="layer: expected at least 0"):
        rnn.cell(-1)
    with pytest.raises(ValueError, match="reverse: expected False for a layer with one direction"):
        rnn.cell(0, reverse=True)
    nn.utils.parametrizations.orthogonal(rnn, "weight_hh_l0")
    with pytest.raises(ValueError, match="weight_hh_l0: expected a plain parameter to share"):
        rnn.cell()
