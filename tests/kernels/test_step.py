"""One step of few rows by the compiled kernel, against the reference step.

AddressSanitizer: as in test_native.py, with this file.
"""

import pytest
import torch
import torch.nn.functional as F
from held_to import run_held_to
from problems import close, make_filter
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from roann.functional import roa_step
from roann.kernels import native, reference
from roann.kernels import step as single
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import Dense, Gather

pytestmark = pytest.mark.skipif(
    single._load() is None,
    reason=f"the native step: {native.why_not() or 'torch has no exchange API'}",
)
f64 = torch.float64
FORMS = ("dense", "gather", "rotation", "planes")
ALPHAS = ("number", "scalar", "vector")
NAMES = ("x", "u", "W", "W_i", "b")


def problem(N, I, B, form="dense", alpha="number", dtype=f64, bias=True, seed=0):
    """The arguments of a step but φ, exact in `dtype`; B = 0 is a state without a batch."""
    g = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=g, dtype=f64).to(dtype)

    lead = (B,) if B else ()
    O = make_filter(g, form, N, None)
    O = O.with_tensors(tuple(t.to(dtype) if t.is_floating_point() else t for t in O.tensors()))
    shape = {"scalar": (), "vector": (N,)}.get(alpha)
    return {
        "x": normal(*lead, N),
        "u": normal(*lead, I) if I else None,
        "W": normal(N, N) / N**0.5,
        "W_i": normal(N, I) if I else None,
        "b": normal(N) if bias else None,
        "O": O,
        "alpha": 0.3 if shape is None else torch.rand(shape, generator=g, dtype=f64).to(dtype),
    }


def plain(p, phi):
    """The reference step."""
    drive = p["b"] if p["u"] is None else F.linear(p["u"], p["W_i"], p["b"])
    return reference.step(p["x"], drive, p["W"], p["O"], p["alpha"], ACTIVATIONS[phi])


def fast(p, phi="tanh"):
    """The compiled step; None where it declines."""
    return single.step(**p, phi=ACTIVATIONS[phi])


def gradients(step, p, phi, g, **options):
    """∂⟨g, x′⟩ by everything that may have a gradient."""
    p = p | {name: p[name].clone().requires_grad_() for name in NAMES if p[name] is not None}
    inputs = [p[name] for name in NAMES if p[name] is not None]
    return torch.autograd.grad(step(p, phi), inputs, g, **options)


def double(p):
    O = p["O"]
    wide = O.with_tensors(tuple(t.double() if t.is_floating_point() else t for t in O.tensors()))
    cast = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in p.items()}
    return cast | {"O": wide}


