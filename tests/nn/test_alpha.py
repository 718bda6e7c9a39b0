"""α as a number, one per neuron, or learned; multi-scale starts; what survives copies and files."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

import roann
from roann import RoaFNN, RoaLayer, RoaRNN, RoaRNNCell, filters, multiscale
from roann.kernels import native
from roann.kernels.memory import MEMORIES

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

f64 = torch.float64
BACKENDS = ("fused", "native") if native.available() else ("fused",)
START = {
    "number": 0.05,
    "vector": torch.tensor([0.01, 0.05, 0.2, 0.7], dtype=f64),
}


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1, dtype=f64):
    return torch.randn(*shape, generator=gen(seed), dtype=dtype)


MAKERS = {
    "rnn": (lambda **kw: RoaRNN(3, 4, 2, bidirectional=True, **kw), data(6, 2, 3)),
    "cell": (lambda **kw: RoaRNNCell(3, 4, **kw), data(2, 3)),
    "layer": (lambda **kw: RoaLayer(3, 4, **kw), data(2, 3)),
    "deep": (lambda **kw: RoaFNN([3, 4, 4, 4], **kw), data(2, 3)),
}


def learner(name, kind, **kw):
    """A model with a learned α, and what it is given."""
    make, inputs = MAKERS[name]
    kw = {"alpha": START[kind], "learn_rho": True, "dtype": f64, "generator": gen()} | kw
    return make(**kw), inputs


def answer(model, inputs):
    output = model(inputs)
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("kind", START)
@pytest.mark.parametrize("name", MAKERS)
def test_a_learned_alpha_starts_where_it_is_told(kind, name):
    """The same answer as with the fixed α, to rounding; one more parameter for each scan or map."""
    learned, inputs = learner(name, kind)
    fixed, _ = learner(name, kind, learn_rho=False)
    torch.testing.assert_close(
        answer(learned, inputs), answer(fixed, inputs), rtol=1e-13, atol=1e-14
    )
    names = {n for n, _ in learned.named_parameters()} - {n for n, _ in fixed.named_parameters()}
    each = 1 if kind == "number" else 4
    sizes = {"rnn": 4 * each, "cell": each, "layer": each, "deep": 3 * each}
    assert sum(learned.get_parameter(n).numel() for n in names) == sizes[name]
    assert all(n.startswith("alpha_logit") for n in names)
    shapes = {"rnn": (4,), "cell": (), "layer": (), "deep": (3,) if kind == "vector" else (3, 1)}
    start = torch.as_tensor(START[kind], dtype=f64)
    wanted = start.expand((*shapes[name], *start.shape))
    torch.testing.assert_close(learned.alpha.detach(), wanted, rtol=1e-14, atol=0)


@pytest.mark.filterwarnings("ignore::roann.kernels.memory.DriftWarning")
@pytest.mark.parametrize("kind", START)
@pytest.mark.parametrize("name", ["rnn", "deep"])
def test_every_kernel_gives_the_gradient_of_a_learned_alpha(kind, name):
    """Every fast path against the plain loop, and the plain loop against finite differences."""
    found = {}
    for backend in ("reference", *BACKENDS):
        for memory in MEMORIES if backend != "reference" else ("store",):
            # A filter that mixes all neurons: those that never fire have gradients, too.
            model, inputs = learner(name, kind, filter="qr", backend=backend, memory=memory)
            answer(model, inputs).sin().sum().backward()
            logits = [p.grad for n, p in model.named_parameters() if n.startswith("alpha_logit")]
            found[backend, memory] = torch.cat([g.reshape(-1) for g in logits])
    exact = found["reference", "store"]
    assert float(exact.abs().min()) > 0
    for how, gradient in found.items():
        torch.testing.assert_close(gradient, exact, rtol=1e-10, atol=1e-12, msg=str(how))
    model, inputs = learner(name, kind, filter="qr")
    logit = model.get_parameter("alpha_logit_l0" if name == "rnn" else "alpha_logit_0")
    sides = []
    with torch.no_grad():
        for shift in (1e-6, -2e-6):
            logit.reshape(-1)[0] += shift
            sides.append(float(answer(model, inputs).sin().sum()))
    assert (sides[0] - sides[1]) / 2e-6 == pytest.approx(float(exact[0]), rel=1e-6, abs=1e-8)


def test_alpha_stays_inside_whatever_the_optimiser_does():
    """0 < α < 1 and ρ > 0 by construction, under learning rates that are far too large."""
    for sign in (1, -1):
        rnn = RoaRNN(2, 3, horizon=10, learn_rho=True, dtype=f64, generator=gen())
        optimiser = torch.optim.Adam([rnn.alpha_logit_l0], lr=3.0)
        for _ in range(10):
            optimiser.zero_grad()
            (sign * rnn.alpha).backward()
            optimiser.step()
        assert 0 < float(rnn.alpha.detach()) < 1
        assert (float(rnn.alpha.detach()) > 0.999) == (sign < 0)
    for dtype in (torch.float32, f64):
        rnn = RoaRNN(2, 3, horizon=10, learn_rho=True, dtype=dtype, generator=gen())
        for logit in (-1e4, 1e4):  # where the sigmoid itself is rounded to 0 or 1
            torch.nn.init.constant_(rnn.alpha_logit_l0, logit)
            assert 0 < float(rnn.alpha.detach()) < 1


def test_it_learns_the_alpha_of_a_teacher():
    """With W, W_i, b and O known, gradient descent on the logits alone recovers α, per neuron."""
    true = torch.tensor([0.02, 0.05, 0.1, 0.3], dtype=f64)
    kw = {"nonlinearity": "tanh", "init": "scaled_normal", "gain": 1.0, "dtype": f64}
    kw["filter"] = {"name": "broad", "horizon": 50}  # which would follow from the first α
    teacher = RoaRNN(3, 4, alpha=true, generator=gen(), **kw)
    pupil = RoaRNN(
        3, 4, alpha=torch.full((4,), 0.1, dtype=f64), learn_rho=True, generator=gen(), **kw
    )
    u = data(30, 8, 3)
    wanted = teacher(u)[0].detach()
    optimiser = torch.optim.Adam([pupil.alpha_logit_l0], lr=0.1)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.mse_loss(pupil(u)[0], wanted).backward()
        optimiser.step()
    torch.testing.assert_close(pupil.alpha.detach(), true, rtol=1e-2, atol=0)


def test_every_layer_and_direction_has_its_own():
    rnn, u = learner("rnn", "vector")
    names = [n for n, _ in rnn.named_parameters() if "alpha" in n]
    assert names == [f"alpha_logit_l{k}{end}" for k in (0, 1) for end in ("", "_reverse")]
    with torch.no_grad():
        rnn.alpha_logit_l1_reverse.fill_(-50.0)  # α ≈ 0: this scan keeps its zero state
    h_n = rnn(u)[1].detach()
    assert float(h_n[3].abs().max()) < 1e-15
    assert float(h_n[2].abs().max()) > 1e-3
    assert rnn.alpha.shape == (4, 4)
    assert torch.equal(rnn.alpha[2], rnn.alpha_of("_l1"))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_asked_for_its_own_alpha(copied):
    """`copy.copy` as the replicas of DataParallel are made: other tensors, the same attributes."""
    rnn, _ = learner("rnn", "vector")
    other = copied(rnn)
    other._parameters = {n: nn.Parameter(p + 1) for n, p in rnn._parameters.items() if "alpha" in n}
    for suffix, alpha in other.scan_alphas.items():
        moved = torch.sigmoid(getattr(rnn, "alpha_logit" + suffix) + 1)
        assert torch.equal(alpha.of(other), moved)
        assert torch.equal(alpha.of(rnn), rnn.alpha_of(suffix))
        assert not torch.equal(alpha.of(rnn), moved)


def test_rows_are_told_by_place_not_by_name():
    rows = torch.arange(1.0, 13).unsqueeze(1) / 20
    rnn = RoaRNN(2, 3, 12, alpha=rows, init="scaled_normal", bidirectional=True, generator=gen())
    found = torch.stack([alpha.of(rnn) for alpha in rnn.scan_alphas.values()])
    assert torch.equal(found, rows.flatten().repeat_interleave(2))


def test_a_vector_rho_is_a_vector_alpha():
    rho = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=f64)
    a = RoaRNN(3, 4, rho=rho, horizon=20, dtype=f64, generator=gen())
    b = RoaRNN(3, 4, alpha=rho / 20, dtype=f64, generator=gen())
    assert torch.equal(a.alpha, rho / 20)
    assert torch.equal(a(data(6, 2, 3))[0], b(data(6, 2, 3))[0])
    rho.zero_()  # the layer keeps its own copy
    assert float(a.alpha.min()) > 0


@pytest.mark.parametrize("kind", START)
@pytest.mark.parametrize("name", MAKERS)
def test_copies_files_and_resets(kind, name, tmp_path):
    model, inputs = learner(name, kind)
    first = [p.detach().clone() for n, p in model.named_parameters() if "alpha" in n]
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "alpha" in n:
                p += torch.randn(p.shape, generator=gen(5), dtype=f64)
    expected = answer(model, inputs)
    roann.save(model, tmp_path / "m.safetensors")
    fresh, _ = learner(name, kind)
    fresh.load_state_dict(model.state_dict())
    loaded = roann.load(tmp_path / "m.safetensors")
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded, fresh):
        assert torch.equal(answer(twin, inputs), expected)
        assert repr(twin) == repr(model)
        assert twin.settings() == model.settings()
    assert "learned" in repr(model)
    loaded.reset_parameters(gen())
    reset = [p for n, p in loaded.named_parameters() if "alpha" in n]
    for a, b in zip(reset, first, strict=True):
        assert torch.equal(a, b)
    single = copy.deepcopy(model).float()
    torch.testing.assert_close(
        answer(single, inputs.float()).double(), expected, rtol=1e-4, atol=1e-5
    )


def test_functional_call_reaches_it():
    kw = {"max_norm": None, "dtype": f64}
    rnn = RoaRNN(3, 4, horizon=8, learn_rho=True, generator=gen(), **kw)
    u = data(8, 2, 3)
    other = {"alpha_logit_l0": torch.tensor(0.0, dtype=f64)}
    # Filter and gain stay as the first α made them.
    kw |= {"filter": rnn.filter_l0, "gain": rnn.gain_of("_l0")}
    half = RoaRNN(3, 4, alpha=0.5, generator=gen(), **kw)
    called = torch.func.functional_call(rnn, other, (u,))[0]
    torch.testing.assert_close(called, half(u)[0], rtol=1e-13, atol=1e-13)


def test_multiscale_is_even_in_the_logarithm():
    alpha = multiscale(5, 10, 1000)
    assert alpha.dtype == torch.get_default_dtype()
    torch.testing.assert_close(1 / alpha, torch.tensor([10, 10**1.5, 100, 10**2.5, 1000]))
    rnn = RoaRNN(2, 5, alpha=alpha, learn_rho=True, generator=gen())
    torch.testing.assert_close(rnn.alpha.detach(), alpha, rtol=1e-5, atol=0)
    for bad in ((0.5, 10), (10, 5), (-1, 5), (1, math.inf)):
        with pytest.raises(ValueError, match=r"shortest|longest"):
            multiscale(5, *bad)


def test_a_mixing_filter_averages_the_rates():
    """diag(1 − α) O decays at one rate in every mode if O mixes; at each neuron's own if not."""
    N = 256
    alpha = multiscale(N, 10, 10_000).double()
    rates = {}
    for name in ("haar", "identity"):
        O = filters.make(name, N, generator=gen(), dtype=f64).to_dense().double()
        rates[name] = -torch.linalg.eigvals(torch.diag(1 - alpha) @ O).abs().log()
    mean = float(-torch.log1p(-alpha).mean())  # exactly: the determinant is the product
    assert float(rates["haar"].mean()) == pytest.approx(mean, rel=1e-9)
    assert float(rates["haar"].std()) < 0.15 * mean
    assert float(rates["identity"].max() / rates["identity"].min()) > 900


