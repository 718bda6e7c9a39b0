"""Deep and narrow networks: the sweep itself sums the gradients of its layers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import FORMS, gradients_for, make, plain

from roann import RoaFNN
from roann.kernels import native
from roann.kernels.activations import ACTIVATIONS

pytestmark = pytest.mark.skipif(
    not native.available(), reason=f"the native kernel: {native.why_not()}"
)
LANES = 16  # at most: batches below fill groups of rows in part, wholly, and more than once


def summed(p, given_):
    """The adjoint by a sweep that is given the states before each step."""
    states, trace = native.forward(p, True)
    before = p.before(states)
    return before[:2], native.backward(p, trace, states, *given_, before)


@settings(max_examples=150, deadline=None)
@given(
    T=st.integers(1, 6),
    B=st.integers(LANES // 4, 3 * LANES),
    N=st.integers(1, 4),
    phi=st.sampled_from(sorted(ACTIVATIONS)),
    form=st.sampled_from(FORMS),
    bias=st.booleans(),
    how=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 5),
            "top": st.sampled_from((0.5, 1.5)),
            "learned": st.booleans(),
        }
    ),
)
def test_gradients_of_every_layer_equal_the_products(T, B, N, phi, form, bias, how):
    p = make(T, B, N, 0, phi, form, "both", deep=True, deep_O=True, bias=bias, **how)
    given_ = gradients_for(p)
    (first, others), found = summed(p, given_)
    if found.a is not None:  # a batch that fills the lanes less than the units do
        assert found.W is None
        return
    _, a, lam, moved = plain(p, *given_)
    x = torch.cat([first.unsqueeze(0), others])
    torch.testing.assert_close(found.W, a.mT @ x)
    torch.testing.assert_close(found.b, a.sum(1))
    torch.testing.assert_close(found.first, lam)
    assert (found.moved is not None) == how["learned"]
    if found.moved is not None:
        torch.testing.assert_close(found.moved, moved)


def test_the_paper_s_width_is_summed_within_the_sweep():
    p = make(5, 100, 2, 0, deep=True, deep_O=True, dtype=torch.float32)
    found = summed(p, gradients_for(p))[1]
    assert found.a is None
    assert found.W.shape == (5, 2, 2)
    assert found.b.shape == (5, 2)


def test_bits_do_not_depend_on_threads_or_cuts(monkeypatch):
    p = make(900, 100, 2, 0, deep=True, deep_O=True, dtype=torch.float32)
    given_ = gradients_for(p)
    threads, found = torch.get_num_threads(), []
    for n, cut in ((1, 1e12), (2, 1e12), (5, 1e12), (2, 1e6)):
        monkeypatch.setattr(native, "FIRST_CALL", cut)
        monkeypatch.setattr(native, "CALL_SECONDS", 1e-4 if cut < 1e12 else 1e3)
        torch.set_num_threads(n)
        try:
            found.append(summed(p, given_)[1])
        finally:
            torch.set_num_threads(threads)
    for other in found[1:]:
        assert torch.equal(found[0].W, other.W)
        assert torch.equal(found[0].b, other.b)


@pytest.mark.parametrize("memory", ["store", "checkpoint", "reversible"])
def test_in_every_memory_mode(memory):
    """A network of the paper's kind, by the native kernel and by the reference loop."""
    grads = {}
    for backend in ("reference", "native"):
        rng = torch.Generator().manual_seed(3)
        how = {"backend": backend, "memory": memory, "dtype": torch.float64}
        net = RoaFNN([2] * 41, rho=1.0, generator=rng, **how)
        x = torch.randn(50, 2, generator=rng, dtype=torch.float64)
        net(x).square().sum().backward()
        grads[backend] = [p.grad for p in net.parameters()]
    for got, want in zip(grads["native"], grads["reference"], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-12)
