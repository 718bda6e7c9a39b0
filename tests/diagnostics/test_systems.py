"""Systems from outside the package are diagnosed as ours are, once they tell their maps."""

from __future__ import annotations

import pytest
import torch
from drawn_models import seeded
from torch import Tensor, nn

from roann import RoaEuler, RoaFlow, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell, certify
from roann.diagnostics import (
    bounds_of,
    smallest_log_singular_value,
    step_jacobian,
    trajectory,
)
from roann.diagnostics.systems import recurrence
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import Gather
from roann.nn.maps import HasRoaMaps, RoaMaps, Scan

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

DOUBLE = torch.float64


def normal(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=DOUBLE)


class Shifted(nn.Module):
    """A recurrent layer of somebody else's: the cyclic shift and tanh, no bias, batch first."""

    def __init__(self, W: Tensor, W_i: Tensor, alpha: float) -> None:
        super().__init__()
        self.W, self.W_i, self.alpha = nn.Parameter(W), nn.Parameter(W_i), alpha

    def roa_maps(self) -> RoaMaps:
        index = torch.arange(len(self.W)).roll(1)
        O = Gather(index, index.argsort())
        scan = Scan(self.W, O, self.alpha, ACTIVATIONS["tanh"], None, self.W_i)
        return RoaMaps((scan,), batch_first=True)


def test_a_layer_from_outside_over_time() -> None:
    rnn = RoaRNN(
        2, 4, nonlinearity="tanh", bias=False, alpha=0.05, filter="cycle", gain=1.0,
        max_norm=None, dtype=DOUBLE, generator=seeded(0),
    )  # fmt: skip
    theirs = Shifted(rnn.weight_hh_l0.detach(), rnn.weight_ih_l0.detach(), 0.05)
    u = normal(9, 3, 2)
    ours, found = certify(rnn, u), certify(theirs, u.transpose(0, 1))
    assert found.model == "Shifted"
    assert found.bounds == ours.bounds
    assert found.inside
    assert torch.equal(found.log_singular_values, ours.log_singular_values)
    x = normal(4)
    assert torch.equal(step_jacobian(theirs, x, u[0, 0]), step_jacobian(rnn, x, u[0, 0]))


class Halves:
    """A network of somebody else's in depth: two runs, from 3 to 3 to 2 neurons, and no module."""

    def __init__(self, net: RoaFNN) -> None:
        self.net = net

    def roa_maps(self) -> RoaMaps:
        maps = self.net.roa_maps()
        first, second = maps.scans
        return RoaMaps((first, second))


@pytest.mark.parametrize("rows", [False, True])
def test_a_network_from_outside_in_depth(rows: bool) -> None:
    alpha = torch.tensor([[0.1], [0.2], [0.05]], dtype=DOUBLE) if rows else 0.1
    net = RoaFNN([3, 3, 3, 2], alpha=alpha, dtype=DOUBLE, generator=seeded(0))
    theirs, x = Halves(net), normal(5, 3)
    assert bounds_of(theirs) == bounds_of(net)
    assert torch.equal(trajectory(theirs, x).states[-1], trajectory(net, x).states[-1])
    torch.testing.assert_close(trajectory(theirs, x).states[-1], net(x), rtol=1e-13, atol=1e-14)
    assert torch.equal(certify(theirs, x).log_singular_values, certify(net, x).log_singular_values)


