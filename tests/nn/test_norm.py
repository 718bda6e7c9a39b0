"""The cap on ‖W‖₂: a bound from above, its gradients, and a W that is left alone below it."""

import math

import pytest
import torch

from roann import RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell, certify
from roann.kernels.products import same, square_and_bound
from roann.nn.norm import capped, schatten

f64 = torch.float64
POWER = 66  # p of the Schatten norm


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, dtype=f64):
    return torch.randn(*shape, generator=gen(seed), dtype=f64).to(dtype)


def norm(W):
    """‖W‖₂ from singular values in float64."""
    return torch.linalg.svdvals(W.detach().to(f64))[..., 0]


def matrices():
    hilbert = 1 / (torch.arange(12.0).unsqueeze(1) + torch.arange(12.0) + 1)
    yield from (normal(n, n, seed=n) for n in (1, 2, 3, 17, 64, 200))
    yield from (normal(*shape) for shape in ((1, 7), (7, 1), (5, 40), (40, 5)))
    yield from (scale * normal(20, 20) for scale in (1e30, 1e-30))
    yield from (hilbert.to(f64), torch.eye(50, dtype=f64), torch.ones(9, 9, dtype=f64))
    yield torch.outer(normal(30), normal(30, seed=1))
    yield torch.diag(torch.logspace(-12, 0, 25, dtype=f64))
    yield torch.diag(torch.tensor([1.0, 1e-200, 0.0], dtype=f64))


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_it_bounds_the_norm_from_above_and_closely(dtype):
    for M in matrices():
        W = M.to(dtype)
        S, exact = float(schatten(W)), float(norm(W))
        assert math.isfinite(S)
        assert exact <= S
        few = min(W.shape)
        slack = 1e-6 if dtype == f64 else 1e-3
        assert few ** (1 / POWER) * exact * (1 + slack) >= S


def test_zero_and_numbers_below_the_smallest_normal():
    zero = torch.zeros(5, 5).requires_grad_()
    assert 0 <= float(schatten(zero.detach())) < 1e-30
    y = capped(zero, 0.5)
    assert torch.equal(y, torch.zeros(5, 5))
    y.sum().backward()
    assert torch.equal(zero.grad, torch.ones(5, 5))  # the cap is far: it is the identity
    tiny = normal(4, 4, dtype=torch.float32) * 1e-41
    assert torch.equal(capped(tiny, 1.0), tiny)


@pytest.mark.parametrize(
    "shape", [(96, 96), (178, 178), (300, 100), (100, 300), (520, 520)], ids=str
)
def test_wide_matrices_whose_products_the_compiled_kernel_does(shape):
    """The bound, the cap and its gradient, against those of the plain products."""
    for dtype in (torch.float32, f64):
        W = normal(*shape, dtype=dtype).requires_grad_()
        g = normal(*shape, seed=1, dtype=dtype)
        y = capped(W, 2.0)
        assert float(norm(y.double())) <= 2.0
        stack = W.detach().unsqueeze(0).requires_grad_()  # of which torch does the products
        other = capped(stack, 2.0)
        tol = 100 * torch.finfo(dtype).eps
        torch.testing.assert_close(y, other[0], rtol=tol, atol=tol)
        (found,) = torch.autograd.grad(y, W, g)
        (plain,) = torch.autograd.grad(other, stack, g.unsqueeze(0))
        torch.testing.assert_close(found, plain[0], rtol=tol, atol=tol)
        _, found = torch.func.vjp(lambda W: capped(W, 2.0), W.detach())
        torch.testing.assert_close(found(g)[0], plain[0], rtol=tol, atol=tol)


@pytest.mark.parametrize("cap", [0.1, 1.0, 3.3])
def test_no_matrix_in_float32_exceeds_the_cap(cap):
    """Against singular values in float64: rounding has no room."""
    for n, many in ((1, 300), (2, 300), (5, 300), (32, 200), (128, 20)):
        W = normal(many, n, n, seed=n, dtype=torch.float32)
        W *= torch.logspace(-2, 3, many).reshape(-1, 1, 1)
        assert float(norm(capped(W, cap)).max()) <= cap
    ones = torch.eye(100).expand(3, 100, 100) * torch.tensor([1.0, 5.0, 1e20]).reshape(3, 1, 1)
    assert float(norm(capped(ones, cap)).max()) <= cap
    # It is a cap, and no shrinkage: what exceeds it lands within 1.2 % for a Gaussian matrix.
    W = normal(128, 128, dtype=torch.float32)
    assert float(norm(capped(W, cap))) > cap / 1.03


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rounding_to_a_reduced_dtype_does_not_exceed_the_cap(dtype):
    ones = torch.ones(4, 4, dtype=dtype)  # all entries are rounded the same way: the worst case
    for k in range(300):
        c = 0.3 + k / 37
        assert float(norm(capped(3 * ones, c))) <= c
    for n in (1, 5, 32, 128):
        W = normal(20, n, n, seed=n) * torch.logspace(-1, 2, 20, dtype=f64).reshape(-1, 1, 1)
        assert float(norm(capped(W.to(dtype), 3.3)).max()) <= 3.3


