"""The scan beyond the product: depth, raggedness, derivatives of derivatives, transforms."""

import itertools
import warnings

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from roann import filters
from roann.functional import roa_scan, roa_step
from roann.kernels import fused, native, reference
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.memory import MEMORIES, DriftWarning
from roann.kernels.problem import Problem

f64 = torch.float64
FAST = ["fused", "native"] if native.available() else ["fused"]
# Some cases have no contraction: the reversible mode says so, rightly.
pytestmark = pytest.mark.filterwarnings("ignore::roann.kernels.memory.DriftWarning")


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(g, *shape, grad=True):
    return torch.randn(*shape, generator=g, dtype=f64).requires_grad_(grad)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("backend", ["reference", *FAST])
@pytest.mark.parametrize("phi", ACTIVATIONS)
def test_gradcheck(backend, memory, phi):
    g = gen(1)
    O = filters.QR(3, generator=g, dtype=f64)
    leaves = [normal(g, 2, 3), normal(g, 4, 2, 2), normal(g, 3, 3), normal(g, 3, 2), normal(g, 3)]
    alpha = torch.tensor([0.1, 0.2, 0.15], dtype=f64, requires_grad=True)

    def f(x0, u, W, W_i, b, alpha):
        return roa_scan(
            x0, W, O, alpha, u=u, W_i=W_i, b=b, nonlinearity=phi, backend=backend, memory=memory
        )

    assert gradcheck(f, (*leaves, alpha))


@pytest.mark.parametrize("backend", ["auto", *FAST])
def test_gradgradcheck(backend):
    g = gen(2)
    O = filters.QR(2, generator=g, dtype=f64)
    leaves = (normal(g, 1, 2), normal(g, 3, 1, 2), normal(g, 2, 2), normal(g, 2, 2), normal(g, 2))

    def f(x0, u, W, W_i, b):
        return roa_scan(x0, W, O, 0.2, u=u, W_i=W_i, b=b, nonlinearity="tanh", backend=backend)

    assert gradgradcheck(f, leaves)