LAYERS = {
    "rnn": lambda **kw: RoaRNN(2, 4, 2, bidirectional=True, **kw),
    "cell": lambda **kw: RoaRNNCell(2, 4, **kw),
    "fnn": lambda **kw: RoaFNN([2, 4, 4], **kw),
    "layer": lambda **kw: RoaLayer(2, 4, **kw),
    "ode": lambda **kw: RoaODE(2, 4, **kw),
    "euler": lambda **kw: RoaEuler(2, 4, **kw),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("bias", [False, True])
def test_every_layer_tells_the_maps_it_computes(kind: str, bias: bool) -> None:
    layer = LAYERS[kind](alpha=0.1, bias=bias, dtype=DOUBLE, generator=seeded(0))
    assert isinstance(layer, HasRoaMaps)
    maps = layer.roa_maps()
    assert all((scan.b is not None) == bias for scan in maps.scans)
    if maps.recurrent:
        u, x = normal(1, 3, 2), normal(3, 4, seed=2)
        found = recurrence(layer).cells[0].maps(u)[0](x)
        torch.testing.assert_close(found, layer.step(x, u[0]), rtol=1e-13, atol=1e-14)
    else:
        x = normal(3, 2)
        found = trajectory(layer, x).states[-1]
        torch.testing.assert_close(found, layer(x), rtol=1e-13, atol=1e-14)


def test_a_solver_has_no_maps_and_is_measured() -> None:
    flow = RoaFlow(2, 4, alpha=0.1, method="rk4", dtype=DOUBLE, generator=seeded(0))
    assert flow.roa_maps() is None
    assert bounds_of(flow, 5) is None
    assert len(trajectory(flow, normal(5, 2))) == 5


@pytest.mark.parametrize("reading", ["isometric", "euler"])
@pytest.mark.parametrize("method", ["dopri5", "rk4"])
@pytest.mark.parametrize("lead", [(), (3,)])
def test_the_jacobian_of_a_solver_is_that_of_its_steps(
    reading: str, method: str, lead: tuple[int, ...]
) -> None:
    flow = RoaFlow(
        2, 4, alpha=0.1, reading=reading, method=method, nonlinearity="tanh", tolerance=1e-9,
        dtype=DOUBLE, generator=seeded(0),
    )  # fmt: skip
    u = normal(4, *lead, 2)
    path = trajectory(flow, u)
    J, x, h = path.jacobian(2), path.states[2], 1e-3
    columns = [
        (flow.step(x + h * e, u[2]) - flow.step(x - h * e, u[2])) / (2 * h)
        for e in torch.eye(4, dtype=DOUBLE)
    ]
    expected = torch.stack(columns, -1).detach()
    torch.testing.assert_close(J.to_dense(), expected, rtol=1e-4, atol=1e-6)
    v = normal(*lead, 4, seed=3)
    along = (expected @ v.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(J.matvec(v), along, rtol=1e-4, atol=1e-6)
    back = (expected.mT @ v.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(J.matvec_transpose(v), back, rtol=1e-4, atol=1e-6)
    if lead:
        torch.testing.assert_close(J.row((1,)).to_dense(), expected[1], rtol=1e-4, atol=1e-6)
    every, few = (certify(flow, u, spectrum=spectrum) for spectrum in ("all", "extremes"))
    assert every.verdict.startswith("No theorem covers RoaFlow; this is a measurement. Measured [")
    ends = every.log_singular_values[..., [0, -1]]
    torch.testing.assert_close(few.log_singular_values, ends, rtol=1e-5, atol=1e-7)
    if not lead:
        smallest = smallest_log_singular_value(path)
        assert smallest == pytest.approx(float(ends[-1]), rel=1e-5)
    with torch.inference_mode():
        there = certify(flow, u.clone()).log_singular_values
    torch.testing.assert_close(there, every.log_singular_values)


class _Around(torch.nn.Module):
    """A module around a solver, or one that forgets its state at once."""

    transformable, state_size = False, 4

    def __init__(self, flow: RoaFlow, forgets: bool) -> None:
        super().__init__()
        self.flow, self.forgets = flow, forgets

    def step(self, x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        found = self.flow.step(torch.zeros_like(x) if self.forgets else x, u)
        return found.detach() if self.forgets else found


@pytest.mark.parametrize("forgets", [False, True])
def test_a_module_may_say_that_transforms_cannot_follow_it(forgets: bool) -> None:
    flow = RoaFlow(2, 4, alpha=0.1, method="rk4", dtype=DOUBLE, generator=seeded(0))
    u, v = normal(5, 3, 2), normal(3, 4, seed=1)
    J = trajectory(_Around(flow, forgets), u).jacobian(2)
    inner = trajectory(flow, u).jacobian(2)
    factor = 0.0 if forgets else 1.0
    torch.testing.assert_close(J.to_dense(), factor * inner.to_dense())
    torch.testing.assert_close(J.matvec(v), factor * inner.matvec(v))
    torch.testing.assert_close(J.matvec_transpose(v), factor * inner.matvec_transpose(v))


@pytest.mark.parametrize("cls", [RoaEuler, RoaODE])
def test_a_certificate_in_continuous_time_is_about_intervals_of_dt(cls: type) -> None:
    layer = cls(2, 8, alpha=0.01, max_norm=1.0, dtype=DOUBLE, generator=seeded(0))
    words = certify(layer, normal(50, 2)).verdict
    assert "for any input at intervals of dt, before, during and after training" in words


def test_a_layer_in_continuous_time_may_be_batch_first() -> None:
    kw = {"alpha": 0.1, "dtype": DOUBLE}
    first = RoaODE(2, 4, batch_first=True, generator=seeded(0), **kw)
    u = normal(3, 7, 2)
    path = trajectory(first, u)
    assert len(path) == 7
    torch.testing.assert_close(path.states[-1], first(u)[1][0], rtol=1e-12, atol=1e-13)


def test_a_recurrence_that_is_not_there_is_refused() -> None:
    rnn = RoaRNN(2, 4, 2, alpha=0.1)
    with pytest.raises(ValueError, match="layer: expected an index below 2, got 2"):
        bounds_of(rnn, 5, layer=2)
