"""The operators as torch knows them: dispatcher, compiler, exporter, classes of tensors."""

import itertools
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import pytest
import torch
from problems import FORMS, make

from roann import RoaFNN, RoaODE, RoaRNN
from roann.functional import roa_scan, roa_step
from roann.kernels import linear, native
from roann.kernels.linear import Dense, Gather, Linear, Rotation
from roann.kernels.memory import MEMORIES
from roann.kernels.operator import KERNELS, Plan

f64 = torch.float64
PATHS = ("reference", *(name for name in KERNELS if name != "native" or native.available()))
needs_native = pytest.mark.skipif(not native.available(), reason=f"native: {native.why_not()}")
pytestmark = pytest.mark.filterwarnings("ignore::roann.kernels.memory.DriftWarning")


@pytest.fixture(autouse=True)
def compile_anew():
    torch.compiler.reset()


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def arguments(p, backend="auto", memory="store", keep="slopes", output="states"):
    """What `roann::scan` is called with for a problem."""
    of_O = p.O.tensors()
    plan = Plan(p.phi.name, p.O.name, backend, memory, keep, output)
    sizes = None if p.ragged is None else list(p.ragged.sizes)
    tensors = (p.x0, p.u, p.W, p.W_i, p.b, p.alpha, *of_O, *(None,) * (3 - len(of_O)))
    return [*tensors, str(plan), p.steps, sizes]


def leaves(args):
    for t in args[:6]:
        t.requires_grad_()
    return args


KEPT = (("slopes", "states"), ("terms", "last"), ("nothing", "states"))
CHECKED = list(itertools.product(("auto", "fused"), MEMORIES, FORMS, (False, True), KEPT))


def check_scan(backend, memory, form, ragged, kept):
    args = leaves(arguments(make(5, 3, 4, form=form, ragged=ragged), backend, memory, *kept))
    torch.library.opcheck(torch.ops.roann.scan.default, args)


@pytest.mark.parametrize("case", CHECKED[::7], ids=str)
def test_opcheck_scan(case):
    check_scan(*case)


@pytest.mark.parametrize("memory", MEMORIES)
def test_opcheck_scan_forward(memory):
    for form, ragged, kept in itertools.product(FORMS, (False, True), KEPT):
        args = arguments(make(5, 3, 4, form=form, ragged=ragged), "auto", memory, *kept)
        torch.library.opcheck(torch.ops.roann.scan_forward.default, args)


@pytest.mark.slow
@pytest.mark.parametrize("case", CHECKED, ids=str)
def test_opcheck_scan_everywhere(case):
    check_scan(*case)


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(
    ("phi", "backend"),
    [("relu", "auto"), *(pytest.param(phi, backend, marks=pytest.mark.slow)
     for phi in ("relu", "tanh", "identity") for backend in ("fused", "auto"))],
)  # fmt: skip
def test_opcheck_scan_backward(memory, phi, backend):
    p = make(3, 2, 3, phi=phi)
    args = arguments(p, backend, memory, "terms")
    states, last, kept = torch.ops.roann.scan(*args)
    g = (torch.randn_like(states).requires_grad_(), torch.randn_like(last).requires_grad_())
    for wanted in ([True] * 6, [False, True, True, False, False, False]):
        full = [*g, states, kept, *leaves(arguments(p, backend, memory, "terms")), wanted]
        torch.library.opcheck(torch.ops.roann.scan_backward.default, full)