@pytest.mark.parametrize("phi", ACTIVATIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("N", [1, 2, 7, 16, 178])
def test_states_equal_the_reference(N, form, phi):
    for B in (0, 1, 2, 3, 4, 5) if N < 178 else (0, 1, 4):
        for I, alpha, bias in ((1, "number", True), (3, "vector", False), (0, "scalar", True)):
            for dtype in (torch.float32, f64):
                p = problem(N, I, B, form, alpha, dtype, bias, seed=B)
                close(fast(p, phi), plain(double(p), phi).to(dtype), N)


@pytest.mark.parametrize("phi", ACTIVATIONS)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("N", [1, 2, 7, 16, 178])
def test_gradients_equal_those_of_the_reference(N, form, phi):
    for B in (0, 1, 2, 5) if N < 178 else (0, 1, 4):
        for I, alpha, bias in ((1, "number", True), (20, "vector", False), (0, "scalar", True)):
            p = problem(N, I, B, form, alpha, f64, bias, seed=B)
            g = torch.randn(p["x"].shape, generator=torch.Generator().manual_seed(1), dtype=f64)
            assert fast(p, phi) is not None
            for got, want in zip(
                gradients(fast, p, phi, g), gradients(plain, p, phi, g), strict=True
            ):
                close(got, want, N + B)


def test_more_neurons_than_the_adjoint_takes_at_a_time():
    p = problem(300, 2, 1)
    g = torch.ones((), dtype=f64).expand(1, 300)
    for got, want in zip(
        gradients(fast, p, "tanh", g), gradients(plain, p, "tanh", g), strict=True
    ):
        close(got, want, 300)


@pytest.mark.parametrize("form", FORMS)
def test_a_wide_step_equals_the_reference(form):
    """N = 512, a million numbers in four rows of W: the most that is not left to torch."""
    for B in (1, 4):
        p = problem(512, 3, B, form, dtype=torch.float32)
        close(fast(p), plain(double(p), "tanh").float(), 512)
    assert fast(problem(512, 3, 5, form, dtype=torch.float32)) is None


@pytest.mark.parametrize("isa", native.ISAS)
def test_every_instruction_set(isa):
    """The three tests above."""
    run_held_to(isa, "equal or more", __file__)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("B", [0, 2])
def test_first_and_second_derivatives(form, B):
    p = problem(4, 2, B, form, "vector")

    def of(*tensors):
        return fast(p | dict(zip(NAMES, tensors, strict=True)), "tanh")

    inputs = tuple(p[name].requires_grad_() for name in NAMES)
    assert torch.autograd.gradcheck(of, inputs)
    assert torch.autograd.gradgradcheck(of, inputs)


def test_only_what_is_asked_for_has_a_gradient():
    p = problem(6, 2, 2)
    g = torch.ones(2, 6, dtype=f64)
    whole = dict(zip(NAMES, gradients(plain, p, "tanh", g), strict=True))
    for name in NAMES:
        leaf = p[name].clone().requires_grad_()
        x_next = fast(p | {name: leaf})
        assert x_next.grad_fn is not None
        (got,) = torch.autograd.grad(x_next, [leaf], g)
        close(got, whole[name], 6)
    assert fast(p).grad_fn is None
    with torch.no_grad():
        assert fast(p | {"W": p["W"].clone().requires_grad_()}).grad_fn is None


def test_a_graph_may_be_walked_twice_and_in_a_batch():
    p = problem(5, 1, 1)
    p["W"].requires_grad_()
    x_next = fast(p)
    basis = torch.eye(5, dtype=f64).unsqueeze(1)
    one_by_one = torch.stack(
        [torch.autograd.grad(x_next, p["W"], g, retain_graph=True)[0] for g in basis]
    )
    (together,) = torch.autograd.grad(x_next, p["W"], basis, is_grads_batched=True)
    close(together, one_by_one, 5)


def test_inputs_changed_before_backward_are_noticed():
    p = problem(5, 1, 1)
    p["W"].requires_grad_()
    x_next = fast(p)
    p["O"].matrix.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        x_next.sum().backward()


def test_saved_tensors_may_live_elsewhere():
    p = problem(5, 2, 3)
    g = torch.ones(3, 5, dtype=f64)
    want = gradients(plain, p, "tanh", g)
    for unpack in (lambda t: t.clone(), lambda t: t.t().contiguous().t() if t.dim() == 2 else t):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach().clone(), unpack):
            got = gradients(fast, p, "tanh", g)
        for a, b in zip(got, want, strict=True):
            close(a, b, 5)


