"""Roa around other modules: layers, blocks, cells; what it is made of and what it refuses."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from roann import Roa, RoaLayer, RoaRNNCell, certify, filters
from roann.diagnostics import log_singular_values, roa_bounds

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

f64 = torch.float64
theorem = settings(deadline=None, max_examples=30, derandomize=True, database=None)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1):
    return torch.randn(*shape, generator=gen(seed), dtype=f64)


def perceptron(n_in, n_out):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(n_in, n_out), nn.Tanh()).to(f64)


@pytest.mark.parametrize(("n_in", "n_out"), [(5, 5), (5, 3), (3, 5)])
@pytest.mark.parametrize("filter", ["qr", "permutation", "rotations"])
@pytest.mark.parametrize("vector", [False, True])
def test_a_wrapped_perceptron_is_a_roalayer(n_in, n_out, filter, vector):
    """Values and every gradient, for resizing maps and one α per neuron too."""
    alpha = torch.linspace(0.1, 0.9, n_out, dtype=f64) if vector else 0.3
    f = perceptron(n_in, n_out)
    wrapped = Roa(f, alpha=alpha, filter=filter, generator=gen(3))
    layer = RoaLayer(n_in, n_out, alpha=alpha, filter=wrapped.filter, dtype=f64)
    layer.load_state_dict({"weight": f[0].weight, "bias": f[0].bias}, strict=False)
    x = data(2, 4, n_in).requires_grad_()
    torch.testing.assert_close(wrapped(x), layer(x), rtol=1e-14, atol=1e-15)
    mine = torch.autograd.grad(wrapped(x).sin().sum(), [x, f[0].weight, f[0].bias])
    theirs = torch.autograd.grad(layer(x).sin().sum(), [x, layer.weight, layer.bias])
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("kind", [nn.GRUCell, nn.RNNCell])
def test_a_cell_is_filtered_along_its_state(kind):
    torch.manual_seed(0)
    f = kind(3, 4, dtype=f64)
    cell = Roa(f, horizon=10, generator=gen())
    u, h = data(2, 3), data(2, 4)
    O = cell.filter.to_dense()
    torch.testing.assert_close(cell(u, h), 0.1 * f(u, h) + 0.9 * h @ O.T, rtol=1e-13, atol=1e-14)
    assert torch.equal(cell(u, hx=h), cell(u, h))
    torch.testing.assert_close(cell(u), 0.1 * f(u))  # from zero, as torch's cells
    torch.testing.assert_close(cell(u[0], h[0]), cell(u, h)[0], rtol=1e-13, atol=1e-14)
    assert torch.equal(cell.step(h, u), cell(u, h))


def test_a_wrapped_rnn_cell_is_a_roarnn_cell():
    options = {"rho": 0.5, "horizon": 10}
    ours = RoaRNNCell(3, 4, nonlinearity="tanh", gain=1.0, dtype=f64, generator=gen(), **options)
    f = nn.RNNCell(3, 4, dtype=f64)
    with torch.no_grad():
        f.weight_ih.copy_(ours.weight_ih)
        f.weight_hh.copy_(ours.weight_hh)
        f.bias_ih.copy_(ours.bias)
        f.bias_hh.zero_()
    wrapped = Roa(f, filter=ours.filter, **options)
    u, h = data(2, 3), data(2, 4)
    torch.testing.assert_close(wrapped(u, h), ours(u, h), rtol=1e-13, atol=1e-14)


def test_an_lstm_has_the_filter_on_both_its_states():
    f = nn.LSTMCell(3, 4, dtype=f64)
    cell = Roa(f, alpha=0.25, generator=gen())
    u, state = data(2, 3), (data(2, 4), data(2, 4, seed=2))
    O = cell.filter.to_dense()
    for new, plain, old in zip(cell(u, state), f(u, state), state, strict=True):
        torch.testing.assert_close(new, 0.25 * plain + 0.75 * old @ O.T, rtol=1e-13, atol=1e-14)
    for new, plain in zip(cell(u), f(u), strict=True):
        torch.testing.assert_close(new, 0.25 * plain)


@pytest.mark.parametrize("vector", [False, True])
def test_a_block_of_convolutions_has_its_channels_filtered(vector):
    torch.manual_seed(0)
    f = nn.Sequential(
        nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3, padding=1)
    ).to(f64)
    f.eval()
    alpha = torch.linspace(0.1, 0.6, 6, dtype=f64) if vector else 0.2
    block = Roa(f, alpha=alpha, dim=1, generator=gen())
    x = data(2, 4, 5, 7)
    shaped = torch.as_tensor(alpha, dtype=f64).reshape(-1, 1, 1)
    turned = torch.einsum("oc,bchw->bohw", block.filter.to_dense(), x)
    expected = shaped * f(x) + (1 - shaped) * turned
    torch.testing.assert_close(block(x), expected, rtol=1e-13, atol=1e-14)
    counted_back = Roa(f, alpha=alpha, dim=-3, filter=block.filter)
    assert torch.equal(counted_back(x), block(x))
    assert "dim=1" in repr(block)


@pytest.mark.parametrize("name", filters.FILTERS)
def test_the_two_ends_of_alpha(name):
    f = perceptron(4, 4)
    x = data(3, 4)
    assert torch.equal(Roa(f, alpha=1.0, filter=name, generator=gen())(x), f(x))
    isometry = Roa(f, alpha=0.0, filter=name, generator=gen())
    torch.testing.assert_close(isometry(x).norm(dim=1), x.norm(dim=1), rtol=1e-13, atol=0)


@theorem
@given(
    maps=st.integers(1, 20),
    lam=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    rho=st.sampled_from([0.1, 1.0]),
    seed=st.integers(0, 1000),
)
def test_the_theorems_hold_for_any_lipschitz_module(maps, lam, rho, seed):
    """Two layers with ‖W_2‖‖W_1‖ = λ and slopes of at most 1: λ takes the place of rσ."""
    torch.manual_seed(seed)
    alpha = min(1.0, rho / maps)
    x, logs = data(5, seed=seed), []
    for _ in range(maps):
        f = nn.Sequential(nn.Linear(5, 9), nn.Tanh(), nn.Linear(9, 5), nn.ReLU()).to(f64)
        with torch.no_grad():
            f[0].weight.div_(torch.linalg.matrix_norm(f[0].weight, 2))
            f[2].weight.mul_(lam / torch.linalg.matrix_norm(f[2].weight, 2))
        block = Roa(f, alpha=alpha)
        logs.append(torch.func.jacrev(block)(x).detach())
        x = block(x).detach()
    found = log_singular_values(logs)
    assert roa_bounds(alpha, lam, maps).finite.contains(found, 1e-11)


def test_widths_given_and_found():
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return torch.sigmoid(self.a(x)) * self.b(x)

    with pytest.raises(ValueError, match=r"features: expected N .* Gate does not tell its own"):
        Roa(Gate(), alpha=0.1)
    assert Roa(Gate(), 4, alpha=0.1)(torch.zeros(2, 4)).shape == (2, 4)
    assert Roa(nn.Identity(), (4, 4), alpha=0.5).filter.out_features == 4
    stack = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 16), nn.GELU(), nn.Linear(16, 6))
    wrapped = Roa(stack, alpha=0.1)
    assert (wrapped.filter.in_features, wrapped.filter.out_features) == (4, 6)
    attention = Roa(nn.TransformerEncoderLayer(8, 2, batch_first=True), 8, alpha=0.1)
    assert attention(torch.zeros(2, 3, 8)).shape == (2, 3, 8)


class Residual(nn.Module):
    """x + Linear(tanh(Linear(x)))."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 9), nn.Tanh(), nn.Linear(9, width))

    def forward(self, x):
        return x + self.inner(x)