@pytest.mark.parametrize("memory", MEMORIES)
def test_what_was_not_kept_is_found_again(memory):
    """Exported programs keep nothing for an adjoint, and may be trained."""
    p = make(7, 3, 4)
    found = {}
    for keep in ("nothing", "terms"):
        args = leaves(arguments(p, "auto", memory, keep))
        states, last, _ = torch.ops.roann.scan(*args)
        found[keep] = torch.autograd.grad(states.sin().sum() + last.sum(), args[:6])
    for a, b in zip(found["nothing"], found["terms"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_wrong_shapes_are_refused_by_the_operator_itself():
    args = arguments(make(5, 3, 4))
    args[2] = args[2][:3]
    with pytest.raises(ValueError, match=r"W: expected shape \(4, 4\)"):
        torch.ops.roann.scan(*args)


MODELS = {
    "rnn": lambda: RoaRNN(3, 8, horizon=20, generator=gen()),
    "stacked": lambda: RoaRNN(3, 8, 2, horizon=20, bidirectional=True, filter="permutation",
                              generator=gen()),
    "rotations": lambda: RoaRNN(3, 8, horizon=20, filter="rotations", generator=gen()),
    "learned": lambda: RoaRNN(3, 8, horizon=20, learn_rho=True, generator=gen()),
    "reversible": lambda: RoaRNN(3, 8, horizon=20, memory="reversible", generator=gen()),
    "ode": lambda: RoaODE(3, 8, horizon=20, dt=1.0, generator=gen()),
}  # fmt: skip


def results(model, u, call=None):
    """The output, and the gradients of a loss of it."""
    model.zero_grad()
    out = model(u) if call is None else call(u)
    out = out if isinstance(out, torch.Tensor) else out[0]
    out.sin().sum().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_compiled_whole_and_not_unrolled(name):
    model, u, graphs = MODELS[name](), torch.randn(20, 4, 3, generator=gen(1)), []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    call = torch.compile(model, fullgraph=True, backend=backend)
    for a, b in zip(results(model, u, call), results(model, u), strict=True):
        assert torch.equal(a, b)
    (graph,) = graphs
    scans = [n for n in graph.graph.nodes if "roann.scan" in str(n.target)]
    assert len(scans) == len([n for n, _ in model.named_children() if "filter" in n])
    assert len(graph.graph.nodes) < 150  # nothing of a size with T · layers


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["rnn", "stacked", "learned"])
def test_compiled_with_its_adjoint(name, dynamic):
    model = MODELS[name]()
    call = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for T, B in ((20, 4), (33, 7)):
        u = torch.randn(T, B, 3, generator=gen(1))
        for a, b in zip(results(model, u, call), results(model, u), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
def test_compiled_by_inductor():
    model = MODELS["rnn"]()
    u = torch.randn(20, 4, 3, generator=gen(1))
    call = torch.compile(model, fullgraph=True)
    for a, b in zip(results(model, u, call), results(model, u), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_a_deep_network_is_compiled_whole():
    net = RoaFNN([3] * 40 + [1], generator=gen())
    x = torch.randn(5, 3, generator=gen(1))
    call = torch.compile(net, fullgraph=True, backend="aot_eager")
    for a, b in zip(results(net, x, call), results(net, x), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_exported_with_any_batch_and_any_length(name, strict):
    model = MODELS[name]().eval()
    u = torch.randn(20, 4, 3, generator=gen(1))
    dims = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    program = torch.export.export(model, (u,), dynamic_shapes=(dims,), strict=strict)
    assert len(program.graph.nodes) < 150
    for T, B in ((2, 3), (50, 2), (300, 9)):
        v = torch.randn(T, B, 3, generator=gen(2))
        for a, b in zip(program.module()(v), model(v), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_an_exported_program_survives_a_file(tmp_path):
    model, u = MODELS["stacked"]().eval(), torch.randn(20, 4, 3, generator=gen(1))
    dims = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.export.save(torch.export.export(model, (u,), dynamic_shapes=(dims,)), tmp_path / "m.pt2")
    v = torch.randn(70, 5, 3, generator=gen(2))
    assert torch.equal(torch.export.load(tmp_path / "m.pt2").module()(v)[0], model(v)[0])


@pytest.mark.filterwarnings("ignore")
def test_tracing_is_refused():
    """A trace would hold for the traced length only, and give wrong numbers at others."""

    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = MODELS["rnn"]()

        def forward(self, u):
            return self.rnn(u)[1]

    u = torch.randn(50, 2, 3)
    with pytest.raises(RuntimeError, match=r"tracing: expected torch.export or torch.compile"):
        torch.jit.trace(Last(), (u,))
    for model in (Last(), MODELS["rnn"]()):
        with pytest.raises(RuntimeError, match=r"a trace holds for one length only"):
            torch.onnx.export(model, (u,), "unused.onnx", dynamo=False)


WRAPPERS = {
    "masked": """
        from torch.masked import masked_tensor
        u = masked_tensor(u, torch.ones_like(u, dtype=torch.bool))
    """,
    "fake": """
        from torch._subclasses import FakeTensorMode
        with FakeTensorMode() as mode:
            u = mode.from_tensor(u)
    """,
    "distributed": """
        import os, torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, distribute_tensor
        store = dist.HashStore()
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        u = distribute_tensor(u, init_device_mesh("cpu", (1,)), [Replicate()])
    """,
}


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("backend", PATHS)
def test_tensors_without_memory_of_their_own_are_refused(kind, backend):
    """In a process of its own: a kernel that read their memory would end it."""
    code = f"""
        import torch, warnings
        from roann import RoaRNN
        warnings.simplefilter("ignore")
        rnn, u = RoaRNN(3, 8, horizon=20, backend={backend!r}), torch.randn(20, 2, 3)
        {textwrap.dedent(WRAPPERS[kind]).strip().replace(chr(10), chr(10) + " " * 8)}
        try:
            rnn(u)
        except (TypeError, RuntimeError, AssertionError) as error:
            print("refused", type(error).__name__, error)
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("refused")
    if backend != "reference":
        assert "u: expected a plain tensor" in run.stdout


def test_a_tensor_of_two_computes_both():
    from torch.testing._internal.two_tensor import TwoTensor

    rnn = MODELS["rnn"]()
    u, v = torch.randn(20, 4, 3, generator=gen(1)), torch.randn(20, 4, 3, generator=gen(2))
    out, last = rnn(TwoTensor(u, v))
    for got, given in ((out.a, u), (out.b, v)):
        assert torch.equal(got, rnn(given)[0])
    assert torch.equal(last.b, rnn(v)[1])


def test_a_fake_tensor_among_real_ones_has_a_shape():
    from torch._subclasses import FakeTensorMode

    u = FakeTensorMode(allow_non_fake_inputs=True).from_tensor(torch.zeros(20, 2, 3))
    assert MODELS["rnn"]()(u)[0].shape == (20, 2, 8)


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


@dataclass(frozen=True)
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
