"""The scan at its seams: dtypes, indices, infinities, half precision, pieces, other forms."""

from dataclasses import dataclass

import pytest
import torch

from roann import RoaRNN
from roann.functional import roa_scan, roa_step
from roann.kernels import linear, native
from roann.kernels.linear import Dense, Gather, Linear, Rotation
from roann.kernels.memory import MEMORIES
from roann.kernels.operator import KERNELS

f64 = torch.float64
PATHS = ("reference", *(name for name in KERNELS if name != "native" or native.available()))
needs_native = pytest.mark.skipif(not native.available(), reason=f"native: {native.why_not()}")
pytestmark = pytest.mark.filterwarnings("ignore::roann.kernels.memory.DriftWarning")


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def given(N=5):
    g = gen()
    return {
        "x0": torch.randn(2, N, generator=g), "W": torch.randn(N, N, generator=g),
        "O": torch.eye(N), "alpha": torch.tensor(0.25), "u": torch.randn(3, 2, 2, generator=g),
        "W_i": torch.randn(N, 2, generator=g), "b": torch.randn(N, generator=g),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.complex64])
@pytest.mark.parametrize("name", ["x0", "W", "O", "alpha", "u", "W_i", "b"])
@pytest.mark.parametrize("backend", ["auto", *PATHS])
def test_every_dtype_is_checked_on_every_path(name, dtype, backend):
    changed = given()
    changed[name] = torch.ones_like(changed[name]).to(dtype)
    with pytest.raises(ValueError, match=rf"{name}: expected a .*float dtype"):
        roa_scan(**changed, backend=backend)


