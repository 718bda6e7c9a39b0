"""Half precision over time, in depth and around modules; O and α that are moved."""

import copy

import pytest
import torch
from torch import nn

from roann import Roa, RoaEuler, RoaFNN, RoaODE, RoaRNN, RoaRNNCell

HALVES = [torch.bfloat16, torch.float16]
halved = pytest.mark.parametrize("dtype", HALVES, ids=str)
f64 = torch.float64
T = 300


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1):
    return torch.randn(*shape, generator=gen(seed))


def rounded(model, dtype):
    """A float32 twin whose parameters have the values of half precision."""
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for p in twin.parameters():
            p.copy_(p.to(dtype))
    return twin


def buffer(rnn):
    """What the filter holds."""
    (value,) = rnn.filter_l0.buffers()
    return value


def relative(a, b):
    return float((a.float() - b).detach().norm() / b.detach().norm())


@halved
@pytest.mark.parametrize("sizes", [[8] * 1001, [8, 9] * 500 + [8]], ids=["one run", "1000 runs"])
def test_a_thousand_maps_in_depth(dtype, sizes):
    """The state is not rounded between maps, nor between runs of one width."""
    full = RoaFNN(sizes, generator=gen())
    half, x = copy.deepcopy(full).to(dtype), data(4, 8).to(dtype)
    y = half(x)
    assert y.dtype == dtype
    assert relative(y, rounded(full, dtype)(x.float())) < torch.finfo(dtype).eps
    y.float().square().mean().backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in half.parameters())


@halved
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("intervals", [None, (T,), (T, 2)], ids=str)
@pytest.mark.parametrize("reading", ["isometric", "euler"])
def test_many_steps_in_continuous_time(dtype, vector, intervals, reading):
    alpha = torch.linspace(5e-4, 2e-3, 16) if vector else 1e-3
    cls = RoaODE if reading == "isometric" else RoaEuler
    full = cls(3, 16, alpha=alpha, generator=gen())
    half, u = copy.deepcopy(full).to(dtype), data(T, 2, 3).to(dtype)
    steps = None if intervals is None else 1 - 0.8 * torch.rand(*intervals, generator=gen(3))
    hx = data(1, 2, 16, seed=2).to(dtype)
    output, h_n = half(u, hx, intervals=steps)
    expected, last = rounded(full, dtype)(u.float(), hx.float(), intervals=steps)
    assert output.dtype == h_n.dtype == dtype
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).tiny
    # Euler's steps let states vanish: below `tiny` numbers are eps · tiny apart.
    for a, b in ((output, expected), (h_n, last)):
        assert float((a.float() - b).detach().norm()) <= eps * (
            float(b.detach().norm()) + tiny * b.numel()
        )
    one = half.step(hx[0], u[0], 0.7)
    assert one.dtype == dtype
    exact = rounded(full, dtype).step(hx[0].float(), u[0].float(), 0.7)
    assert relative(one, exact) < eps
    assert half.step(hx[0], u[0]).dtype == dtype


@halved
@pytest.mark.parametrize("vector", [False, True])
def test_around_a_module(dtype, vector):
    alpha = torch.linspace(0.01, 0.02, 8) if vector else 0.01
    full = Roa(nn.Linear(8, 8), alpha=alpha, generator=gen())
    half, x = copy.deepcopy(full).to(dtype), data(4, 8).to(dtype)
    y = half(x)
    assert y.dtype == dtype
    assert relative(y, rounded(full, dtype)(x.float())) < 2 * torch.finfo(dtype).eps
    cell = Roa(nn.GRUCell(2, 8), alpha=alpha, generator=gen()).to(dtype)
    assert cell(data(4, 2).to(dtype)).dtype == dtype