@pytest.mark.parametrize("dtype", [torch.float32, f64, torch.bfloat16, torch.float16], ids=str)
def test_below_the_cap_nothing_changes_to_the_bit(dtype):
    W = normal(9, 9, dtype=dtype)
    S = float(schatten(W.float()))
    if dtype in (torch.bfloat16, torch.float16):  # which leave room for rounding
        S *= 1 + 3 * torch.finfo(dtype).eps / 2
    for k in range(300):
        assert torch.equal(capped(W, S * (1.001 + k / 37)), W), k
    assert capped(W, None) is W
    assert capped(W, 1e300) is W


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_one_product_never_calls_a_norm_below_a_limit_that_it_exceeds(dtype):
    """Of rank one the Frobenius norm of WᵀW is ‖W‖₂²: only the room for rounding is left."""
    ranks = [torch.outer(normal(n, seed=n), normal(n, seed=n + 1)) for n in (1, 2, 31, 200, 700)]
    for M in [*matrices(), *ranks, torch.zeros(3, 3), torch.full((4, 4), 1e-300, dtype=f64)]:
        W = M.to(dtype)
        exact = float(norm(W))
        assert not square_and_bound(W)[1] <= (exact * (1 - 1e-6)) ** 2
        most = float(W.shape[-1]) ** 0.25 * exact * 1.01 + 1e-12  # ‖WᵀW‖_F ≤ √N ‖W‖₂²
        assert square_and_bound(W)[1] <= most**2 or not 1e-10 < exact < 1e10
        assert capped(W, 2 * most) is W or not 1e-10 < exact < 1e10
    tiny = torch.finfo(dtype).tiny
    for n in (1, 10, 128):
        for size in (tiny**0.25, tiny**0.3, tiny**0.4, tiny**0.5, tiny**0.9):
            flat = torch.full((n, n), size, dtype=dtype)  # of norm n · size
            assert not square_and_bound(flat)[1] <= (n * size * 0.999) ** 2
            if size >= tiny**0.5:  # below, `schatten` has no room for the limit itself
                assert float(norm(capped(flat, n * size / 10))) <= n * size / 10
    for bad in (math.nan, math.inf):
        assert not square_and_bound(torch.full((3, 3), bad, dtype=dtype))[1] <= 1e60
    stack = torch.stack([torch.eye(3), 9 * torch.eye(3)]).to(dtype)
    assert square_and_bound(stack)[1] <= 12.0**2
    assert not square_and_bound(stack)[1] <= 8.9**2


def test_same_sees_every_change():
    a = normal(40, 30)
    assert same(a, a.clone())
    assert same(a.mT, a.mT.contiguous())
    assert same(a, a.mT.contiguous().mT)
    for i, j in ((0, 0), (39, 29), (17, 3)):
        b = a.clone()
        b[i, j] = torch.nextafter(b[i, j], b[i, j] + 1)
        assert not same(a, b)
        assert not same(a.mT, b.mT)
    for other in (a.float(), a[:-1], a.reshape(30, 40), torch._neg_view(a)):
        assert not same(a, other)
    assert same(torch._neg_view(a), -a)


def test_a_stack_is_capped_matrix_by_matrix():
    W = normal(4, 6, 3) * torch.tensor([0.01, 0.1, 1.0, 10.0]).reshape(4, 1, 1)
    assert schatten(W).shape == (4,)
    for one, together in zip(W, capped(W, 0.7), strict=True):
        torch.testing.assert_close(together, capped(one, 0.7), rtol=1e-14, atol=0)
    assert torch.equal(capped(W, 0.7)[0], W[0])
    torch.testing.assert_close(schatten(W.mT), schatten(W), rtol=1e-12, atol=0)


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (5, 3), (3, 5), (2, 3, 3)], ids=str)
def test_gradients_of_every_order_and_mode(shape):
    W = normal(*shape).requires_grad_()
    # Capped and free matrices in one stack.
    W.data *= torch.linspace(0.1, 2, shape[0], dtype=f64).reshape(-1, *[1] * (len(shape) - 1))
    for f in (schatten, lambda W: capped(W, 0.6)):
        assert torch.autograd.gradcheck(f, (W,), check_forward_ad=True, check_batched_grad=True)
        assert torch.autograd.gradgradcheck(f, (W,), atol=1e-4)


