"""Half precision: parameters, input and output may have it; the state, O and α do not."""

import copy

import pytest
import torch

from roann import RoaRNN, RoaRNNCell

HALVES = [torch.bfloat16, torch.float16]
halved = pytest.mark.parametrize("dtype", HALVES, ids=str)


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


def relative(a, b):
    return float((a.float() - b).detach().norm() / b.detach().norm())


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
    assert rnn.filter_l0.matrix.dtype == torch.float32
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