BAD = [
    ({"alpha": 0.0}, ValueError, "alpha: expected a first value strictly between 0 and 1"),
    ({"alpha": 1.0}, ValueError, "alpha: expected a first value strictly"),
    ({"alpha": torch.tensor([0.1, 0.1, 0.0, 0.1])}, ValueError, r"strictly .* got \[0, 0.1\]"),
    ({"horizon": 9, "learn_rho": "yes"}, TypeError, "learn_rho: expected True or False"),
    ({"horizon": 9, "rho": torch.ones(3)}, ValueError, r"rho: expected a float or a float tensor"),
    ({"horizon": 9, "rho": torch.zeros(4)}, ValueError, "rho: expected numbers above 0"),
    (
        {"horizon": 9, "rho": 10 * torch.ones(4)},
        ValueError,
        "a rho up to 10 and horizon=9 give alpha = rho / horizon; lower rho",
    ),
]


@pytest.mark.parametrize(("arguments", "error", "match"), BAD)
def test_bad_makings(arguments, error, match):
    with pytest.raises(error, match=match):
        RoaRNN(3, 4, **({"learn_rho": True} | arguments))


def test_a_vector_needs_one_width():
    with pytest.raises(ValueError, match=r"alpha: expected a float or .* \(2, 1\), got shape"):
        RoaFNN([4, 4, 2], alpha=torch.full((2,), 0.1))


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_every_layer_of_a_stack_may_have_its_own_alpha(tmp_path, width, learned, bidirectional):
    """As layers stacked by hand, each with its row."""
    alpha = torch.rand(3, width, generator=gen(1), dtype=f64) / 2
    kw = {"dtype": f64, "learn_rho": learned, "bidirectional": bidirectional, "max_norm": None}
    stack = RoaRNN(2, 4, 3, alpha=alpha, generator=gen(), **kw)
    u = x = torch.randn(5, 3, 2, generator=gen(2), dtype=f64)
    for k in range(3):
        row = alpha[k] if width == 4 else float(alpha[k])
        one = RoaRNN(x.shape[-1], 4, alpha=row, generator=gen(), **kw)
        theirs = {n.replace(f"_l{k}", "_l0"): t for n, t in stack.state_dict().items()}
        one.load_state_dict({n: theirs[n] for n in one.state_dict() if n != "_alpha"}, strict=False)
        x = one(x)[0]
    torch.testing.assert_close(stack(u)[0], x, rtol=1e-13, atol=1e-14)
    roann.save(stack, tmp_path / "stack.safetensors")
    assert torch.equal(roann.load(tmp_path / "stack.safetensors")(u)[0], stack(u)[0])


