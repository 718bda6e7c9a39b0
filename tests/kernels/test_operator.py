"""The operators as torch knows them: dispatcher, compiler, exporter, classes of tensors."""

import itertools
import subprocess
import sys
import textwrap

import pytest
import torch
from problems import FORMS, make

from roann import RoaFNN, RoaODE, RoaRNN
from roann.kernels import native
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
        plain = [a.detach() if isinstance(a, torch.Tensor) else a for a in full]
        torch.library.opcheck(torch.ops.roann.scan_adjoint.default, plain)


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
    "rnn": lambda **o: RoaRNN(3, 8, horizon=20, generator=gen(), **o),
    "stacked": lambda **o: RoaRNN(3, 8, 2, horizon=20, bidirectional=True, filter="permutation",
                                  generator=gen(), **o),
    "rotations": lambda **o: RoaRNN(3, 8, horizon=20, filter="rotations", generator=gen(), **o),
    "learned": lambda **o: RoaRNN(3, 8, horizon=20, learn_rho=True, generator=gen(), **o),
    "reversible": lambda **o: RoaRNN(3, 8, horizon=20, memory="reversible", generator=gen(), **o),
    "ode": lambda **o: RoaODE(3, 8, horizon=20, dt=1.0, generator=gen(), **o),
}  # fmt: skip


def results(model, u, call=None):
    """The output, and the gradients of a loss of it."""
    model.zero_grad()
    out = model(u) if call is None else call(u)
    out = out if isinstance(out, torch.Tensor) else out[0]
    out.sin().sum().backward()
    return [out.detach(), *(p.grad.clone() for p in model.parameters())]


def compiled(model, u):
    """What a compiled model gives, and the one graph it became."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    found = results(model, u, torch.compile(model, fullgraph=True, backend=backend))
    (graph,) = graphs
    return found, graph.graph


@pytest.mark.parametrize("name", MODELS)
def test_compiled_whole_and_not_unrolled(name):
    model, counts = MODELS[name](), set()
    for T in (20, 27):
        u = torch.randn(T, 4, 3, generator=gen(1))
        found, graph = compiled(model, u)
        for a, b in zip(found, results(model, u), strict=True):
            assert torch.equal(a, b)
        scans = [n for n in graph.nodes if "roann.scan" in str(n.target)]
        assert len(scans) == len([n for n, _ in model.named_children() if "filter" in n])
        counts.add(len(graph.nodes))
    assert len(counts) == 1
    _, graph = compiled(MODELS[name](max_norm=None), u)
    assert len(graph.nodes) < 150  # the operations of the cap are not counted


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
    plain = MODELS[name](max_norm=None).eval()
    uncapped = torch.export.export(plain, (u,), dynamic_shapes=(dims,), strict=strict)
    assert len(uncapped.graph.nodes) < 150  # the operations of the cap are not counted
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


# torch hides it itself, which it cannot do where warnings are errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_fake_tensor_among_real_ones_has_a_shape():
    from torch._subclasses import FakeTensorMode

    u = FakeTensorMode(allow_non_fake_inputs=True).from_tensor(torch.zeros(20, 2, 3))
    assert MODELS["rnn"]()(u)[0].shape == (20, 2, 8)


@pytest.mark.parametrize("of", ["rnn", "cell"])
def test_a_transform_that_follows_other_tensors(of):
    """Inside `vmap` of something else, layers compute and can be trained."""
    rnn, u = MODELS["rnn"](dtype=f64), torch.randn(20, 4, 3, generator=gen(1), dtype=f64)
    cell, x = rnn.cell(), torch.randn(4, 8, generator=gen(2), dtype=f64)

    def end():
        return (rnn(u)[0] if of == "rnn" else cell(u[0], x)).square().sum()

    many = torch.arange(3, dtype=f64)
    found = torch.vmap(lambda t: end() * t)(many)
    torch.testing.assert_close(found, end() * many)
    weights = rnn.weight_ih_l0, rnn.weight_hh_l0
    gradients = (torch.autograd.grad(y, weights) for y in (found.sum(), end()))
    for got, want in zip(*gradients, strict=True):
        torch.testing.assert_close(got, 3 * want)