def reasons_to_decline():
    """Problems, by name, that only the reference step can do."""
    p = problem(6, 2, 2)
    learned = Dense(p["O"].matrix.clone().requires_grad_())
    turned = p["W"].mT.contiguous().mT
    half = {k: v.half() for k, v in p.items() if isinstance(v, torch.Tensor)}
    meta = {k: v.to("meta") for k, v in p.items() if isinstance(v, torch.Tensor)}
    sub = p["W"].as_subclass(type("Sub", (torch.Tensor,), {}))
    return p, {
        "half": half | {"O": Dense(p["O"].matrix.half())},
        "mixed dtypes": {"W": p["W"].float()},
        "meta": meta | {"O": Dense(p["O"].matrix.to("meta"))},
        "one on meta": {"b": p["b"].to("meta")},
        "strided W": {"W": turned},
        "strided x": {"x": torch.randn(6, 2, dtype=f64).t()},
        "sparse": {"W": p["W"].to_sparse()},
        "negative view": {"x": torch._neg_view(p["x"])},
        "negative input": {"u": torch._neg_view(p["u"])},
        "a subclass": {"W": sub},
        "learned filter": {"O": learned},
        "learned alpha": {"alpha": torch.tensor(0.3, dtype=f64, requires_grad=True)},
        "alpha by batch": {"alpha": torch.rand(2, 1, dtype=f64)},
        "rectangular": {"W": torch.randn(5, 6, dtype=f64)},
        "wrong bias": {"b": torch.randn(5, dtype=f64)},
        "wrong input": {"u": torch.randn(2, 3, dtype=f64)},
        "broadcast input": {"u": torch.randn(2, dtype=f64)},
        "more dimensions": {"x": torch.randn(1, 2, 6, dtype=f64)},
        "no rows": {"x": p["x"][:0], "u": p["u"][:0]},
        "many rows": {"x": torch.randn(9, 6, dtype=f64), "u": torch.randn(9, 2, dtype=f64)},
        "wrong index": {"O": Gather(torch.arange(5), torch.arange(5))},
        "small index": {"O": Gather(torch.arange(6).int(), torch.arange(6).int())},
        "not a tensor": {"W_i": [[1.0]]},
    }


@pytest.mark.parametrize("reason", reasons_to_decline()[1])
def test_what_it_cannot_do_it_declines(reason):
    p, cases = reasons_to_decline()
    assert fast(p) is not None
    with torch.set_grad_enabled(reason.startswith("learned")):
        assert fast(p | cases[reason]) is None


def test_the_corridor_falls_back():
    p = problem(6, 2, 2)
    strided = p | {"W": p["W"].mT.contiguous().mT, "x": torch.randn(6, 2, dtype=f64).t()}
    assert torch.equal(roa_step(**strided, nonlinearity="tanh"), plain(strided, "tanh"))
    assert torch.equal(roa_step(**p, nonlinearity="tanh"), fast(p))


def test_transforms_modes_and_autocast_see_operations_of_torch():
    p = problem(6, 2, 2)
    x, u = p["x"], p["u"]
    want = plain(p, "tanh")

    def of(x, u):
        return roa_step(**p | {"x": x, "u": u}, nonlinearity="tanh")

    torch.testing.assert_close(torch.vmap(of)(x, u), want)
    torch.testing.assert_close(torch.vmap(of, (None, 0))(x, u)[1], of(x, u[1].expand(2, 2)))
    J = torch.func.jacrev(of)(x, u)
    torch.testing.assert_close(J, torch.func.jacfwd(of)(x, u))
    torch.testing.assert_close(J, torch.autograd.functional.jacobian(lambda x: of(x, u), x))
    torch.testing.assert_close(
        J, torch.autograd.functional.jacobian(lambda x: of(x, u), x, vectorize=True)
    )
    with FlopCounterMode(display=False) as counter:
        of(x, u)
    assert counter.get_total_flops() == 2 * 2 * (6 * 6 * 2 + 6 * 2)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert of(mode.from_tensor(x), mode.from_tensor(u)).shape == (2, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fast(p) is None
    with pytest.deprecated_call():
        traced = torch.jit.trace(of, (x, u))
    torch.testing.assert_close(traced(2 * x, u), of(2 * x, u))


def test_what_a_transform_left_behind_is_still_a_tensor():
    p, kept = problem(6, 2, 2), []
    torch.func.grad(lambda x: kept.append(2 * x) or x.sum())(p["x"])
    left = p | {"x": kept[0]}
    assert fast(left) is None
    close(roa_step(**left, nonlinearity="tanh"), fast(p | {"x": 2 * p["x"]}), 6)