@halved
@pytest.mark.parametrize("filter", ["broad", "qr"])
def test_alpha_and_filter_survive_there_and_back(dtype, filter):
    alpha = torch.linspace(5e-4, 2e-3, 32)
    for start in (torch.float32, f64):
        rnn = RoaRNN(3, 32, alpha=alpha, dtype=start, filter=filter, generator=gen())
        O, gain = buffer(rnn).clone(), rnn.gain_of("_l0").clone()
        rnn.to(dtype)
        assert rnn.weight_hh_l0.dtype == dtype
        assert torch.equal(buffer(rnn), O)
        assert torch.equal(rnn.alpha, alpha.to(start))
        assert rnn.gain_of("_l0").dtype == torch.float32
        rnn.to(start)
        assert torch.equal(buffer(rnn), O)
        assert torch.equal(rnn.alpha, alpha.to(start))
        assert torch.equal(rnn.gain_of("_l0"), gain)
    made = RoaRNN(3, 32, alpha=alpha, dtype=dtype, filter=filter)
    assert made.alpha.dtype == buffer(made).dtype == torch.float32
    assert torch.equal(made.alpha, alpha)


def test_double_half_double_is_an_isometry_to_double_rounding():
    rnn = RoaRNN(3, 32, alpha=0.0, generator=gen()).double().half().double()
    hx = data(1, 2, 32).double()
    norms = rnn(torch.zeros(1000, 2, 3, dtype=f64), hx)[0].norm(dim=-1)
    torch.testing.assert_close(norms, hx.norm(dim=-1).expand_as(norms), rtol=1e-12, atol=0)


@halved
def test_a_learned_alpha_is_computed_in_full(dtype):
    rnn = RoaRNN(3, 4, alpha=1e-3, learn_rho=True, dtype=dtype)
    logit = rnn.alpha_logit_l0.detach()
    assert logit.dtype == dtype
    assert rnn.alpha.dtype == torch.float32
    exact = torch.sigmoid(logit.double())
    torch.testing.assert_close(rnn.alpha.detach().double(), exact, rtol=1e-6, atol=0)


@halved
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("learn", [False, True])
def test_a_thousand_steps_of_a_rnn(dtype, vector, learn):
    """Was 0.70 in bfloat16: the state was rounded a thousand times. Now it is rounded once."""
    alpha = torch.linspace(5e-4, 2e-3, 32) if vector else 1e-3
    full = RoaRNN(3, 32, alpha=alpha, learn_rho=learn, generator=gen())
    half, u = copy.deepcopy(full).to(dtype), data(1000, 2, 3).to(dtype)
    output, h_n = half(u)
    expected, last = rounded(full, dtype)(u.float())
    eps = torch.finfo(dtype).eps
    assert output.dtype == h_n.dtype == dtype
    assert relative(output, expected) < eps
    assert relative(h_n, last) < eps
    output.float().square().mean().backward()
    assert all(p.grad.dtype == dtype and p.grad.isfinite().all() for p in half.parameters())


@halved
def test_made_in_half_precision(dtype):
    rnn = RoaRNN(3, 32, horizon=1000, dtype=dtype, generator=gen())
    assert {p.dtype for p in rnn.parameters()} == {dtype}
    assert buffer(rnn).dtype == torch.float32
    u = data(1000, 2, 3).to(dtype)
    full = RoaRNN(3, 32, horizon=1000, generator=gen())
    expected, _ = rounded(full, dtype)(u.float())
    assert relative(rnn(u)[0], expected) < torch.finfo(dtype).eps


@halved
def test_two_layers_round_what_passes_between_them_only(dtype):
    full = RoaRNN(3, 16, 2, bidirectional=True, horizon=500, generator=gen())
    half, u = copy.deepcopy(full).to(dtype), data(500, 2, 3).to(dtype)
    hx = data(4, 2, 16, seed=2).to(dtype)
    expected, last = rounded(full, dtype)(u.float(), hx.float())
    output, h_n = half(u, hx)
    assert relative(output, expected) < 2 * torch.finfo(dtype).eps
    assert relative(h_n, last) < 2 * torch.finfo(dtype).eps


@halved
def test_a_cell_rounds_each_state_it_returns(dtype):
    full = RoaRNNCell(3, 16, alpha=torch.linspace(0.01, 0.02, 16), generator=gen())
    half, u = copy.deepcopy(full).to(dtype), data(2, 3).to(dtype)
    x = data(2, 16, seed=2).to(dtype)
    after = half(u, x)
    assert after.dtype == dtype
    assert relative(after, rounded(full, dtype)(u.float(), x.float())) < torch.finfo(dtype).eps