def test_the_gradient_is_that_of_the_formula():
    """∂S/∂W = U diag(σ^(p−1)) Vᵀ / S^(p−1), from a singular value decomposition."""
    W = normal(6, 4).requires_grad_()
    (found,) = torch.autograd.grad(schatten(W), W)
    U, s, Vt = torch.linalg.svd(W.detach(), full_matrices=False)
    S = s.pow(POWER).sum() ** (1 / POWER)
    torch.testing.assert_close(schatten(W.detach()), S, rtol=1e-13, atol=0)
    exact = U @ torch.diag((s / S) ** (POWER - 1)) @ Vt
    torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-13)
    c = 0.5
    G = normal(6, 4, seed=2)
    (capped_grad,) = torch.autograd.grad((capped(W, c) * G).sum(), W)
    by_hand = c / S * G - c / S**2 * (G * W.detach()).sum() * exact
    torch.testing.assert_close(capped_grad, by_hand, rtol=1e-11, atol=1e-13)


def test_transforms_of_torch_func():
    W, many = normal(4, 3), normal(5, 4, 3)
    many *= torch.linspace(0.05, 1, 5, dtype=f64).reshape(5, 1, 1)

    def f(W):
        return capped(W, 0.5)

    def g(W):
        return f(W).sin().sum()

    each = torch.stack([f(one) for one in many])
    torch.testing.assert_close(torch.vmap(f)(many), each, rtol=1e-14, atol=0)
    back = torch.func.jacrev(f)(W)
    torch.testing.assert_close(torch.func.jacfwd(f)(W), back, rtol=1e-11, atol=1e-13)
    plain = torch.autograd.functional.jacobian(f, W)
    torch.testing.assert_close(back, plain, rtol=1e-12, atol=1e-14)
    slopes = torch.vmap(torch.func.grad(g))(many)
    for one, slope in zip(many, slopes, strict=True):
        leaf = one.clone().requires_grad_()
        exact = torch.autograd.grad(g(leaf), leaf)[0]
        torch.testing.assert_close(slope, exact, rtol=1e-12, atol=1e-14)
    exact = torch.autograd.functional.hessian(g, W)
    rev, fwd = torch.func.jacrev, torch.func.jacfwd
    for twice in (torch.func.hessian(g), rev(rev(g)), fwd(fwd(g)), rev(fwd(g))):
        torch.testing.assert_close(twice(W), exact, rtol=1e-10, atol=1e-12)


# The tracer itself makes an instance of an autograd.Function.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("cap", [0.5, 100.0])
def test_compiled_in_one_graph(cap):
    torch._dynamo.reset()
    compiled = torch.compile(lambda W: capped(W, cap), fullgraph=True, backend="aot_eager")
    leaves = [normal(6, 6).requires_grad_() for _ in range(2)]
    found, exact = compiled(leaves[0]), capped(leaves[1], cap)
    torch.testing.assert_close(found, exact, rtol=1e-14, atol=0)
    found.sin().sum().backward()
    exact.sin().sum().backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad, rtol=1e-13, atol=1e-15)


def test_autocast_does_not_round_the_bound():
    W = normal(64, 64, dtype=torch.float32).requires_grad_()
    exact = capped(W, 0.5)
    (wanted,) = torch.autograd.grad(exact.square().sum(), W)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = capped(W, 0.5)
        (slope,) = torch.autograd.grad(found.square().sum(), W)
    assert torch.equal(found, exact)
    torch.testing.assert_close(slope, wanted, rtol=1e-4, atol=1e-6)


MAKERS = {
    "rnn": (lambda **kw: RoaRNN(3, 6, **kw), (7, 2, 3), ["weight_hh_l0"]),
    "cell": (lambda **kw: RoaRNNCell(3, 6, **kw), (2, 3), ["weight_hh"]),
    "ode": (lambda **kw: RoaODE(3, 6, **kw), (7, 2, 3), ["weight_hh_l0"]),
    "layer": (lambda **kw: RoaLayer(3, 6, **kw), (2, 3), ["weight"]),
    "deep": (lambda **kw: RoaFNN([3, 6, 6, 6], **kw), (2, 3), ["weight_0", "weight_1"]),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_layer_computes_with_the_capped_weights(name):
    make, shape, weights = MAKERS[name]
    settings = {"alpha": 0.1, "init": "normal", "dtype": f64}
    limited = make(max_norm=0.8, generator=gen(), **settings)
    free = make(max_norm=None, generator=gen(), **settings)
    with torch.no_grad():
        for weight in weights:
            assert torch.equal(limited.get_parameter(weight), free.get_parameter(weight))
            free.get_parameter(weight).copy_(capped(free.get_parameter(weight), 0.8))
    u = normal(*shape, seed=3)
    arguments = (u, normal(2, 6, seed=4)) if name == "cell" else (u,)
    outputs = [m(*arguments) for m in (limited, free)]
    outputs = [y[0] if isinstance(y, tuple) else y for y in outputs]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=1e-12, atol=1e-14)
    outputs[0].sum().backward()
    assert all(float(limited.get_parameter(w).grad.abs().max()) > 0 for w in weights)


