"""The scan where torch's other machinery, or a mistake, meets it."""

import ctypes
import re
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from roann import RoaRNN, filters
from roann.functional import roa_scan
from roann.kernels import library, memory, native, outer
from roann.kernels.linear import Gather
from roann.kernels.memory import MEMORIES, DriftWarning
from roann.kernels.problem import LARGE_ALPHA

f64 = torch.float64
FAST = ("fused", "native") if native.available() else ("fused",)
needs_native = pytest.mark.skipif(
    not native.available(), reason=f"the native kernel: {native.why_not()}"
)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(g, *shape, grad=False):
    return torch.randn(shape, generator=g, dtype=f64).requires_grad_(grad)


def arguments(T=3, B=2, N=5, I=2):
    g = gen()
    return {
        "x0": normal(g, B, N), "W": normal(g, N, N), "O": torch.linalg.qr(normal(g, N, N)).Q,
        "alpha": torch.tensor(0.2, dtype=f64), "u": normal(g, T, B, I), "W_i": normal(g, N, I),
        "b": normal(g, N),
    }  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "auto", *FAST])
@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("x0", (5,), "x0 and W: expected shapes"),
        ("W", (4, 4), r"W: expected shape \(5, 5\) or \(3, 5, 5\), got \(4, 4\)"),
        ("W", (3, 5, 4), "W: expected shape"),
        ("O", (4, 4), r"O: expected shape \(5, 5\) or \(3, 5, 5\), got \(4, 4\)"),
        ("O", (2, 5, 5), "O: expected shape"),
        ("b", (3,), r"b: expected shape \(5,\) or \(3, 5\), got \(3,\)"),
        ("b", (1,), "b: expected shape"),
        ("alpha", (3,), r"alpha: expected shape \(\) or \(5,\) or \(3, 1\) or \(3, 5\), got"),
        ("alpha", (2, 5), "alpha: expected shape"),
        ("W_i", (4, 2), r"W_i: expected shape \(5, 2\), got \(4, 2\)"),
        ("u", (3, 2, 3), r"u: expected shape \(3, 2, 2\), got \(3, 2, 3\)"),
        ("u", (3, 1, 2), "u: expected shape"),
    ],
)
def test_shapes_that_do_not_fit_are_refused_by_name(name, shape, words, backend):
    given = arguments() | {name: torch.zeros(shape, dtype=f64)}
    with pytest.raises(ValueError, match=words):
        roa_scan(**given, backend=backend)


def test_inputs_and_their_weights_go_together():
    with pytest.raises(ValueError, match="u and W_i: expected both or neither"):
        roa_scan(**arguments() | {"W_i": None})


@pytest.mark.parametrize("name", ["W", "u", "W_i", "b"])
def test_one_dtype_for_all(name):
    given = arguments()
    given[name] = given[name].float()
    with pytest.raises(ValueError, match=rf"{name}: expected dtype torch.float64, as x0"):
        roa_scan(**given)


def test_structured_filters_must_fit_too():
    index = torch.arange(4)
    with pytest.raises(ValueError, match=r"O: expected shape \(5,\) or \(3, 5\), got \(4,\)"):
        roa_scan(**arguments() | {"O": Gather(index, index)})


@pytest.mark.parametrize("backend", FAST)
def test_an_index_of_another_integer_type(backend):
    index = torch.tensor([1, 2, 3, 4, 0])
    wide, narrow = Gather(index, index.argsort()), Gather(index.int(), index.argsort().int())
    truth, _ = roa_scan(**arguments() | {"O": wide}, backend="reference")
    found, _ = roa_scan(**arguments() | {"O": narrow}, backend="auto")
    torch.testing.assert_close(found, truth, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ["x0", "W", "u", "b"])
