"""The compiled kernel against the plain loop, over odd sizes and every instruction set.

AddressSanitizer, once by hand (the kernel is loaded into a plain Python):

    g++ -std=c++17 -O1 -g -fsanitize=address,undefined -ffp-contract=off -fPIC -shared -pthread \
        src/roann/kernels/native.cpp -o $(ls src/roann/kernels/_native*.so)
    LD_PRELOAD="$(echo $(for l in asan ubsan stdc++; do gcc -print-file-name=lib$l.so; done))" \
        ASAN_OPTIONS=detect_leaks=0 python -m pytest tests/kernels/test_native.py
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
import torch
from held_to import run_held_to
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import ALPHAS, FORMS, all_before, cast, gradients_for, make, plain

from roann.kernels import fused, native
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import Gather
from roann.kernels.problem import Problem
from roann.kernels.ragged import Ragged

pytestmark = pytest.mark.skipif(
    not native.available(), reason=f"the native kernel: {native.why_not()}"
)


def sweeps(p, g_states, g_last):
    """The same four by the native kernel."""
    states, trace = native.forward(p, True)
    return states, *native.backward(p, trace, states, g_states, g_last)[:3]


NAMES = ("x", "a", "λ[0]", "λ (φ − O x)")


def assert_agrees(p):
    given_ = gradients_for(p)
    wanted = plain(p, *(g.double() for g in given_))
    # Each of T steps rounds sums of N + I + 2 terms of order one.
    bound = torch.finfo(p.W.dtype).eps * (p.steps + 4) * (p.W.shape[-1] + 30)
    for name, got, want in zip(NAMES, sweeps(p, *given_), wanted, strict=True):
        if name == "λ (φ − O x)" and not p.terms:
            assert got is None
            continue
        assert got.shape == want.shape, name
        error = float((got.double() - want).abs().max()) / max(1.0, float(want.abs().max()))
        assert error <= bound, (name, error, bound)


problems = st.fixed_dictionaries(
    {
        "T": st.sampled_from((1, 2, 3, 7)),
        "B": st.sampled_from((1, 2, 3, 5, 13, 16, 17, 65)),
        "N": st.sampled_from((1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 50, 300)),
        "I": st.sampled_from((0, 1, 3, 17, 20)),
        "phi": st.sampled_from(sorted(set(ACTIVATIONS) - {"relu", "leaky_relu"})),
        "form": st.sampled_from(FORMS),
        "alpha": st.sampled_from(sorted(ALPHAS)),
        "deep": st.booleans(),
        "deep_O": st.booleans(),
        "bias": st.booleans(),
        "ragged": st.booleans(),
        "dtype": st.sampled_from((torch.float32, torch.float64)),
        "seed": st.integers(0, 10**6),
        "top": st.sampled_from((0.5, 1.5)),
        "learned": st.booleans(),
    }
)


@settings(max_examples=150, deadline=None)
@given(problems)
def test_smooth_sweeps_equal_autograd_of_the_reference(how):
    assert_agrees(make(**how))


@settings(max_examples=100, deadline=None)
@given(problems, st.sampled_from(("relu", "leaky_relu")))
def test_kinked_sweeps_equal_autograd_of_the_reference(how, phi):
    # In float64 a pre-activation within rounding of the kink has probability zero.
    assert_agrees(make(**how | {"phi": phi, "dtype": torch.float64}))


@settings(max_examples=150, deadline=None)
@given(problems, st.sampled_from(sorted(ACTIVATIONS)))
def test_steps_are_undone(how, phi):
    """Under the theorem's hypothesis x[T] leads back to every state, and to the same gradients."""
    p = make(**how | {"phi": phi, "dtype": torch.float64, "top": 0.025})
    states, trace = native.forward(p, True)
    previous, first, found, after = native.inverse(p, p.final(states), 60)
    wanted = all_before(p, states)
    torch.testing.assert_close(previous.flatten(0, -2), wanted, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(first, p.x0, rtol=1e-11, atol=1e-11)
    given_ = gradients_for(p)
    back = native.backward(p, found, after, *given_)
    for got, want in zip(back[:3], native.backward(p, trace, states, *given_)[:3], strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("N", [1, 3, 17, 21, 33])
def test_planes_of_odd_width_equal_the_reference_beside_infinite_inputs(N, dtype):
    """The last coordinate has no neighbour; what lies behind it is the input."""
    for I, B, T, deep_O in itertools.product((1, 3, 20), (1, 9), (1, 6), (False, True)):
        p = make(T, B, N, I=I, form="planes", deep_O=deep_O, dtype=dtype, top=0.1)
        p.u[0, B // 2, 0] = torch.inf
        states, _ = native.forward(p, False)
        assert states.isfinite().all()
        torch.testing.assert_close(states, fused.forward(p, False)[0], rtol=1e-5, atol=1e-5)
        undone = native.inverse(p, states[-1], 30)
        torch.testing.assert_close(undone.first, p.x0, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("N", [2, 40])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("phi", ACTIVATIONS)
def test_beside_the_states_one_array_is_kept_at_most(phi, learned, N):
    for kernel, B, ragged in itertools.product((native, fused), (1, 3, 16, 17), (False, True)):
        p = make(6, B, N, phi=phi, learned=learned, ragged=ragged)
        with torch.no_grad():
            states, trace = kernel.forward(p, True)
        assert trace.nbytes <= states.nbytes


@pytest.mark.parametrize("isa", native.ISAS)
def test_every_instruction_set(isa):
    """The property tests above."""
    here = "test_smooth_sweeps or test_kinked_sweeps or test_steps_are or test_activations or odd"
    run_held_to(isa, here, __file__)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("phi", ACTIVATIONS)
@pytest.mark.parametrize("units", [1, 40])
def test_activations_within_a_few_ulp(phi, dtype, units):
    """α = 1, W = 0: the state is φ(u), and a is φ′(u). Both layouts over the lanes."""
    y = torch.cat([torch.linspace(-30, 30, 40001), torch.logspace(-30, 1.5, 999)]).double()
    y = torch.cat([y, -y])[:80_000].to(dtype)
    B = y.numel() // units
    p = Problem(
        torch.zeros(B, units, dtype=dtype), y.view(1, B, units),
        torch.zeros(units, units, dtype=dtype), torch.eye(units, dtype=dtype), None,
        Gather(torch.arange(units), torch.arange(units)), torch.ones((), dtype=dtype),
        ACTIVATIONS[phi], 1,
    )  # fmt: skip
    states, trace = native.forward(p, True)
    a, *_ = native.backward(p, trace, states, torch.ones_like(states), None)
    exact = y.double()
    value, eps = p.phi.value(exact), torch.finfo(dtype).eps
    assert float(((states.flatten() - value).abs() / value.abs().clamp_min(1e-37)).max()) < 4 * eps
    assert float((a.flatten() - p.phi.slope(p.phi.value(exact))).abs().max()) < 4 * eps


@pytest.mark.parametrize("phi", ACTIVATIONS)
def test_special_values_pass_as_in_torch(phi):
    y = torch.tensor([[float("nan")], [float("inf")], [-float("inf")], [0.0], [1e30], [-1e30]])
    one = torch.ones(1, 1)
    p = Problem(
        0 * y.nan_to_num(0, 0, 0), y.unsqueeze(0), 0 * one, one, None,
        Gather(torch.tensor([0]), torch.tensor([0])), torch.ones(()), ACTIVATIONS[phi], 1,
    )  # fmt: skip
    states, _ = native.forward(p, False)
    assert torch.allclose(states[0], p.phi.value(y), equal_nan=True)


@pytest.mark.parametrize("N", [2, 33])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ragged", [False, True])
def test_bits_do_not_depend_on_threads_or_cuts(N, form, ragged, monkeypatch):
    how = {"form": form, "ragged": ragged, "alpha": "both", "learned": True}
    p = make(600, 65, N, dtype=torch.float32, **how)
    given_ = gradients_for(p)
    before = torch.get_num_threads()
    found = []
    for threads, cut in ((1, 1e12), (2, 1e12), (5, 1e12), (2, 1e6)):
        monkeypatch.setattr(native, "FIRST_CALL", cut)
        monkeypatch.setattr(native, "CALL_SECONDS", 1e-4 if cut < 1e12 else 1e3)
        torch.set_num_threads(threads)
        try:
            gentle = replace(
                p, alpha=p.alpha.detach() / 100
            )  # or undoing so many steps would overflow
            found.append((*sweeps(p, *given_), *native.inverse(gentle, p.x0, 3)[:2]))
        finally:
            torch.set_num_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert torch.equal(a, b)


def test_rows_that_have_ended_are_neither_read_nor_written():
    """Each row of a packed batch is, bit for bit, the row of a batch that goes on."""
    sizes = (4, 3, 3, 1, 1)
    for N in (2, 20, 70):
        whole = make(5, 4, N, phi="relu")
        rows = torch.cat([torch.arange(n) + 4 * k for k, n in enumerate(sizes)])
        p = replace(whole, u=whole.u.flatten(0, 1)[rows], ragged=Ragged(sizes))
        states, _ = native.forward(p, True)
        going_on, _ = native.forward(whole, True)
        assert torch.equal(states, going_on.flatten(0, 1)[rows])
        assert torch.equal(p.final(states), going_on[torch.tensor([4, 2, 2, 0]), torch.arange(4)])


def test_plain_slopes_are_taken_too():
    """The reversible memory hands in φ′ as an ordinary array over time."""
    for N, ragged in itertools.product((2, 20), (False, True)):
        p = make(6, 5, N, phi="relu", ragged=ragged)
        given_ = gradients_for(p)
        x = all_before(p, native.forward(p, False)[0])
        y = x.view(p.shape(N)) @ p.W.mT + p.u @ p.W_i.mT + p.b
        a, first, *_ = native.backward(p, p.phi.slope(p.phi.value(y)), None, *given_)
        _, want_a, want_first, _ = plain(p, *given_)
        torch.testing.assert_close(a, want_a)
        torch.testing.assert_close(first, want_first)


def test_strided_and_broadcast_inputs():
    p = make(4, 3, 20)
    awkward = replace(
        p,
        u=p.u.transpose(0, 1).contiguous().transpose(0, 1),
        W=p.W.mT.contiguous().mT,
        x0=p.x0[:1].expand(3, -1),
    )
    g = torch.ones((), dtype=torch.float64).expand(4, 3, 20)
    assert torch.equal(
        native.forward(awkward, False)[0],
        native.forward(replace(p, x0=awkward.x0.contiguous()), False)[0],
    )
    got = native.backward(awkward, native.forward(awkward, True)[1], None, g, None)[0]
    want = native.backward(awkward, native.forward(awkward, True)[1], None, g.contiguous(), None)[0]
    assert torch.equal(got, want)


def test_unsupported_problems_are_declined():
    p = make(3, 2, 5)
    assert native.supports(p)
    assert not native.supports(cast(p, torch.float16))
    assert not native.supports(replace(p, W=torch.zeros(4, 5, dtype=torch.float64)))
    assert not native.supports(replace(p, x0=p.x0.to("meta")))


def test_several_python_threads_at_once():
    cases = [make(50, 9, n, form=f, seed=n, learned=True) for n in (2, 20, 33) for f in FORMS]
    alone = [sweeps(p, *gradients_for(p)) for p in cases]
    together = [None] * len(cases)

    def work(i):
        for _ in range(5):
            together[i] = sweeps(cases[i], *gradients_for(cases[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(cases))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_flushing_of_denormals_holds_in_every_thread():
    """x halves at every step: without flushing it would pass through the denormals."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush denormals")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        p = make(140, 64, 64, I=0, phi="identity", form="gather", bias=False, dtype=torch.float32)
        p = replace(p, W=0 * p.W, alpha=torch.full((), 0.5), x0=p.x0.abs() + 1)
        flushed = native.forward(p, False)[0]
    finally:
        torch.set_num_threads(before)
        torch.set_flush_denormal(False)
    assert not flushed[-1].any()
    assert native.forward(p, False)[0][-1].any()


def test_it_can_be_turned_off():
    code = (
        "import json, torch, roann\n"
        "from roann import info\n"
        "from roann.kernels import native, step\n"
        "out, _ = roann.RoaRNN(2, 3, horizon=4)(torch.zeros(4, 1, 2))\n"
        "x = roann.RoaRNNCell(1, 4, alpha=0.5)(torch.ones(1, 1))\n"
        "on = [native.available(), step._load() is not None]\n"
        "print(json.dumps([on, info.describe(), list(out.shape), list(x.shape)]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ROANN_NATIVE": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    on, found, shape, one = json.loads(run.stdout)
    assert on == [False, False]
    assert "ROANN_NATIVE=0" in found["reason"]
    assert (shape, one) == ([4, 1, 3], [1, 4])


def test_ctrl_c_is_honoured_in_a_long_call():
    """A scan of some minutes is given up soon after the signal."""
    code = (
        "import signal\n"
        "import torch\n"
        "from roann.kernels import native\n"
        "from roann.kernels.activations import ACTIVATIONS\n"
        "from roann.kernels.linear import Dense\n"
        "from roann.kernels.problem import Problem\n"
        "one = torch.eye(2048)\n"
        "p = Problem(torch.zeros(4, 2048), None, one, None, None, Dense(one), torch.zeros(()),\n"
        "            ACTIVATIONS['tanh'], 50_000)\n"
        # A shell starts what it puts in the background with this signal ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "print('ready', flush=True)\n"
        "try:\n"
        "    native.forward(p, False)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "ready\n"
        time.sleep(1)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=60)
    assert said == "interrupted\n"


FORKED = """
import os, torch
from roann import RoaRNN
torch.set_num_threads(2)
rnn = RoaRNN(2, 64, horizon=50, backend="native", max_norm=None)
u = torch.randn(50, 64, 2)
whole = rnn(u)[0].detach()
(torch.randn(400, 400) * 2).sum()  # torch's own threads are awake
if (child := os.fork()) == 0:
    os._exit(0 if torch.equal(rnn(u)[0][-1, :9], whole[-1, :9]) else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_scans_although_the_threads_of_openmp_are_gone():
    code = [sys.executable, "-W", "ignore", "-c", FORKED]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "0"