@pytest.mark.parametrize("name", filters.FILTERS)
@pytest.mark.parametrize("recycled", [False, True])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("backend", FAST)
def test_depth(name, recycled, memory, backend):
    """Per-step W, b, α and O: a feed-forward network."""
    T, B, N = 13, 4, 3
    g = gen(3)
    O = filters.make(name, N, depth=None if recycled else T, generator=g, dtype=f64)
    alpha = (torch.rand(T, N, generator=g, dtype=f64) / T).requires_grad_()
    leaves = (normal(g, B, N), normal(g, T, N, N), normal(g, T, N), alpha)

    def run(backend, memory="store"):
        states, last = roa_scan(
            leaves[0], leaves[1], O, alpha, b=leaves[2], nonlinearity="tanh",
            backend=backend, memory=memory,
        )  # fmt: skip
        loss = (states.sin() * torch.arange(1, T + 1).reshape(T, 1, 1)).sum() + last.sum()
        return states, torch.autograd.grad(loss, leaves)

    states, grads = run(backend, memory)
    truth, exact = run("reference")
    torch.testing.assert_close(states, truth, rtol=1e-13, atol=1e-13)
    for a, b in zip(grads, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("sizes", [(3, 3, 2, 1, 1), (4, 1, 1, 1, 1), (2, 2, 2, 2, 2)])
def test_ragged(memory, backend, deep, sizes):
    """Packed rows; those that have ended, or never move, keep their state and its gradient."""
    g = gen(4)
    B, N, S = sizes[0] + 1, 4, sum(sizes)
    T = (5,) if deep else ()
    O = filters.Rotations(N, generator=g, dtype=f64, depth=5 if deep else None)
    leaves = (
        normal(g, B, N),
        normal(g, S, 2),
        normal(g, *T, N, N),
        normal(g, N, 2),
        normal(g, *T, N),
    )
    alpha = torch.full((*T, N) if deep else (), 0.1, dtype=f64).requires_grad_()
    weights = torch.arange(1, S + 1).unsqueeze(1)

    def run(backend, memory="store"):
        x0, u, W, W_i, b = leaves
        states, last = roa_scan(
            x0, W, O, alpha, u=u, W_i=W_i, b=b, backend=backend, memory=memory, batch_sizes=sizes
        )
        loss = (states.cos() * weights).sum() + last.square().sum()
        return states, last, torch.autograd.grad(loss, (*leaves, alpha))

    states, last, grads = run(backend, memory)
    truth, end, exact = run("reference")
    torch.testing.assert_close(states, truth, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(last, end, rtol=1e-13, atol=1e-13)
    for a, b in zip(grads, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert torch.equal(last[-1], leaves[0][-1])  # it never moved


@pytest.mark.parametrize("backend", ["reference", *FAST])
def test_a_packed_row_is_the_row_alone(backend):
    """What others in the batch do, and when they end, is nothing to a row."""
    g, sizes = gen(4), (3, 3, 2, 1, 1)
    x0, W, W_i, u = normal(g, 3, 4), normal(g, 4, 4), normal(g, 4, 2), normal(g, sum(sizes), 2)
    O = filters.Haar(4, generator=g, dtype=f64)
    packed = PackedSequence(u.detach(), torch.tensor(sizes))
    with torch.no_grad():
        states, last = roa_scan(x0, W, O, 0.1, u=u, W_i=W_i, batch_sizes=sizes, backend=backend)
        padded, lengths = pad_packed_sequence(PackedSequence(states, packed.batch_sizes))
        inputs, _ = pad_packed_sequence(packed)
        for r, length in enumerate(lengths.tolist()):
            alone, end = roa_scan(
                x0[r : r + 1], W, O, 0.1, u=inputs[:length, r : r + 1], W_i=W_i, backend="reference"
            )
            torch.testing.assert_close(padded[:length, r], alone[:, 0], rtol=1e-13, atol=1e-13)
            torch.testing.assert_close(last[r], end[0], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("sizes", "rows", "word"),
    [((2, 3), 5, "batch_sizes"), ((3, 0), 3, "batch_sizes"), ((4, 1), 5, "batch_sizes"),
     ((), 0, "batch_sizes"), ((3, 2), 4, "u: expected")],
)  # fmt: skip
def test_what_is_no_packed_batch_is_refused(sizes, rows, word):
    x0, eye = torch.zeros(3, 2), torch.eye(2)
    with pytest.raises(ValueError, match=word):
        roa_scan(
            x0, eye, eye, 0.1, u=torch.zeros(rows, 1), W_i=torch.zeros(2, 1), batch_sizes=sizes
        )


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("backend", FAST)
def test_backward_twice(memory, backend):
    """A retained graph gives the same gradients again, though sweeps work in place."""
    g = gen(5)
    x0, W = normal(g, 2, 3), normal(g, 3, 3)
    O = filters.Haar(3, generator=g, dtype=f64)
    states, last = roa_scan(
        x0, W, O, 0.1, steps=6, nonlinearity="tanh", backend=backend, memory=memory
    )
    loss = states.square().sum() + last.sum()
    first = torch.autograd.grad(loss, (x0, W), retain_graph=True)
    second = torch.autograd.grad(loss, (x0, W))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_only_what_is_wanted():
    """A gradient is computed for exactly the tensors that require one."""
    g = gen(6)
    x0, W, b = normal(g, 2, 3, grad=False), normal(g, 3, 3), normal(g, 3, grad=False)
    _, last = roa_scan(x0, W, filters.Haar(3, generator=g, dtype=f64), 0.1, b=b, steps=4)
    last.sum().backward()
    assert W.grad is not None
    assert b.grad is None
    assert x0.grad is None


def test_last_only_equals_last_state():
    g = gen(7)
    x0, W = normal(g, 2, 3), normal(g, 3, 3)
    O = filters.Haar(3, generator=g, dtype=f64)
    for memory, grad in itertools.product(MEMORIES, (True, False)):
        with torch.set_grad_enabled(grad):
            states, _ = roa_scan(x0, W, O, 0.1, steps=9, memory=memory)
            nothing, last = roa_scan(x0, W, O, 0.1, steps=9, memory=memory, last_only=True)
        assert nothing is None
        assert bool((states[-1] == last).all())


def test_functional_transforms_and_forward_mode():
    """Through `auto`, torch.func and dual numbers agree with the loop's own derivatives."""
    g = gen(8)
    x0, W = normal(g, 3, grad=False), normal(g, 3, 3, grad=False)
    O = filters.Haar(3, generator=g, dtype=f64)

    def end(x, backend="auto"):
        return roa_scan(x[None], W, O, 0.2, steps=5, nonlinearity="tanh", backend=backend)[1][0]

    J = torch.autograd.functional.jacobian(lambda x: end(x, "reference"), x0)
    torch.testing.assert_close(torch.func.jacrev(end)(x0), J, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(torch.func.jacfwd(end)(x0), J, rtol=1e-13, atol=1e-14)
    many = normal(g, 4, 3, grad=False)
    each = torch.stack([end(x) for x in many])
    torch.testing.assert_close(torch.vmap(end)(many), each, rtol=1e-13, atol=1e-14)
    H = torch.func.hessian(lambda x: end(x).sum())(x0)
    torch.testing.assert_close(H, H.T, rtol=1e-12, atol=1e-13)
    v = normal(g, 3, grad=False)
    with torch.autograd.forward_ad.dual_level():
        out = end(torch.autograd.forward_ad.make_dual(x0, v))
        tangent = torch.autograd.forward_ad.unpack_dual(out).tangent
    torch.testing.assert_close(tangent, J @ v, rtol=1e-13, atol=1e-14)


def test_transforms_refuse_a_forced_kernel():
    O = torch.eye(2)
    with pytest.raises(RuntimeError, match="backend: expected 'auto' or 'reference'"):
        torch.func.jacrev(
            lambda x: roa_scan(x[None], torch.eye(2), O, 0.5, steps=2, backend="fused")[1]
        )(torch.ones(2))


def test_a_learned_filter_takes_the_loop():
    O = torch.eye(2, dtype=f64, requires_grad=True)
    _, last = roa_scan(torch.ones(1, 2, dtype=f64), torch.eye(2, dtype=f64), O, 0.5, steps=1)
    last.sum().backward()
    torch.testing.assert_close(O.grad, torch.full((2, 2), 0.5, dtype=f64))


def test_step_is_the_scan_of_one():
    g = gen(9)
    x, u, W, W_i, b = (
        normal(g, 4, 3), normal(g, 4, 2), normal(g, 3, 3), normal(g, 3, 2), normal(g, 3)
    )  # fmt: skip
    O = filters.QR(3, generator=g, dtype=f64)
    one = roa_step(x, W, O, 0.3, u=u, W_i=W_i, b=b)
    _, last = roa_scan(x, W, O, 0.3, u=u[None], W_i=W_i, b=b)
    torch.testing.assert_close(one, last, rtol=1e-14, atol=1e-14)


def problem(N, T, sigma, alpha, phi="tanh"):
    g = gen(10)
    W = torch.linalg.qr(torch.randn(N, N, generator=g, dtype=f64))[0] * sigma
    O = filters.Haar(N, generator=g, dtype=f64).form()
    x0 = torch.randn(3, N, generator=g, dtype=f64)
    b = torch.randn(N, generator=g, dtype=f64)
    return Problem(x0, None, W, None, b, O, torch.tensor(alpha, dtype=f64), ACTIVATIONS[phi], T)


def test_steps_can_be_undone():
    """Under the theorem's hypothesis the contraction finds every earlier state again."""
    p = problem(6, 50, sigma=2.0, alpha=0.02)
    states, last = reference.scan(p)
    before, first, *_ = fused.inverse(p, last, rounds=30)
    assert torch.equal(first, before[0])
    torch.testing.assert_close(before[0], p.x0, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(before[1:], states[:-1], rtol=1e-10, atol=1e-10)


def reversible_gradient(p, memory):
    W = p.W.clone().requires_grad_()
    _, last = roa_scan(
        p.x0, W, p.O, float(p.alpha), b=p.b, steps=p.steps, nonlinearity=p.phi.name,
        memory=memory, last_only=True,
    )  # fmt: skip
    last.square().sum().backward()
    return W.grad


def test_reversible_without_contraction_is_exact():
    """α (1 + rσ) > 1: nothing to iterate, so every stretch is recomputed, with a warning."""
    p = problem(4, 40, sigma=8.0, alpha=0.3)
    MEMORIES["reversible"]._told.clear()
    with pytest.warns(DriftWarning, match="no contraction"):
        found = reversible_gradient(p, "reversible")
    exact = reversible_gradient(p, "store")
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DriftWarning)  # one warning, not one per step
        again = reversible_gradient(p, "reversible")
    torch.testing.assert_close(again, exact, rtol=1e-12, atol=1e-12)


def test_reversible_recomputes_what_drifts(monkeypatch):
    """A real drift: undoing with too few rounds must be noticed at the anchor and mended."""
    p = problem(5, 64, sigma=3.0, alpha=0.05)
    monkeypatch.setattr("roann.kernels.memory._rounds", lambda p: 1)
    MEMORIES["reversible"]._told.clear()
    with pytest.warns(DriftWarning, match="drift"):
        found = reversible_gradient(p, "reversible")
    torch.testing.assert_close(found, reversible_gradient(p, "store"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"nonlinearity": "rleu"}, "nonlinearity: expected one of .* did you mean 'relu'"),
        ({"backend": "fuse"}, "did you mean 'fused'"),
        ({"memory": "stor"}, "did you mean 'store'"),
        ({"steps": None}, "steps: expected one length"),
        ({"steps": 0}, "steps: expected one length of at least 1"),
        ({"b": torch.zeros(3, 2)}, "steps: expected one length"),
        ({"batch_sizes": (1, 1, 1)}, r"steps: expected .* got .*batch_sizes.: 3, .steps.: 2"),
    ],
)
def test_bad_arguments(change, match):
    arguments = {"steps": 2} | change
    with pytest.raises(ValueError, match=match):
        roa_scan(torch.zeros(1, 2), torch.eye(2), torch.eye(2), 0.5, **arguments)


@pytest.mark.parametrize("phi", ACTIVATIONS.values(), ids=lambda a: a.name)
def test_activations_know_themselves(phi):
    """Slope = derivative, slopes fill [0, r], values stay within R."""
    y = torch.linspace(-30, 30, 6001, dtype=f64)
    y = (y + 1e-3).requires_grad_()
    (slope,) = torch.autograd.grad(phi.value(y).sum(), y)
    torch.testing.assert_close(phi.slope(phi.value(y.detach())), slope, rtol=1e-12, atol=1e-15)
    assert float(slope.min()) >= 0
    assert float(slope.max()) == pytest.approx(phi.r, abs=1e-6)
    largest = float(phi.value(y.detach()).abs().max())
    assert largest == pytest.approx(phi.R, abs=1e-6) if phi.R is not None else largest > 5
