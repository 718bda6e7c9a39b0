"""Gradients along time: exact by stepping, and the same when watched in a real training step."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from drawn_models import Drawn, normal, recurrent, seeded, theorem
from hypothesis import given
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from roann import RoaFNN, RoaLayer, RoaRNN
from roann.diagnostics import (
    GradientWatcher,
    end_to_end_jacobian,
    gradient_along_time,
    trajectory,
)

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

T, B, I, N = 6, 3, 2, 4
DOUBLE: dict[str, Any] = {"dtype": torch.float64}
KINDS = ["roa", "rnn", "gru", "lstm", "projected"]


def layer(kind: str, **kwargs: Any) -> nn.Module:
    torch.manual_seed(0)
    made = {"roa": RoaRNN, "rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM, "projected": nn.LSTM}
    own = {"roa": {"alpha": 0.3}, "projected": {"proj_size": 2}}
    return made[kind](I, N, **own.get(kind, {}), **DOUBLE, **kwargs)


def by_cell(model: nn.Module, cell: nn.Module, u: Tensor, loss: Any) -> Tensor:
    """‖∂ℓ/∂x_k‖ with torch's own cell: a third way. The state of an LSTM is x = (h, c)."""
    cell.load_state_dict({k.removesuffix("_l0"): v for k, v in model.state_dict().items()})
    lstm = isinstance(cell, nn.LSTMCell)
    path = [torch.zeros(B, 2 * N if lstm else N, **DOUBLE, requires_grad=True)]
    for u_k in u:
        x = path[-1]
        path.append(torch.cat(cell(u_k, x.chunk(2, -1)), -1) if lstm else cell(u_k, x))
    output = torch.stack([x[:, :N] for x in path[1:]])
    return torch.stack([g.norm() for g in torch.autograd.grad(loss(output), path)])


def test_the_total_gradient_by_torchs_own_cells() -> None:
    u, target = normal(T, B, I), normal(T, B, N, seed=1)

    def loss(output: Tensor) -> Tensor:
        return (output - target).square().mean()

    pairs = [
        ("rnn", nn.RNNCell(I, N, **DOUBLE)),
        ("gru", nn.GRUCell(I, N, **DOUBLE)),
        ("lstm", nn.LSTMCell(I, N, **DOUBLE)),
    ]
    for kind, cell in pairs:
        model = layer(kind)
        expected = by_cell(model, cell, u, loss)
        torch.testing.assert_close(
            gradient_along_time(model, u, loss), expected, rtol=1e-11, atol=0
        )


@theorem
@given(recurrent())
def test_it_is_the_transposed_jacobian_applied_to_the_error(drawn: Drawn) -> None:
    """R_s(E) = (∂x_L/∂x_s)^T E: Section III.A of the paper."""
    E = normal(drawn.rnn.hidden_size, seed=9)
    norms = gradient_along_time(drawn.rnn, drawn.inputs, lambda out: out[-1] @ E, drawn.h0)
    for s in range(len(drawn.inputs) + 1):
        J = end_to_end_jacobian(drawn.rnn, drawn.inputs, drawn.h0, start=s)
        assert float(norms[s]) == pytest.approx(float((J.T @ E).norm()), rel=1e-10, abs=1e-14)


def test_depth_as_time() -> None:
    net = RoaFNN([3, 4, 4, 4, 2], rho=1.0, generator=seeded(0), **DOUBLE)
    x = normal(B, 3)
    norms = gradient_along_time(net, x, lambda y: y.square().sum())
    g = 2 * net(x).detach()
    for s in range(5):
        J = end_to_end_jacobian(net, x, start=s)
        assert float(norms[s]) == pytest.approx(float((J.mT @ g[..., None]).norm()), rel=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"num_layers": 2},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
    ],
    ids=["one", "two", "both ways"],
)
def test_the_watcher_sees_what_stepping_finds(kind: str, shape: dict[str, Any]) -> None:
    model = layer(kind, **shape)
    u = normal(B, T, I) if shape.get("batch_first") else normal(T, B, I)
    expected = gradient_along_time(model, u, lambda out: out.square().sum())
    with GradientWatcher(model) as watch:
        model(u)[0].square().sum().backward()
    assert len(watch.states[""]) == 1
    torch.testing.assert_close(watch.states[""][0], expected, rtol=1e-11, atol=1e-15)
    recurrences = shape.get("num_layers", 1) * (2 if shape.get("bidirectional") else 1)
    assert expected.shape == ((recurrences, T + 1) if recurrences > 1 else (T + 1,))


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_of_the_last_state(kind: str) -> None:
    """Through h_n (and c_n): from the last x_T backwards, as x_T itself receives it."""
    model, u = layer(kind), normal(T, B, I)
    with GradientWatcher(model) as watch:
        last = model(u)[1]
        flat = torch.cat(last, -1) if isinstance(last, tuple) else last
        flat.square().sum().backward()
    J = end_to_end_jacobian(model, u, start=2)
    g = 2 * flat[0].detach()
    expected = float((J.mT @ g[..., None]).norm())
    assert float(watch.states[""][0][2]) == pytest.approx(expected, rel=1e-11)
    assert float(watch.states[""][0][-1]) == pytest.approx(float(g.norm()), rel=1e-12)


def test_no_state_array_is_needed() -> None:
    model, u = layer("roa"), normal(T, B, I)
    with GradientWatcher(model) as watch:
        model(u, last_only=True)[1].square().sum().backward()
    expected = gradient_along_time(model, u, lambda out: out[-1].square().sum())
    torch.testing.assert_close(watch.states[""][0], expected, rtol=1e-11, atol=0)