@pytest.mark.parametrize("learned", [False, True])
def test_every_map_of_a_deep_network_may_have_its_own_alpha(learned):
    sizes, alpha = [3, 5, 5, 5, 2], torch.tensor([[0.1], [0.2], [0.3], [0.4]], dtype=f64)
    net = RoaFNN(sizes, alpha=alpha, learn_rho=learned, dtype=f64, generator=gen())
    torch.testing.assert_close(net.alpha, alpha, rtol=1e-13, atol=0)
    x = given = torch.randn(4, 3, generator=gen(3), dtype=f64)
    k = 0
    for i, run in enumerate(net.runs):
        for d in range(run.depth):
            W, b = net.get_parameter(f"weight_{i}")[d], net.get_parameter(f"bias_{i}")[d]
            O = net.get_submodule(f"filter_{i}").to_dense()[d]
            x = alpha[k] * torch.tanh(x @ W.T + b) + (1 - alpha[k]) * x @ O.T
            k += 1
    torch.testing.assert_close(net(given), x, rtol=1e-13, atol=1e-14)


def test_rows_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match=r"rho: expected a float or .* \(4,\) or \(3, 1\) or \(3, 4\)"
    ):
        RoaRNN(2, 4, 3, rho=torch.ones(2, 4), horizon=9)
    with pytest.raises(ValueError, match=r"alpha: expected a float or a float tensor \(4,\), got"):
        RoaRNN(2, 4, alpha=torch.full((1, 4), 0.1))
    with pytest.raises(
        ValueError, match=r"alpha: expected a float or a float tensor \(2, 1\), got"
    ):
        RoaFNN([2, 3, 4], alpha=torch.full((2, 4), 0.1))
