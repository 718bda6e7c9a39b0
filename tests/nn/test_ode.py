"""Continuous time: the discrete layer at equal intervals, two readings of unequal ones, solvers."""

import copy
import itertools
import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence

from roann import RoaEuler, RoaFlow, RoaODE, RoaRNN, certify
from roann.diagnostics import Trajectory, bounds_of, log_singular_values, roa_bounds, spectral_norm
from roann.diagnostics.maps import FunctionMap
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.memory import MEMORIES

f64 = torch.float64
theorem = settings(deadline=None, max_examples=40, derandomize=True, database=None)


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1, dtype=f64):
    return torch.randn(*shape, generator=gen(seed), dtype=dtype)


def ode(N=6, **kw):
    kw = {"alpha": 0.1, "dtype": f64, "generator": gen(), "nonlinearity": "tanh"} | kw
    if "method" in kw:
        return RoaFlow(3, N, **kw)
    return {"isometric": RoaODE, "euler": RoaEuler}[kw.pop("reading", "isometric")](3, N, **kw)


GAPS = torch.tensor([0.5, 2.0, 0.0, 1.0, 3.7, 0.01], dtype=f64)


def drive(model, u):
    gain = model.gain_of("_l0")
    return (1 if gain is None else gain) * (u @ model.weight_ih_l0.T + model.bias_l0)


def by_hand(model, u, x, gaps, reading="euler"):
    """The states, from the equations of the appendix and of the isometric reading."""
    states = []
    for k, gap in enumerate(gaps):
        phi = torch.tanh(x @ model.weight().T + drive(model, u[k]))
        if reading == "euler":
            x = x + gap / model.tau * (x @ model.friction().T + phi)
        else:
            O = model.filter_l0.turned(gap / model.dt).to_dense()
            x = gap / model.tau * phi + (1 - gap / model.tau) * (x @ O.T)
        states.append(x)
    return torch.stack(states)