class Classifier(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rnn = layer(kind)
        self.net = RoaFNN([4] * 4 + [2], generator=seeded(1), **DOUBLE)

    def forward(self, u: Tensor, h0: Tensor | None = None) -> Tensor:
        return self.net(self.rnn(u, h0)[0][-1])


def train(watched: bool, kind: str) -> tuple[list[Tensor], GradientWatcher]:
    model = Classifier(kind)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.1)
    watch = GradientWatcher(model)
    if watched:
        watch.__enter__()
    for step in range(3):
        optimiser.zero_grad()
        model(normal(T, B, I, seed=step)).square().mean().backward()
        optimiser.step()
    watch.__exit__(None, None, None)
    kept = [p.grad for p in model.parameters() if p.grad is not None]
    return [*kept, *(p.detach() for p in model.parameters())], watch


@pytest.mark.parametrize("kind", ["roa", "lstm"])
def test_watching_changes_nothing(kind: str) -> None:
    plain, _ = train(False, kind)
    seen, watch = train(True, kind)
    assert len(plain) == len(seen)
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    assert [len(watch.states[name]) for name in ("rnn", "net")] == [3, 3]
    assert watch.states["net"][0].shape == (5,)
    # What leaves the network in depth is what enters the recurrent layer at its last step.
    torch.testing.assert_close(
        watch.states["net"][2][0], watch.states["rnn"][2][-1], rtol=1e-12, atol=0
    )


def test_parameters_by_layer() -> None:
    _, watch = train(True, "roa")
    model = Classifier("roa")
    model(normal(T, B, I, seed=0)).square().mean().backward()
    assert list(watch.parameters) == [name for name, _ in model.named_parameters()]
    for name, p in model.named_parameters():
        assert p.grad is not None
        seen = watch.parameters[name][0]
        if name.startswith("net."):  # stacked: one norm for each layer
            expected = torch.stack([g.norm() for g in p.grad])
        else:
            expected = p.grad.norm()
        torch.testing.assert_close(seen, expected, rtol=1e-14, atol=0)


def test_the_block_ends() -> None:
    model = Classifier("roa")
    with GradientWatcher(model) as watch:
        loss = model(normal(T, B, I)).sum()
    loss.backward()
    model(normal(T, B, I)).sum().backward()
    assert watch.states == {}
    assert all(norms == [] for norms in watch.parameters.values())
    assert not any(m._forward_hooks for m in model.modules())
    with pytest.raises(KeyError, match="mine"), GradientWatcher(model):
        raise KeyError("mine")
    assert not any(m._forward_hooks for m in model.modules())


def test_frozen_and_unused() -> None:
    model = Classifier("roa")
    model.rnn.requires_grad_(False)
    with GradientWatcher(model) as watch, torch.no_grad():
        model(normal(T, B, I))
    assert watch.states == {}
    assert not any(name.startswith("rnn.") for name in watch.parameters)
    with GradientWatcher(model) as watch:
        model(normal(T, B, I), torch.zeros(1, B, N, **DOUBLE)).sum().backward()
    assert list(watch.states) == ["net"]


def test_single_maps_and_the_initial_state() -> None:
    stack = nn.Sequential(RoaLayer(3, 3, alpha=0.0, **DOUBLE), RoaLayer(3, 3, alpha=0.0, **DOUBLE))
    with GradientWatcher(stack) as watch:
        stack(normal(5, 3).requires_grad_()).square().sum().backward()
    ends = torch.cat([watch.states[name][0] for name in ("0", "1")])
    torch.testing.assert_close(ends, ends[0].expand(4), rtol=1e-12, atol=0)  # two isometries
    model, h0 = layer("roa"), normal(1, B, N, seed=7).requires_grad_()
    with GradientWatcher(model) as watch:
        model(normal(T, B, I), h0)[0][-1].sum().backward()
    assert h0.grad is not None
    assert float(watch.states[""][0][0]) == pytest.approx(float(h0.grad.norm()), rel=1e-12)


def test_what_is_thrown_away_does_not_matter_to_time() -> None:
    """The gradient before a step that forgets is zero: x_k is unused after it."""

    class Forgetful:
        state_size = 2

        def step(self, x: Tensor, u: Tensor) -> Tensor:
            return torch.where(u > 0, u.expand_as(x), x + u)

    u = torch.tensor([0.0, 0.0, 1.0, 0.0]).unsqueeze(-1)
    norms = gradient_along_time(Forgetful(), u, lambda x: x[-1].sum())
    assert norms.tolist() == pytest.approx([0.0, 0.0, 0.0, 2**0.5, 2**0.5])
    assert len(trajectory(Forgetful(), u)) == 4


def test_errors_say_what_to_do() -> None:
    u = normal(T, B, I)
    with pytest.raises(TypeError, match=r"model: expected a torch.nn.Module"):
        GradientWatcher(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="loss: expected a scalar tensor"):
        gradient_along_time(layer("roa"), u, lambda out: out)
    with pytest.raises(ValueError, match="loss: expected a scalar tensor"):
        gradient_along_time(layer("roa"), u, lambda out: torch.ones(()))
    model = layer("gru", num_layers=2, dropout=0.5)
    with (
        pytest.raises(ValueError, match="dropout: expected 0 while watched"),
        GradientWatcher(model),
    ):
        model(u)
    with GradientWatcher(model.eval()) as watch:
        model(u)[0].sum().backward()
    assert watch.states[""][0].shape == (2, T + 1)
    packed = pack_sequence([normal(3, I), normal(2, I)])
    with pytest.raises(ValueError, match="pad the batch"), GradientWatcher(layer("roa")) as watch:
        watch.model(packed)
