"""RoaFNN, RoaLayer and RoaRNNCell."""

import copy
import time

import pytest
import torch
from torch import nn

from roann import PAPER, RoaFNN, RoaLayer, RoaRNN, RoaRNNCell, filters
from roann.kernels.memory import MEMORIES

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1, dtype=f64):
    return torch.randn(*shape, generator=gen(seed), dtype=dtype)


def layer_by_layer(net, x):
    """The network as one module per map, sharing its tensors."""
    for i, run in enumerate(net.runs):
        O = net.get_submodule(f"filter_{i}").to_dense()
        for k in range(run.depth):
            layer = RoaLayer(
                run.n_in, run.n_out, nonlinearity=net.nonlinearity, alpha=net.alpha, dtype=f64,
                filter=(O[k] if O.dim() == 3 else O).to(f64), bias=net.bias,
            )  # fmt: skip
            del layer.weight, layer.bias
            layer.weight = net.get_parameter(f"weight_{i}")[k]
            layer.bias = net.get_parameter(f"bias_{i}")[k] if net.bias else None
            x = layer(x)
    return x


# Nine maps at ρ = 0.5 are no contraction: the reversible mode says so, rightly.
@pytest.mark.filterwarnings("ignore::roann.kernels.memory.DriftWarning")
@pytest.mark.parametrize("recycle", [False, True])
@pytest.mark.parametrize("name", filters.FILTERS)
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_stack_is_its_layers(name, recycle, memory):
    sizes = [3, 3, 3, 5, 5, 2, 2, 2, 2, 1]
    net = RoaFNN(
        sizes, rho=0.5, filter=name, recycle=recycle, dtype=f64, generator=gen(), memory=memory
    )
    x = data(4, 3).requires_grad_()
    found, exact = net(x), layer_by_layer(net, x)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-13)
    leaves = (x, *net.parameters())
    for a, b in zip(
        torch.autograd.grad(found.sin().sum(), leaves),
        torch.autograd.grad(exact.sin().sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(), (6, 1)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("half", [False, True])
def test_a_map_between_two_widths_is_that_of_every_backend(shape, bias, half):
    """Also with an α of its own that is learned; one row, few and many."""
    alpha = torch.linspace(0.1, 0.6, 6, dtype=f64).view(6, 1) if shape else 0.3
    sizes = [3, 4, 4, 2, 2, 5, 1]
    net = RoaFNN(
        sizes, alpha=alpha, learn_rho=True, bias=bias, generator=gen(),
        dtype=torch.bfloat16 if half else f64,
    )  # fmt: skip
    for B in (1, 3, 65):
        x = data(B, 3).to(net.get_parameter("weight_0").dtype).requires_grad_()
        found = {}
        for backend in ("auto", "fused", "reference"):
            net.backend = backend
            leaves = (x, *net.parameters())
            y = net(x)
            found[backend] = y, *torch.autograd.grad(y.sin().sum(), leaves)
        eps = 2**-7 if half else 1e-12  # the gradients of half precision are rounded at the end
        for backend in ("auto", "fused"):
            for a, b in zip(found[backend], found["reference"], strict=True):
                torch.testing.assert_close(a, b, rtol=eps, atol=eps)


def test_fifty_thousand_layers():
    """A handful of tensors, made in under two seconds, and gradients reach the first layer."""
    start = time.perf_counter()
    net = RoaFNN([2] * 49_999 + [1], rho=5.0, generator=gen())
    assert time.perf_counter() - start < 2
    assert [tuple(p.shape) for p in net.parameters()] == [
        (49_998, 2, 2),
        (49_998, 2),
        (1, 1, 2),
        (1, 1),
    ]
    assert net.alpha == 5 / 49_999
    net(data(3, 2, dtype=torch.float32)).sum().backward()
    norms = net.weight_0.grad.flatten(1).norm(dim=1)
    assert bool(torch.isfinite(norms).all())
    first, last = float(norms[:100].mean()), float(norms[-100:].mean())
    assert 1e-3 < first / last < 1e3


def test_counts_and_default_horizon():
    net = RoaFNN([2] * 49 + [1], rho=5.0)
    assert sum(p.numel() for p in net.parameters()) == 291
    assert net.alpha == 5 / 49
    shared = RoaFNN([4] * 10, recycle=True, **PAPER)
    assert sum(b.numel() for b in shared.buffers()) == 16
    assert sum(b.numel() for b in RoaFNN([4] * 10, **PAPER).buffers()) == 9 * 16
    assert sum(b.numel() for b in RoaFNN([4] * 10).buffers()) == 9 * 2  # an angle for each plane


def test_alpha_one_is_a_perceptron():
    net = RoaFNN([3, 4, 4, 2], alpha=1.0, dtype=f64, generator=gen())
    x = data(5, 3)
    plain = x
    for i, run in enumerate(net.runs):
        for k in range(run.depth):
            W, b = net.get_parameter(f"weight_{i}")[k], net.get_parameter(f"bias_{i}")[k]
            plain = torch.tanh(nn.functional.linear(plain, W, b))
    torch.testing.assert_close(net(x), plain, rtol=1e-13, atol=1e-14)


def test_alpha_zero_keeps_the_norm():
    x = data(5, 3)
    wider = RoaFNN([3, 3, 7, 7, 9], alpha=0.0, dtype=f64, generator=gen())
    torch.testing.assert_close(wider(x).norm(dim=1), x.norm(dim=1), rtol=1e-13, atol=0)


@pytest.mark.parametrize(("settings", "updates"), [(PAPER, 100), ({}, 150)], ids=str)
def test_trains_with_torchs_optimisers(settings, updates):
    """A hundred layers learn the sign of x₀ x₁, which no linear map can."""
    net = RoaFNN([2] * 100 + [1], rho=5.0, generator=gen(1), **settings)
    x = data(200, 2, dtype=torch.float32)
    y = (x[:, :1] * x[:, 1:]).sign()
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    first = None
    for _ in range(updates):
        optimiser.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        first = first or loss.item()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.5 < first  # the best linear map stays near 1


def test_leading_dimensions_and_errors():
    net = RoaFNN([2, 2, 1], dtype=f64, generator=gen())
    x = data(3, 4, 2)
    torch.testing.assert_close(net(x)[1, 2], net(x[1, 2]), rtol=1e-13, atol=1e-14)
    assert net(torch.zeros(0, 2, dtype=f64)).shape == (0, 1)
    with pytest.raises(RuntimeError, match="x: expected 2 features"):
        net(data(3, 3))
    with pytest.raises(ValueError, match=r"x: expected dtype torch\.float64"):
        net(torch.zeros(3, 2))
    with pytest.raises(ValueError, match="sizes: expected at least two widths"):
        RoaFNN([2])
    with pytest.raises(ValueError, match="sizes: expected at least 1"):
        RoaFNN([2, 0])
    with pytest.raises(ValueError, match="rho=9 and horizon=2 give"):
        RoaFNN([2, 2, 2], rho=9)
    with pytest.raises(ValueError, match=r"filter: expected shape \(1, 2, 3\)"):
        RoaFNN([3, 2], filter=torch.eye(3))


def test_recycled_filters_are_one():
    net = RoaFNN([3, 3, 2, 3, 3, 3], recycle=True, generator=gen())
    assert net.filter_0 is net.filter_3
    assert net.filter_0 is not net.filter_1
    assert copy.deepcopy(net).filter_0 is not net.filter_0


def test_layer_of_another_width():
    layer = RoaLayer(5, 3, alpha=0.25, nonlinearity="relu", dtype=f64, generator=gen())
    x = data(4, 5)
    O = layer.filter.to_dense()
    expected = 0.25 * torch.relu(x @ layer.weight.T + layer.bias) + 0.75 * x @ O.T
    torch.testing.assert_close(layer(x), expected, rtol=1e-13, atol=1e-14)
    with pytest.raises(RuntimeError, match="x: expected 5 features"):
        layer(data(4, 4))


def test_cell_is_the_rnns_step():
    cell = RoaRNNCell(3, 4, horizon=10, dtype=f64, generator=gen())
    rnn = RoaRNN(3, 4, horizon=10, dtype=f64, generator=gen())
    u = data(10, 2, 3)
    x = None
    for k in range(10):
        x = cell(u[k], x)
    torch.testing.assert_close(x, rnn(u)[1][0], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(cell(u[0, 0]), cell(u[0])[0], rtol=1e-13, atol=1e-14)


def test_cell_at_alpha_one_is_torchs():
    cell = RoaRNNCell(3, 4, alpha=1.0, nonlinearity="tanh", dtype=f64, generator=gen())
    twin = nn.RNNCell(3, 4, dtype=f64)
    with torch.no_grad():
        twin.weight_ih.copy_(cell.weight_ih)
        twin.weight_hh.copy_(cell.weight_hh)
        twin.bias_ih.copy_(cell.bias)
        twin.bias_hh.zero_()
    u, x = data(2, 3), data(2, 4)
    torch.testing.assert_close(cell(u, x), twin(u, x), rtol=1e-13, atol=1e-14)


def test_bad_cells():
    cell = RoaRNNCell(3, 4, horizon=10)
    with pytest.raises(RuntimeError, match="input: expected 3 features"):
        cell(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="1 dimension"):
        cell(torch.zeros(2, 4, 3))
    with pytest.raises(RuntimeError, match=r"hx: expected shape \(2, 4\)"):
        cell(torch.zeros(2, 3), torch.zeros(3, 4))
    with pytest.raises(ValueError, match="horizon"):
        RoaRNNCell(3, 4)