def mlp(width):
    """The second half of a transformer's layer."""
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 12), nn.GELU(), nn.Linear(12, width))


@pytest.mark.parametrize("make", [Residual, mlp])
def test_blocks_of_other_networks(make):
    torch.manual_seed(0)
    f = make(6).to(f64)
    block = Roa(f, 6, rho=2.0, horizon=10, generator=gen())
    x = data(3, 5, 6)
    expected = 0.2 * f(x) + 0.8 * x @ block.filter.to_dense().T
    torch.testing.assert_close(block(x), expected, rtol=1e-13, atol=1e-14)
    assert torch.autograd.gradcheck(block, x[0, :2].clone().requires_grad_())


def test_parameters_buffers_and_copies():
    kw = {"filter": "qr", "learn_rho": True}  # the default filter follows from alpha
    wrapped = Roa(perceptron(4, 4), alpha=0.1, generator=gen(), **kw)
    names = [n for n, _ in wrapped.named_parameters()]
    assert names == ["alpha_logit", "module.0.weight", "module.0.bias"]
    assert {n for n, _ in wrapped.named_buffers()} == {"filter.matrix"}
    x = data(3, 4)
    twin = copy.deepcopy(wrapped)
    assert torch.equal(twin(x), wrapped(x))
    other = Roa(perceptron(4, 4), alpha=0.7, **kw)
    other.load_state_dict(wrapped.state_dict())
    assert torch.equal(other(x), wrapped(x))
    wrapped(x).sum().backward()
    assert float(wrapped.alpha_logit.grad.abs()) > 0
    assert "learned" in repr(wrapped)
    assert wrapped.filter.matrix.dtype == f64  # where and what the module is
    assert Roa(nn.Linear(3, 3, device="meta"), alpha=0.1, filter="qr").filter.matrix.is_meta