@pytest.mark.parametrize(
    ("reading", "filter"),
    [(r, f) for r in ("isometric", "euler") for f in ("broad", "rotations", "identity")]
    + [("euler", "qr")],
)
def test_eulers_step_of_the_appendix_is_the_discrete_layer(reading, filter):
    """Δt = 1/(L−1) and τ = 1/ρ: the layer of Eq. (19), name by name, and Euler's step of (D.1)."""
    L, rho = 9, 0.7
    rnn = RoaRNN(3, 6, nonlinearity="tanh", rho=rho, horizon=L - 1, filter=filter, dtype=f64)
    same = ode(rho=rho, horizon=L - 1, alpha=None, dt=1 / (L - 1), reading=reading, filter=filter)
    same.load_state_dict(rnn.state_dict())
    assert same.tau == pytest.approx(1 / rho, rel=1e-15)
    u, hx = data(L - 1, 2, 3), data(1, 2, 6)
    output, h_n = rnn(u, hx)
    assert torch.equal(same(u, hx)[0], output)
    assert torch.equal(same(u, hx)[1], h_n)
    exact = by_hand(same, u, hx[0], [1 / (L - 1)] * (L - 1))
    torch.testing.assert_close(output, exact, rtol=1e-12, atol=1e-14)
    stamped, _ = same(u, hx, times=torch.arange(L - 1, dtype=f64) / (L - 1))
    torch.testing.assert_close(stamped, output, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reading", ["isometric", "euler"])
@pytest.mark.parametrize("vector", [False, True])
def test_unequal_intervals(reading, vector):
    alpha = 0.01 * torch.arange(1, 7, dtype=f64) if vector else 0.1
    model = ode(alpha=alpha, reading=reading, dt=0.5)
    u, hx = data(6, 2, 3), data(1, 2, 6)
    gaps = 0.5 * GAPS
    output, h_n = model(u, hx, intervals=gaps)
    exact = by_hand(model, u, hx[0], gaps, reading)
    torch.testing.assert_close(output, exact, rtol=1e-12, atol=1e-13)
    assert torch.equal(h_n[0], output[-1])
    assert model(u, hx, intervals=gaps, last_only=True)[0] is None
    times = torch.cat([torch.tensor([1e9], dtype=f64), 1e9 + gaps[1:].cumsum(0)])
    by_times, _ = model(u, hx, times=times)
    first = torch.cat([torch.tensor([0.5], dtype=f64), times.diff()])
    torch.testing.assert_close(by_times, model(u, hx, intervals=first)[0], rtol=1e-13, atol=1e-14)
    x = hx[0]
    for k in range(6):
        x = model.step(x, u[k], gaps[k])
    torch.testing.assert_close(x, h_n[0], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("reading", ["isometric", "euler"])
@pytest.mark.parametrize("learned", [False, True])
def test_every_path_gives_the_gradients_of_the_plain_loop(reading, learned):
    """Scan, memory modes and rows against the reference: every parameter, the input and hx."""
    start = torch.linspace(0.005, 0.05, 6, dtype=f64) if learned else 0.05

    def gradients(**kw):
        rows = kw.pop("rows", False)
        model = ode(alpha=start, learn_rho=learned, reading=reading, init="scaled_normal", **kw)
        leaves = [data(6, 2, 3).requires_grad_(), data(1, 2, 6).requires_grad_()]
        gaps = GAPS.unsqueeze(1).expand(6, 2) if rows else GAPS
        output, h_n = model(leaves[0], leaves[1], intervals=gaps)
        loss = output.sin().sum() + h_n.square().sum()
        return [output.detach(), *torch.autograd.grad(loss, [*leaves, *model.parameters()])]

    truth = gradients(backend="reference")
    modes = [m for m in MEMORIES if reading == "isometric" or m != "reversible"]
    for how in [{"rows": True}, *({"memory": m} for m in modes)]:
        for a, b in zip(gradients(**how), truth, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11, msg=str(how))


@pytest.mark.parametrize("reading", ["isometric", "euler"])
def test_intervals_themselves_have_gradients(reading):
    model = ode(reading=reading)
    u = data(6, 2, 3)
    gaps = (GAPS + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda g: model(u, intervals=g)[1], (gaps,))


@pytest.mark.parametrize("reading", ["isometric", "euler"])
def test_rows_with_their_own_clocks(reading):
    """Each row as if it were alone: batched, batch first, packed."""
    model = ode(reading=reading)
    first = copy.copy(model)
    first.batch_first = True
    gaps = torch.stack([GAPS, GAPS.flip(0), 0.3 * GAPS], 1)
    u, hx = data(6, 3, 3), data(1, 3, 6)
    output, h_n = model(u, hx, intervals=gaps)
    for row in range(3):
        alone, last = model(u[:, row], hx[:, row], intervals=gaps[:, row])
        torch.testing.assert_close(output[:, row], alone, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(h_n[:, row], last, rtol=1e-12, atol=1e-13)
    turned, _ = first(u.transpose(0, 1), hx, intervals=gaps.T)
    assert torch.equal(turned.transpose(0, 1), output)
    lengths = [3, 6, 1]
    packed = pack_sequence([u[:n, i] for i, n in enumerate(lengths)], enforce_sorted=False)
    out, last = model(packed, hx, intervals=gaps)
    padded, _ = nn.utils.rnn.pad_packed_sequence(out)
    stamps = 5 + gaps.cumsum(0) - gaps[0]
    behind = torch.arange(6).unsqueeze(1) >= torch.tensor(lengths)
    ragged = model(packed, hx, times=stamps.masked_fill(behind, 0.0))[1]  # padded as torch pads
    assert torch.equal(ragged, model(packed, hx, times=stamps)[1])
    shared, _ = model(packed, hx, intervals=GAPS)
    whole, _ = nn.utils.rnn.pad_packed_sequence(shared)
    for row, n in enumerate(lengths):
        torch.testing.assert_close(padded[:n, row], output[:n, row], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(last[0, row], output[n - 1, row], rtol=1e-12, atol=1e-13)
        alone, _ = model(u[:n, row], hx[:, row], intervals=GAPS[:n])
        torch.testing.assert_close(whole[:n, row], alone, rtol=1e-12, atol=1e-13)


@theorem
@given(
    gaps=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=25),
    N=st.integers(1, 7),
    phi=st.sampled_from(sorted(ACTIVATIONS)),
    size=st.sampled_from([0.0, 0.1, 1.0, 3.0]),
    vector=st.booleans(),
    identity=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_the_theorem_holds_under_any_sampling(gaps, N, phi, size, vector, identity, seed):
    """All singular values of ∂x_M/∂x_0 in Π(1 − α_k(1+rσ)) … Π(1 + α_k(rσ−1)), α_k = Δt_k/τ."""
    dt, tau = 0.05, 1.0
    alpha = dt / tau
    if vector:
        alpha = alpha * torch.rand(N, generator=gen(seed + 1), dtype=f64).clamp_min(1e-3)
    name = "identity" if identity else "rotations"
    model = RoaODE(2, N, phi, alpha=alpha, dt=dt, filter=name, dtype=f64, generator=gen(seed))
    with torch.no_grad():
        model.weight_hh_l0.mul_(size)
    u, x = data(len(gaps), 2, seed=seed + 2), data(N, seed=seed + 3)
    states, maps = [x], []
    for u_k, gap in zip(u, gaps, strict=True):
        maps.append(FunctionMap(lambda x, u, gap=gap: model.step(x, u, gap), u_k))
        states.append(maps[-1](states[-1]).detach())
    logs = log_singular_values(Trajectory(tuple(states), tuple(maps)).jacobians())
    alphas = torch.tensor(gaps, dtype=f64).unsqueeze(1) / dt * alpha
    sigma = float(spectral_norm(model.weight_hh_l0))
    bounds = roa_bounds(alphas, sigma, len(gaps), ACTIVATIONS[phi].r)
    assert bounds.finite.contains(logs, 1e-11)
    assert bounds.sharp.contains(logs, 1e-11)
    if not vector:
        rho = sum(gaps) / tau  # the time that passed: how often it was sampled does not matter
        growth = ACTIVATIONS[phi].r * sigma - 1
        assert bounds.asymptotic.log_upper == pytest.approx(rho * growth, abs=1e-9)


def test_time_composes():
    """Without a nonlinear part only the time that passed turns the state: O^a O^b = O^(a+b)."""
    model = ode(alpha=0.01)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    hx, u = data(1, 2, 6), torch.zeros(6, 2, 3, dtype=f64)
    _, h_n = model(u, hx, intervals=GAPS)
    scale = float((1 - 0.01 * GAPS).prod())
    exact = scale * model.filter_l0.turned(GAPS.sum()).matvec(hx)
    torch.testing.assert_close(h_n, exact, rtol=1e-12, atol=1e-13)


def test_eulers_reading_forgets_under_unequal_intervals():
    """The guarantee is lost: steps of half Δt multiply a mode e^(iθ) by (1 + (1−α)e^(iθ))/2."""
    kw = {"alpha": 0.001, "N": 2, "nonlinearity": "identity"}
    u, gaps = torch.zeros(60, 1, 3, dtype=f64), torch.full((60,), 0.5, dtype=f64)
    norms = {}
    for reading in ("isometric", "euler"):
        model = ode(reading=reading, **kw)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        _, h_n = model(u, torch.ones(1, 1, 2, dtype=f64), intervals=gaps)
        norms[reading] = float(h_n.detach().norm()) / math.sqrt(2)
    theta = float(model.filter_l0.angle[0].abs())
    per_step = math.hypot(1 + 0.999 * math.cos(theta), 0.999 * math.sin(theta)) / 2
    assert norms["isometric"] == pytest.approx(0.9995**60, rel=1e-12)
    assert norms["euler"] == pytest.approx(per_step**60, rel=1e-9)
    assert per_step < 0.99


def test_solvers_against_exact_flows():
    """With φ off, torchdiffeq must find e^(tA/τ) and e^(−t/τ) O^(t/Δt)."""
    gaps = torch.tensor([0.3, 1.2], dtype=f64)
    u, hx = torch.zeros(2, 2, 3, dtype=f64), data(1, 2, 6)
    for reading in ("euler", "isometric"):
        model = ode(reading=reading, method="dopri5", tolerance=1e-10, dt=0.8)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        total = float(gaps.sum())
        if reading == "euler":
            flow = torch.linalg.matrix_exp(model.friction() * total / model.tau)
        else:
            flow = (
                math.exp(-total / model.tau)
                * model.filter_l0.turned(torch.tensor(total / 0.8, dtype=f64)).to_dense()
            )
        _, h_n = model(u, hx, intervals=gaps)
        torch.testing.assert_close(h_n, hx @ flow.T, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("reading", ["isometric", "euler"])
def test_small_steps_converge_to_the_solver(reading):
    """One step of each reading is of first order: the error halves with the step."""
    kw = {"reading": reading, "init": "scaled_normal", "filter": "rotations"}
    exact = ode(method="dopri5", tolerance=1e-10, **kw)
    u, hx = data(1, 2, 3), data(1, 2, 6)
    target = exact(u, hx, intervals=torch.ones(1))[1]
    model = ode(**kw)
    errors = []
    for n in (64, 128, 256):
        held = u.expand(n, 2, 3)
        found = model(held, hx, intervals=torch.full((n,), 1 / n, dtype=f64))[1]
        errors.append(float((found - target).detach().norm()))
    for coarse, fine in itertools.pairwise(errors):
        assert coarse / fine == pytest.approx(2, rel=0.1)


def test_solvers_take_rows_and_give_gradients():
    model = ode(method="rk4", reading="euler")
    gaps = torch.stack([GAPS, GAPS.flip(0)], 1)
    u = data(6, 2, 3)
    output, _ = model(u, intervals=gaps)
    for row in range(2):
        alone, _ = model(u[:, row], intervals=gaps[:, row])
        torch.testing.assert_close(output[:, row], alone, rtol=1e-12, atol=1e-13)
    output.sum().backward()
    assert all(float(p.grad.abs().max()) > 0 for p in model.parameters())
    assert model(u)[0].shape == (6, 2, 6)  # no time stamps: dt each


def test_without_torchdiffeq(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    with pytest.raises(ImportError, match=r"method: .*torchdiffeq .*pip install roann\[ode\]"):
        ode(method="dopri5")
    assert ode()(data(6, 2, 3), intervals=GAPS)[0].shape == (6, 2, 6)


BAD_MAKINGS = [
    ({"filter": "qr"}, ValueError, "filter: expected 'broad' or another .* powers .* got 'qr'"),
    ({"reading": "eular", "method": "rk4"}, ValueError, "did you mean 'euler'"),
    ({"filter": "qr", "method": "rk4"}, ValueError, "filter: expected 'broad' or another"),
    ({"tolerance": 0, "method": "rk4"}, ValueError, "tolerance: expected a finite number above 0"),
    ({"dt": 0}, ValueError, "dt: expected a finite number above 0"),
    ({"method": "dopri"}, ValueError, "method: expected a method of torchdiffeq"),
    ({"alpha": None}, ValueError, "horizon"),
]


@pytest.mark.parametrize(("arguments", "error", "match"), BAD_MAKINGS)
def test_bad_makings(arguments, error, match):
    with pytest.raises(error, match=match):
        ode(**arguments)


BAD_CALLS = [
    ({"intervals": -GAPS}, "intervals: expected finite, none below 0, got a smallest step of -3.7"),
    ({"times": GAPS}, "times: expected finite numbers that never fall"),
    ({"times": GAPS, "intervals": GAPS}, "times: expected None when intervals are given"),
    ({"intervals": GAPS[:4]}, r"intervals: expected a tensor \(6,\), or \(6, 2\) .* got \(4,\)"),
    ({"intervals": [1.0] * 6}, "intervals: expected a tensor .* got list"),
    ({"intervals": 5 * GAPS}, r"intervals: expected steps shorter than τ .* got one of 1.85 τ"),
    ({"intervals": GAPS * math.nan}, "intervals: expected finite"),
]


@pytest.mark.parametrize(("arguments", "match"), BAD_CALLS)
def test_bad_calls(arguments, match):
    with pytest.raises(ValueError, match=match):
        ode()(data(6, 2, 3), **arguments)


def test_what_eulers_steps_cannot_do_is_said():
    u = data(6, 2, 3)
    with pytest.raises(ValueError, match="backend: expected 'auto', 'fused' or 'reference'"):
        ode(reading="euler", backend="native")(u, intervals=GAPS)
    with pytest.raises(ValueError, match="memory: expected 'store' or 'checkpoint'"):
        ode(reading="euler", memory="reversible")(u, intervals=GAPS)
    with pytest.raises(ValueError, match="steps shorter than τ"):
        ode(reading="euler").step(u[0, :, :1].expand(2, 6), u[0], 10.0)
    assert ode().step(data(2, 6), u[0], 10.0).shape == (2, 6)  # α_k = 1: the filter is let go
    plain = ode(alpha=1.0, reading="euler")
    first = plain.step(torch.zeros(2, 6, dtype=f64), u[0])
    torch.testing.assert_close(first, plain(u)[0][0], rtol=1e-13, atol=1e-14)
    with pytest.raises(ValueError, match="steps shorter than τ"):
        plain(u, intervals=torch.ones(6))


def test_certificates_and_layouts():
    rnn = RoaRNN(3, 6, nonlinearity="tanh", alpha=0.01, filter="rotations", dtype=f64)
    model = ode(alpha=0.01, filter="rotations")
    model.load_state_dict(rnn.state_dict())
    u = data(20, 3)
    ours, theirs = certify(model, u), certify(rnn, u)
    assert ours.bounds == theirs.bounds
    assert ours.inside
    torch.testing.assert_close(
        ours.log_singular_values, theirs.log_singular_values, rtol=1e-9, atol=1e-10
    )
    assert bounds_of(ode(reading="euler", alpha=0.01), 5) == bounds_of(ode(alpha=0.01), 5)
    assert bounds_of(ode(reading="euler", method="rk4"), 5) is None
    assert model(torch.zeros(4, 0, 3, dtype=f64), intervals=torch.ones(4))[0].shape == (4, 0, 6)
    ghost = ode(device="meta")
    assert ghost(torch.empty(5, 2, 3, device="meta", dtype=f64))[0].shape == (5, 2, 6)
    for kw, rest in (
        ({"reading": "euler", "memory": "checkpoint"}, ", memory=checkpoint"),
        ({"reading": "euler", "method": "rk4"}, ", reading=euler, method=rk4"),
        ({}, ""),
    ):
        first = repr(ode(dt=0.5, **kw)).splitlines()[1]
        assert first.strip() == "3, 6, alpha=0.1, dt=0.5, nonlinearity=tanh, max_norm=8.1" + rest


@pytest.mark.parametrize("cls", [RoaODE, RoaEuler, RoaFlow])
def test_weights_of_another_reading_are_refused(cls):
    """The same tensors under another reading are another function."""
    kw = {"alpha": 0.1, "filter": "rotations"}
    models = [RoaODE(3, 6, **kw), RoaEuler(3, 6, **kw), RoaFlow(3, 6, **kw)]
    ours = cls(3, 6, **kw)
    for other in models:
        if type(other) is cls:
            ours.load_state_dict(other.state_dict())
        else:
            with pytest.raises(RuntimeError, match=r"(reading|method)=.* as in this layer, got"):
                ours.load_state_dict(other.state_dict())


def test_autocast_keeps_the_state_in_float32():
    model = ode(dtype=torch.float32)
    u = data(6, 2, 3, dtype=torch.float32)
    gaps = GAPS.unsqueeze(1).expand(6, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = model(u, intervals=gaps)
    assert torch.equal(output, model(u, intervals=gaps)[0])
