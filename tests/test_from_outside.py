"""A filter, a form and a kernel from outside the package: one class and one row in a table each."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch

import roann
from roann import RoaFNN, RoaRNN, certify, filters
from roann.filters import FILTERS, Filter
from roann.functional import roa_scan
from roann.kernels import fused, operator
from roann.kernels.linear import FORMS, Dense, Linear

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


@dataclass(eq=False)
class Flips(Linear):
    """A form: x reversed, times signs, entry by entry."""

    name = "flips"
    signs: torch.Tensor

    @property
    def stacked(self):
        return self.signs.dim() == 2

    def _beside(self, x):
        return (
            self.signs.reshape(-1, *(1,) * (x.dim() - 2), x.shape[-1])
            if self.stacked
            else self.signs
        )

    def matvec(self, x):
        CALLS.append("matvec")
        return self._beside(x) * x.flip(-1)

    def matvec_transpose(self, x):
        return (self._beside(x) * x).flip(-1)

    def to_dense(self):
        return torch.diag_embed(self.signs).flip(-1)


class Mirror(Filter):
    """A filter in that form: random signs."""

    name = "mirror"

    def _draw(self, source):
        signs = source.uniform(*self._lead(), self.larger)
        return {"signs": torch.where(signs < 0.5, -1.0, 1.0).to(signs.dtype)}

    def _check(self, buffers):
        if not bool((buffers["signs"].abs() == 1).all()):
            raise ValueError("signs: expected 1 and −1")

    def _core(self):
        return Flips(self._held("signs"))


CALLS = []


@pytest.fixture
def tables(monkeypatch):
    CALLS.clear()
    monkeypatch.setitem(FILTERS, "mirror", Mirror)
    monkeypatch.setitem(FORMS, "flips", Flips)


def rnn(**kw):
    kw = {"filter": "mirror", "alpha": 0.05, "dtype": f64, "generator": gen()} | kw
    return RoaRNN(2, 5, nonlinearity="tanh", **kw)


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("memory", ["store", "checkpoint", "reversible"])
def test_a_filter_and_its_form(memory):
    """The kernels multiply by its form, and give what its matrix gives."""
    model, u = rnn(memory=memory), torch.randn(7, 3, 2, generator=gen(1), dtype=f64)
    assert type(model.filter_l0.form()) is Flips
    same = rnn(filter=model.filter_l0.to_dense(), memory=memory)
    output, _ = model(u)
    assert CALLS
    torch.testing.assert_close(output, same(u)[0], rtol=1e-13, atol=1e-14)
    grads = [torch.autograd.grad(m(u)[0].sin().sum(), list(m.parameters())) for m in (model, same)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-13)
    O = model.filter_l0.to_dense()
    torch.testing.assert_close(O @ O.T, torch.eye(5, dtype=f64), rtol=0, atol=0)


@pytest.mark.usefixtures("tables")
def test_a_filter_from_outside_is_saved_stacked_rectangular_and_certified(tmp_path):
    model, u = rnn(), torch.randn(7, 2, generator=gen(1), dtype=f64)
    roann.save(model, tmp_path / "model.safetensors")
    assert torch.equal(roann.load(tmp_path / "model.safetensors")(u)[0], model(u)[0])
    assert certify(model, u).inside
    assert type(filters.make("mirror", 3, 5).form()) is Dense
    net = RoaFNN([3, 5, 5, 5], filter="mirror", alpha=0.05, dtype=f64, generator=gen())
    assert type(net.filter_1.form()) is Flips
    x = torch.randn(4, 3, generator=gen(2), dtype=f64)
    by_hand = x
    for i, run in enumerate(net.runs):
        for k in range(run.depth):
            W, b = net.get_parameter(f"weight_{i}")[k], net.get_parameter(f"bias_{i}")[k]
            O = net.get_submodule(f"filter_{i}").to_dense()[k]
            by_hand = 0.05 * torch.tanh(by_hand @ W.T + b) + 0.95 * by_hand @ O.T
    torch.testing.assert_close(net(x), by_hand, rtol=1e-13, atol=1e-14)


def test_without_its_row_a_form_is_handed_over_as_a_matrix(monkeypatch):
    monkeypatch.setitem(FILTERS, "mirror", Mirror)
    assert type(rnn().filter_l0.form()) is Dense


def outside(most):
    """A kernel: the fused one, for at most `most` steps, which writes down what it is asked."""
    asked = []

    def forward(p, keep):
        asked.append(("forward", p.steps))
        return fused.forward(p, keep)

    def backward(p, *rest):
        asked.append(("backward", p.steps))
        return fused.backward(p, *rest)

    names = ("trace_room", "inverse", "add_outer")
    shared = {name: getattr(fused, name) for name in names}
    supports = {"supports": lambda p: p.steps <= most}
    return SimpleNamespace(forward=forward, backward=backward, **supports, **shared), asked


def test_a_kernel(monkeypatch):
    kernel, asked = outside(most=10)
    with pytest.raises(ValueError, match=r"backend: expected one of .*, got 'theirs'"):
        rnn(filter="qr", backend="theirs")
    monkeypatch.setitem(operator.KERNELS, "theirs", kernel)
    u = torch.randn(7, 3, 2, generator=gen(1), dtype=f64)
    found, wanted = rnn(filter="qr", backend="theirs"), rnn(filter="qr", backend="fused")
    output, _ = found(u)
    assert torch.equal(output, wanted(u)[0])
    grads = [
        torch.autograd.grad(m(u)[0].sin().sum(), list(m.parameters())) for m in (found, wanted)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))
    assert asked == [("forward", 7), ("forward", 7), ("backward", 7)]
    W, O = torch.eye(5), torch.eye(5)
    with pytest.raises(RuntimeError, match="backend: expected a kernel that can do this scan"):
        roa_scan(torch.ones(1, 5), W, O, 0.1, steps=11, backend="theirs")


def test_auto_takes_the_first_kernel_that_can(monkeypatch):
    kernel, asked = outside(most=10)
    monkeypatch.setattr(operator, "KERNELS", {"theirs": kernel, **operator.KERNELS})
    x0, W = torch.ones(1, 5), torch.eye(5)
    for steps in (10, 11):
        roa_scan(x0, W, torch.eye(5), 0.1, steps=steps)
    assert asked == [("forward", 10)]