def test_gradients_survive_a_long_sequence_in_a_wrapped_gru():
    """A GRU forgets in a few hundred steps; wrapped, by the certificate, it does not."""
    torch.manual_seed(0)
    f = nn.GRUCell(2, 6, dtype=f64)
    u = data(300, 2)
    plain, wrapped = certify(f, u), certify(Roa(f, horizon=300, generator=gen()), u)
    assert plain.log_largest < -50
    assert abs(wrapped.log_largest) < 2
    assert wrapped.log_smallest > -3
    assert "No theorem covers Roa" in wrapped.verdict


BAD_CALLS = [
    (lambda w: w(torch.zeros(2, 3, dtype=f64)), RuntimeError, None),
    (lambda w: w(), TypeError, "x: expected positional arguments"),
    (lambda w: w.step(data(2, 4), data(2, 4)), TypeError, "state: expected 1, a cell"),
]


@pytest.mark.parametrize(("call", "error", "match"), BAD_CALLS)
def test_bad_calls(call, error, match):
    with pytest.raises(error, match=match):
        call(Roa(perceptron(4, 4), alpha=0.1))


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(RuntimeError, match=r"x: expected 5 features along dim=-1, got \(2, 4\)"):
        Roa(nn.Linear(4, 4), 5, alpha=0.1)(torch.zeros(2, 4))
    strided = nn.Conv1d(4, 4, 3, stride=2)
    with pytest.raises(ValueError, match=r"module: expected an output of shape \(2, 4, 9\)"):
        Roa(strided, alpha=0.1, dim=1)(torch.zeros(2, 4, 9))
    with pytest.raises(RuntimeError, match="x: expected a tensor that has a dimension 2"):
        Roa(nn.Linear(4, 4), alpha=0.1, dim=2)(torch.zeros(2, 4))
    attention, x = Roa(nn.MultiheadAttention(4, 1), 4, alpha=0.1), torch.zeros(3, 2, 4)
    with pytest.raises(ValueError, match="module: expected one that returns a tensor"):
        attention(x, x, x, need_weights=False)
    with pytest.raises(TypeError, match=r"module: expected an nn\.Module, got function"):
        Roa(lambda x: x, 4, alpha=0.1)
    with pytest.raises(ValueError, match="horizon"):
        Roa(nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"features: expected N or \(N_in, N_out\)"):
        Roa(nn.Linear(4, 4), (4, 4, 4), alpha=0.1)