@pytest.mark.parametrize("name", ["x", "W", "O", "u", "W_i", "b"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_every_dtype_of_a_step_is_checked(name, dtype):
    step = given()
    step["x"], step["u"], step["alpha"] = step.pop("x0"), step["u"][0], 0.25
    step[name] = torch.ones_like(step[name]).to(dtype)
    with pytest.raises(ValueError, match=rf"{name}: expected a .*float dtype"):
        roa_step(**step)


@pytest.mark.parametrize("backend", ["auto", *PATHS])
def test_an_index_of_floats_is_refused(backend):
    index = torch.arange(5)
    with pytest.raises(ValueError, match="O: expected an integer dtype for its inverse"):
        roa_scan(**given() | {"O": Gather(index, index.float())}, backend=backend)


@pytest.mark.parametrize("bad", [-1, 5, 5000, -100_000, 2**62])
@pytest.mark.parametrize("field", ["index", "inverse", "partner"])
@pytest.mark.parametrize("backend", PATHS)
@pytest.mark.parametrize("deep", [False, True])
def test_places_that_are_not_there_are_refused(bad, field, backend, deep):
    places, ones = torch.arange(5), torch.ones(5)
    wrong = places.clone()
    wrong[3] = bad
    O = {
        "index": Gather(wrong, places), "inverse": Gather(places, wrong),
        "partner": Rotation(ones, 0 * ones, wrong),
    }[field]  # fmt: skip
    step = {"x": torch.randn(2, 5), "W": torch.eye(5), "alpha": 0.5}
    if field == "inverse" and backend == "reference":
        return  # the plain loop and its derivative do not look at it
    if field != "inverse":  # nor does a step forwards
        with pytest.raises((IndexError, RuntimeError)):
            roa_step(O=O, **step)
    if deep:
        O = O.with_tensors(tuple(torch.stack([t, t, t]) for t in O.tensors()))
    W = torch.eye(5, requires_grad=True)
    with pytest.raises((IndexError, RuntimeError)):
        roa_scan(**given() | {"O": O, "W": W}, backend=backend)[1].sum().backward()


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("phi", ["tanh", "sigmoid", "relu", "softplus", "identity", "leaky_relu"])
@pytest.mark.parametrize("form", ["qr", "permutation", "rotations"])
@pytest.mark.parametrize(("N", "I", "B"), [(20, 3, 40), (20, 40, 40), (20, 3, 1), (3, 1, 64)])
def test_what_is_not_finite_stays_where_it_is(value, phi, form, N, I, B):
    """Up to the step it enters at, all paths agree where the states are finite, inf and NaN.

    Bounded φ: at every step. Later, with an unbounded φ, states that are infinite meet in sums:
    then paths may differ in inf or NaN, but not in the rows that are concerned.
    """
    rnn = RoaRNN(I, N, horizon=200, nonlinearity=phi, filter=form, generator=gen())
    u = torch.randn(9, B, I, generator=gen(1))
    u[4, B // 2, 0] = value
    found = {}
    for rnn.backend in PATHS:
        found[rnn.backend] = rnn(u)[0].detach()
    truth = found.pop("reference")
    steps = 9 if phi in ("tanh", "sigmoid") or value != value else 5
    for states in found.values():
        torch.testing.assert_close(
            states[:steps], truth[:steps], rtol=1e-4, atol=1e-5, equal_nan=True
        )
        assert torch.equal(states.isfinite().all(-1), truth.isfinite().all(-1))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, 1e30, 1e200])
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("backend", ["fused", "auto"])
def test_memory_modes_agree_on_weights_that_are_lost(value, memory, backend):
    def gradients(memory):
        W = torch.eye(4, dtype=f64)
        W[1, 2] = value
        W.requires_grad_()
        x0 = torch.linspace(-1, 1, 12, dtype=f64).view(3, 4).requires_grad_()
        O = torch.eye(4, dtype=f64)
        _, last = roa_scan(x0, W, O, 0.1, steps=9, memory=memory, backend=backend)
        return last.detach(), *torch.autograd.grad(last.sum(), (x0, W))

    for a, b in zip(gradients(memory), gradients("store"), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("backend", ["auto", *PATHS])
def test_no_rows(memory, backend):
    W = torch.eye(3, requires_grad=True)
    states, last = roa_scan(
        torch.ones(0, 3), W, torch.eye(3), 0.1, steps=4, memory=memory, backend=backend
    )
    assert (states.shape, last.shape) == ((4, 0, 3), (0, 3))
    assert torch.equal(torch.autograd.grad(last.sum() + states.sum(), W)[0], torch.zeros(3, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("backend", ["auto", *PATHS])
def test_half_precision_is_lost_once_not_at_every_step(dtype, backend):
    g = gen()
    W, O = torch.randn(16, 16, generator=g) / 4, torch.linalg.qr(torch.randn(16, 16, generator=g)).Q
    x0, W = torch.randn(3, 16, generator=g).to(dtype), W.to(dtype)
    truth, _ = roa_scan(x0.double(), W.double(), O, 0.001, steps=1000)
    states, last = roa_scan(x0, W, O, 0.001, steps=1000, backend=backend)
    assert states.dtype == last.dtype == dtype
    error = float((states[-1].double() - truth[-1]).norm() / truth[-1].norm())
    assert error < 2 * torch.finfo(dtype).eps
    one = roa_step(x0, W, O, 0.001)
    torch.testing.assert_close(one, states[0], rtol=torch.finfo(dtype).eps, atol=0)


@needs_native
@pytest.mark.parametrize("pieces", [(5, 15), (7, 13), (10, 10)])
@pytest.mark.parametrize("form", ["qr", "rotations"])
def test_a_sequence_may_be_cut(form, pieces):
    """Bit for bit, if every piece has more than four rows; to rounding in any case."""
    rnn = RoaRNN(3, 32, horizon=20, filter=form, generator=gen())
    u = torch.randn(20, 1, 3, generator=gen(1))
    whole, hx, found = rnn(u)[0], None, []
    for piece in torch.split(u, pieces):
        out, hx = rnn(piece, hx)
        found.append(out)
    assert torch.equal(torch.cat(found), whole)
    hx, found = None, []
    for piece in torch.split(u, 2):
        out, hx = rnn(piece, hx)
        found.append(out)
    torch.testing.assert_close(torch.cat(found), whole, rtol=1e-5, atol=1e-6)


@dataclass(eq=False)
class Doubled(Linear):
    """A form from outside the package: x ↦ M x, kept as M/2."""

    half: torch.Tensor
    stacked = False

    def matvec(self, x):
        return 2 * x @ self.half.mT

    def matvec_transpose(self, x):
        return 2 * x @ self.half

    def to_dense(self):
        return 2 * self.half


@pytest.mark.parametrize("backend", ["auto", *PATHS])
def test_a_form_that_is_in_no_table_is_multiplied_as_a_matrix(backend):
    p = given()
    Q = torch.linalg.qr(torch.randn(5, 5, generator=gen(3))).Q
    assert linear.FORMS.get(Doubled.name) is None
    want, _ = roa_scan(**p | {"O": Dense(Q)}, backend=backend)
    found, _ = roa_scan(**p | {"O": Doubled(Q / 2)}, backend=backend)
    assert torch.equal(found, want)
