"""Jacobians: closed form = torch.func = product = autograd, for our layers and for others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drawn_models import Drawn, feed_forward, normal, recurrent, seeded, theorem
from hypothesis import given
from torch import Tensor, nn
from torch.autograd.functional import jacobian
from torch.func import jacrev, vmap
from torch.nn.utils.rnn import pack_sequence

from roann import RoaFNN, RoaLayer, RoaRNN, RoaRNNCell
from roann.diagnostics import end_to_end_jacobian, step_jacobian, trajectory

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

T, B, I, N = 5, 3, 2, 4
DOUBLE: dict[str, Any] = {"dtype": torch.float64}


def layers(**kwargs: Any) -> list[nn.Module]:
    """Every recurrent layer that is covered, over the same arguments."""
    torch.manual_seed(0)
    return [
        RoaRNN(I, N, nonlinearity="tanh", alpha=0.1, **DOUBLE, **kwargs),
        nn.RNN(I, N, **DOUBLE, **kwargs),
        nn.RNN(I, N, nonlinearity="relu", bias=False, **DOUBLE, **kwargs),
        nn.GRU(I, N, **DOUBLE, **kwargs),
        nn.LSTM(I, N, **DOUBLE, **kwargs),
        nn.LSTM(I, N, proj_size=2, **DOUBLE, **kwargs),
    ]


def flat_states(model: nn.Module, h_n: Any) -> Tensor:
    """h_n, or (h_n, c_n) as one vector for each recurrence."""
    return torch.cat(h_n, -1) if isinstance(h_n, tuple) else h_n


class Leaky:
    """A system that only offers `step`."""

    state_size = N

    def __init__(self) -> None:
        self.A = normal(N, N, seed=5)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return 0.5 * x + torch.tanh(x @ self.A.T + u.sum(-1, keepdim=True))


@theorem
@given(recurrent())
def test_the_closed_form_is_what_torch_func_finds(drawn: Drawn) -> None:
    rnn = drawn.rnn
    path = trajectory(rnn, drawn.inputs, drawn.h0)
    for k, J in enumerate(path.jacobians()):
        found = jacrev(rnn.step)(path.states[k], drawn.inputs[k])
        torch.testing.assert_close(J, found.detach(), rtol=1e-13, atol=1e-15)


@theorem
@given(recurrent())
def test_end_to_end_is_the_product_and_the_autograd_jacobian(drawn: Drawn) -> None:
    rnn, u, h0 = drawn.rnn, drawn.inputs, drawn.h0
    found = jacobian(lambda h: rnn(u, h)[1][0], h0)[:, 0]
    whole = end_to_end_jacobian(rnn, u, h0)
    product = torch.eye(rnn.hidden_size, **DOUBLE)
    for J in trajectory(rnn, u, h0).jacobians():
        product = J @ product
    torch.testing.assert_close(whole, product, rtol=0, atol=0)
    torch.testing.assert_close(whole, found, rtol=1e-11, atol=1e-14)


@theorem
@given(feed_forward("any"))
def test_depth_as_time(drawn: tuple[RoaFNN, Tensor]) -> None:
    net, x = drawn
    torch.testing.assert_close(
        end_to_end_jacobian(net, x), jacrev(net)(x).detach(), rtol=1e-11, atol=1e-14
    )
    middle = trajectory(net, x).states[1]
    rest = end_to_end_jacobian(net, x, start=1)
    first = step_jacobian(net, x)
    torch.testing.assert_close(rest @ first, end_to_end_jacobian(net, x), rtol=1e-11, atol=1e-14)
    assert rest.shape == (net.sizes[-1], middle.shape[-1])


@pytest.mark.parametrize("model", layers(), ids=lambda m: type(m).__name__)
def test_other_layers_agree_with_autograd(model: nn.Module) -> None:
    u = normal(T, I)
    S = trajectory(model, u).states[0].shape[-1]
    x0 = normal(S, seed=1)
    lstm = isinstance(model, nn.LSTM)
    out = S - N if lstm else S

    def forward(x: Tensor) -> Tensor:
        hx = (x[None, :out], x[None, out:]) if lstm else x[None]
        return flat_states(model, model(u, hx)[1])[0]

    hx = (x0[None, :out], x0[None, out:]) if lstm else x0[None]
    found = jacobian(forward, x0)
    torch.testing.assert_close(end_to_end_jacobian(model, u, hx), found, rtol=1e-11, atol=1e-13)
    path = trajectory(model, u, hx)
    single = step_jacobian(model, path.states[2], u[2])
    torch.testing.assert_close(single, next(path.jacobians(2, 3)), rtol=1e-14, atol=1e-15)
    part = end_to_end_jacobian(model, u, hx, start=2, stop=4)
    torch.testing.assert_close(
        end_to_end_jacobian(model, u, hx, start=4)
        @ part
        @ end_to_end_jacobian(model, u, hx, stop=2),
        found,
        rtol=1e-11,
        atol=1e-13,
    )


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("index", range(6))
def test_a_trajectory_is_what_the_layer_does(
    index: int, bidirectional: bool, batch_first: bool
) -> None:
    """Every recurrence of a stack, in torch's order, ends in the layer's own h_n."""
    model = layers(num_layers=2, bidirectional=bidirectional, batch_first=batch_first)[index]
    u = normal(B, T, I) if batch_first else normal(T, B, I)
    last = flat_states(model, model(u)[1]).detach()
    for layer in range(last.shape[0]):
        path = trajectory(model, u, layer=layer)
        assert len(path) == T
        torch.testing.assert_close(path.states[-1], last[layer], rtol=1e-12, atol=1e-14)


def test_a_batch_is_its_rows() -> None:
    u = normal(T, B, I)
    for model in [*layers(), Leaky()]:
        whole = end_to_end_jacobian(model, u)
        rows = torch.stack([end_to_end_jacobian(model, u[:, b]) for b in range(B)])
        torch.testing.assert_close(whole, rows, rtol=1e-12, atol=1e-14)


def test_three_verbs_are_one_map() -> None:
    net = RoaFNN([3, 4, 4, 2], alpha=0.4, filter="permutation", generator=seeded(0), **DOUBLE)
    for model, u in [*((m, normal(T, B, I)) for m in [*layers(), Leaky()]), (net, normal(B, 3))]:
        path = trajectory(model, u)
        for k in range(len(path)):
            J = path.jacobian(k)
            dense = J.to_dense()
            v = normal(B, dense.shape[-1], seed=1)
            w = normal(B, dense.shape[-2], seed=2)
            torch.testing.assert_close(J.matvec(v), (dense @ v[..., None])[..., 0])
            torch.testing.assert_close(J.matvec_transpose(w), (dense.mT @ w[..., None])[..., 0])
            torch.testing.assert_close(J.row((1,)).to_dense(), dense[1])


def test_anything_that_steps() -> None:
    system, u = Leaky(), normal(T, B, I)
    J = step_jacobian(system, normal(B, N), u[0])
    torch.testing.assert_close(J, vmap(jacrev(system.step))(normal(B, N), u[0]))
    path = trajectory(system, u, normal(B, N, seed=3))
    assert torch.equal(path.states[1], system.step(normal(B, N, seed=3), u[0]))
    assert torch.equal(trajectory(system, u).states[0], torch.zeros(B, N, **DOUBLE))


def test_cells_and_single_layers() -> None:
    u, x = normal(T, B, I), normal(B, N, seed=1)
    for cell in (RoaRNNCell(I, N, alpha=0.2, **DOUBLE), nn.GRUCell(I, N, **DOUBLE)):
        expected = x
        for u_k in u:
            expected = cell(u_k, expected)
        path = trajectory(cell, u, x)
        torch.testing.assert_close(path.states[-1], expected.detach(), rtol=1e-12, atol=1e-14)
    lstm = nn.LSTMCell(I, N, **DOUBLE)
    h, c = lstm(u[0], (x, x))
    found = trajectory(lstm, u[:1], (x, x)).states[-1]
    torch.testing.assert_close(found, torch.cat([h, c], -1).detach())
    layer = RoaLayer(3, 5, alpha=0.2, **DOUBLE)
    torch.testing.assert_close(step_jacobian(layer, x[0, :3]), jacrev(layer)(x[0, :3]).detach())


def test_nothing_is_changed() -> None:
    model, u = RoaRNN(I, N, alpha=0.3), torch.randn(T, B, I)
    before = [v.clone() for v in (*model.parameters(), *model.buffers())]
    state = torch.random.get_rng_state()
    end_to_end_jacobian(model, u)
    assert torch.equal(torch.random.get_rng_state(), state)
    now = (*model.parameters(), *model.buffers())
    assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert not any(x.requires_grad for x in trajectory(model, u).states)


def test_errors_say_what_to_do() -> None:
    rnn = RoaRNN(I, N, alpha=0.3)
    with pytest.raises(TypeError, match=r"model: expected RoaRNN.*got Linear"):
        trajectory(nn.Linear(2, 2), torch.ones(3, 2))
    with pytest.raises(ValueError, match="layer: expected an index below 1, got 1"):
        trajectory(rnn, torch.ones(T, I), layer=1)
    with pytest.raises(ValueError, match="unpacked sequences, got PackedSequence"):
        trajectory(rnn, pack_sequence([torch.ones(3, I)]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one time step"):
        trajectory(rnn, torch.ones(0, I))
    with pytest.raises(ValueError, match="u: expected the input of the step"):
        step_jacobian(rnn, torch.zeros(N))
    with pytest.raises(ValueError, match="layer: expected an index below 2"):
        step_jacobian(RoaFNN([2, 2, 2]), torch.zeros(2), layer=2)

    class Bare:
        def step(self, x: Tensor, u: Tensor) -> Tensor:
            return x

    with pytest.raises(ValueError, match=r"hx: expected the first state.*pass hx=x0"):
        trajectory(Bare(), torch.ones(3, 2))