def test_a_tensor_that_is_negated_by_a_bit(name):
    given = arguments()
    want, _ = roa_scan(**given | {name: -given[name]}, backend="reference")
    found, _ = roa_scan(**given | {name: torch._neg_view(given[name])})
    torch.testing.assert_close(found, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("backend", FAST)
def test_a_gradient_that_is_negated_by_a_bit(backend):
    given = arguments()
    W = given["W"].requires_grad_()
    states, _ = roa_scan(**given, backend=backend)
    g = normal(gen(1), *states.shape)
    (want,) = torch.autograd.grad(states, W, -g, retain_graph=True)
    (found,) = torch.autograd.grad(states, W, torch._neg_view(g))
    torch.testing.assert_close(found, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("backend", FAST)
def test_second_derivatives_of_a_scan_that_starts_where_another_ended(backend):
    """x0 depends on W here; that path is not part of the second scan's own derivative."""
    u, found = normal(gen(1), 6, 1, 2), []
    for name in (backend, "reference"):
        rnn = RoaRNN(2, 7, horizon=5, dtype=u.dtype, max_norm=None, backend=name, generator=gen(0))
        _, last = rnn(u[3:], rnn(u[:3])[1])
        W = rnn.weight_hh_l0
        (slope,) = torch.autograd.grad(last.square().sum(), W, create_graph=True)
        found += torch.autograd.grad(slope.sin().sum(), W)
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [{"horizon": 7}, {"alpha": 0.1}], ids=str)
@pytest.mark.parametrize("name", ["qr", "permutation", "broad"])
def test_shapes_alone_can_be_traced(name, size):
    """Fake tensors have no memory that a kernel could read."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        rnn = RoaRNN(2, 4, filter=name, **size)
        out, last = rnn(torch.zeros(7, 3, 2))
    assert out.shape == (7, 3, 4)
    assert last.shape == (1, 3, 4)


def test_a_traced_graph_computes_what_was_traced():
    from torch.fx.experimental.proxy_tensor import make_fx

    given = arguments()
    x0 = given.pop("x0")
    graph = make_fx(lambda x: roa_scan(x, **given)[1])(x0)
    other = normal(gen(2), *x0.shape)
    torch.testing.assert_close(graph(other), roa_scan(other, **given)[1], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("memory", MEMORIES)
def test_recomputed_by_torch_s_own_checkpoints(backend, memory):
    given = arguments()
    W = given.pop("W").requires_grad_()

    def last(W):
        return roa_scan(W=W, **given, backend=backend, memory=memory)[1].sin().sum()

    (want,) = torch.autograd.grad(last(W), W)
    (found,) = torch.autograd.grad(checkpoint(last, W, use_reentrant=False), W)
    torch.testing.assert_close(found, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("backend", FAST)
def test_many_gradients_at_once(backend):
    """`vectorize=True` runs one backward pass over a batch of gradients."""
    given = arguments()
    x0 = given.pop("x0")

    def last(x, backend=backend):
        return roa_scan(x, **given, backend=backend)[1]

    jacobian = torch.autograd.functional.jacobian
    want = jacobian(lambda x: last(x, "reference"), x0)
    torch.testing.assert_close(jacobian(last, x0, vectorize=True), want, rtol=1e-12, atol=1e-13)


def test_the_last_state_is_no_view_of_the_states():
    states, last = roa_scan(**arguments())
    last.zero_()
    assert float(states[-1].abs().min()) > 0


@needs_native
def test_gradients_do_not_depend_on_the_number_of_threads():
    before, found = torch.get_num_threads(), []
    for threads in (1, 2, 3, 5):
        torch.set_num_threads(threads)
        try:
            rnn = RoaRNN(3, 64, horizon=50, generator=gen())
            u = torch.randn(50, 37, 3, generator=gen(1))
            rnn(u)[0].sin().sum().backward()
        finally:
            torch.set_num_threads(before)
        found.append([p.grad for p in rnn.parameters()])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


def test_large_rows_do_not_hide_the_drift_of_a_small_one(monkeypatch):
    """Undone with too few rounds, one small row is off while the others are fine."""
    g = gen()
    N = 6
    W = torch.linalg.qr(normal(g, N, N)).Q * 3
    O = filters.Haar(N, generator=g, dtype=f64)
    x0 = torch.cat([normal(g, 1, N), 1e9 * normal(g, 7, N)])
    monkeypatch.setattr(memory, "_rounds", lambda p: 2)
    MEMORIES["reversible"]._told.clear()
    leaf = W.clone().requires_grad_()

    def gradient(mode):
        _, last = roa_scan(x0, leaf, O, 0.05, steps=64, nonlinearity="tanh", memory=mode)
        return torch.autograd.grad(last[0].sin().sum(), leaf)[0]

    with pytest.warns(DriftWarning, match="drift"):
        found = gradient("reversible")
    torch.testing.assert_close(found, gradient("store"), rtol=1e-10, atol=1e-12)


@needs_native
@pytest.mark.parametrize("struct", ["Args", "Outer"])
def test_a_library_of_another_version_is_not_used(monkeypatch, struct):
    path = library.library().path
    fields = [*getattr(library, struct)._fields_, ("more", ctypes.c_int64)]
    monkeypatch.setattr(library, struct, type("Other", (ctypes.Structure,), {"_fields_": fields}))
    with pytest.raises(OSError, match="built from another version of roann; reinstall"):
        library.Library(path, None)


@needs_native
@pytest.mark.parametrize("table", ["FORMS", "ACTIVATIONS"])
def test_a_library_that_knows_fewer_forms_or_activations_is_not_used(monkeypatch, table):
    path, known = library.library().path, dict(getattr(library, table))
    known["new"] = type("New", (), {"code": 1 + max(row.code or 0 for row in known.values())})
    monkeypatch.setattr(library, table, known)
    with pytest.raises(OSError, match="built from another version of roann; reinstall"):
        library.Library(path, None)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("wanted", [("W_i",), ("b",), ("W_i", "b"), ()])
@pytest.mark.parametrize("I", [1, 3, outer.FEW_INPUTS, outer.FEW_INPUTS + 1])
def test_input_weights_and_biases_get_their_gradients_in_any_company(I, wanted, backend):
    def found(backend):
        given = arguments(T=9, B=3, I=I)
        for name in ("W", *wanted):
            given[name].requires_grad_()
        states, last = roa_scan(**given, backend=backend)
        loss = (states * normal(gen(1), *states.shape)).sum() + last.square().sum()
        return torch.autograd.grad(loss, [given[name] for name in ("W", *wanted)])

    for mine, plain in zip(found(backend), found("reference"), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-12, atol=1e-12)


def test_what_is_typed_in_both_languages_agrees():
    here = Path(native.__file__).parent
    large = re.search(r"LARGE_ALPHA = ([\d.]+);", (here / "native.cpp").read_text())
    narrow = re.search(r"NARROWEST = (\d+)", (here / "native_narrow.inl").read_text())
    assert (float(large[1]), int(narrow[1])) == (LARGE_ALPHA, native._NARROWEST)