@pytest.mark.parametrize("name", MAKERS)
def test_a_cap_that_is_far_changes_nothing_to_the_bit(name):
    make, shape, _ = MAKERS[name]
    settings = {"alpha": 0.1, "dtype": torch.float32}
    u = normal(*shape, seed=3, dtype=torch.float32)
    arguments = (u, normal(2, 6, seed=4, dtype=torch.float32)) if name == "cell" else (u,)
    free = make(max_norm=None, generator=gen(), **settings)(*arguments)
    for k in range(40):
        limited = make(max_norm=100 + k / 7, generator=gen(), **settings)(*arguments)
        for a, b in zip(limited, free, strict=True):
            assert torch.equal(a, b), k


def test_the_theorem_survives_any_update():
    """Weights a thousand times too large: the certificate still has a bound, and it holds."""
    rnn, free = (
        RoaRNN(2, 8, horizon=50, max_norm=cap, dtype=f64, generator=gen()) for cap in (2.0, None)
    )
    with torch.no_grad():
        for model in (rnn, free):
            model.weight_hh_l0.mul_(1000)
    certificate = certify(rnn, normal(50, 2))
    assert certificate.bounds.hypothesis
    assert certificate.bounds.sigma <= 2.0
    assert certificate.inside
    assert not certify(free, normal(50, 2)).bounds.hypothesis


@pytest.mark.parametrize("nonlinearity", ["relu", "tanh"])
def test_all_along_training_the_spectrum_stays_in_the_interval_told_before_it(nonlinearity):
    """Adam at a rate that drives ‖W‖ far beyond the cap, measured at every tenth update."""
    T, c = 40, 1.5
    rnn = RoaRNN(
        2, 12, horizon=T, max_norm=c, nonlinearity=nonlinearity, dtype=f64, generator=gen()
    )
    told = rnn.interval()
    readout = torch.nn.Linear(12, 1, dtype=f64)
    torch.nn.init.zeros_(readout.weight)
    optimizer = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=0.1)
    for k in range(101):
        u = normal(T, 16, 2, seed=k)
        loss = (readout(rnn(u)[0][-1])[:, 0] - u[3, :, 0] * u[T // 2, :, 1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if k % 10 == 0:
            certificate = certify(rnn, 10 * normal(T, 2, seed=1000 + k))
            assert "by construction" in str(certificate)
            found = certificate.log_singular_values
            assert len(found) == 12
            assert told.log_lower <= float(found.min()) <= float(found.max()) <= told.log_upper
    assert rnn.interval() == told
    assert float(norm(rnn.weight_hh_l0)) > 2 * c


@pytest.mark.parametrize("part", [0.5, 2])
@pytest.mark.parametrize("cls", [RoaRNN, RoaODE])
def test_the_interval_of_a_sequence_that_is_not_as_long_as_the_horizon(cls, part):
    """It holds where W is far beyond its cap, and is the power M / horizon of that for one."""
    T = 60
    steps = int(part * T)
    rnn = cls(2, 12, rho=0.5, horizon=T, max_norm=2.0, dtype=f64, generator=gen())
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(100)
    told, one = rnn.interval(steps), rnn.interval()
    certificate = certify(rnn, normal(steps, 2))
    assert certificate.bounds.finite == told
    found = certificate.log_singular_values
    assert told.log_lower <= float(found.min()) <= float(found.max()) <= told.log_upper
    for end, whole in ((told.log_lower, one.log_lower), (told.log_upper, one.log_upper)):
        assert end == pytest.approx(part * whole, rel=1e-12)
    assert one.log_lower == pytest.approx(T * math.log1p(-0.5 / T * 3), rel=1e-12)
    assert one.log_upper == pytest.approx(T * math.log1p(0.5 / T), rel=1e-12)


def test_a_learned_rho_is_certified_for_its_present_value_only():
    rnn = RoaRNN(2, 8, horizon=50, learn_rho=True, max_norm=2.0, dtype=f64, generator=gen())
    certificate = certify(rnn, normal(50, 2))
    assert certificate.inside
    assert "by construction" not in str(certificate)
    assert "for any input" in str(certificate)
    before = rnn.interval()
    with torch.no_grad():
        rnn.alpha_logit_l0.add_(1)
    assert rnn.interval().log_lower < before.log_lower
