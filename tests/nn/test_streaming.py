"""Streams: equal to the whole pass, fresh after every change, and flat in memory."""

import gc
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

import roann
from roann import RoaRNN, RoaRNNCell, StreamingRoa
from roann.filters import FILTERS
from roann.kernels import native
from roann.nn import norm

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def rnn(**options):
    options = {"horizon": 100, "num_layers": 2, "generator": gen()} | options
    return RoaRNN(3, 20, **options)


def drawn(T, B, **kind):
    return torch.randn(T, B, 3, generator=gen(1), **kind)


def in_chunks(stream, u, sizes, hx=None):
    outputs = []
    for chunk in u.split(sizes):
        output, hx = stream(chunk, hx)
        outputs.append(output)
    return torch.cat(outputs), hx


@pytest.mark.parametrize("backend", ["reference", "fused", "native"])
@pytest.mark.parametrize("filter", ["qr", "permutation", "rotations", "broad"])
@pytest.mark.parametrize(("B", "sizes"), [(5, [1, 1, 7, 31, 20]), (1, [5, 6, 49])])
def test_chunks_are_the_whole_pass_bit_for_bit(backend, filter, B, sizes):
    if backend == "native" and not native.available():
        pytest.skip("no compiled kernel")
    model = rnn(filter=filter, backend=backend)
    u, hx = drawn(60, B), torch.randn(2, B, 20, generator=gen(2))
    with torch.no_grad():
        wanted = model(u, hx)
    found = in_chunks(StreamingRoa(model), u, sizes, hx)
    if backend == "fused":  # its drive is one product over all steps of a chunk
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    else:
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize("filter", FILTERS)
def test_steps_are_the_whole_pass_to_rounding(filter, dtype):
    model = rnn(filter=filter, dtype=dtype, learn_rho=True)
    stream, T = StreamingRoa(model), 80
    for B in (1, 3):
        u, hx, outputs = drawn(T, B, dtype=dtype), None, []
        for u_k in u:
            output, hx = stream.step(u_k, hx)
            outputs.append(output)
        with torch.no_grad():
            wanted, last = model(u)
        allowed = 2 * torch.finfo(dtype).eps * (T + 2 * 20 + 3) * max(1, float(wanted.abs().max()))
        assert float((torch.stack(outputs) - wanted).abs().max()) <= allowed
        assert float((hx - last).abs().max()) <= allowed


def test_steps_are_those_of_the_cells_bit_for_bit():
    model = rnn(nonlinearity="tanh", num_layers=1)
    stream, cell, u = StreamingRoa(model), model.cell(), drawn(30, 1)
    x, h = torch.zeros(1, 20), None
    with torch.no_grad():
        for u_k in u:
            x, (output, h) = cell(u_k, x), stream.step(u_k, h)
            assert torch.equal(output, x)
            assert torch.equal(h[0], x)


@pytest.mark.parametrize("layout", ["time first", "batch first", "unbatched", "packed"])
def test_every_layout_of_the_layer(layout):
    model, u = rnn(batch_first=layout == "batch first"), drawn(12, 4)
    if layout == "batch first":
        u = u.transpose(0, 1)
    elif layout == "unbatched":
        u = u[:, 0]
    elif layout == "packed":
        u = pack_padded_sequence(u, torch.tensor([3, 12, 7, 12]), enforce_sorted=False)
    with torch.no_grad():
        (wanted, last), (found, h) = model(u), StreamingRoa(model)(u)
    if layout == "packed":
        found, wanted = found.data, wanted.data
    assert torch.equal(found, wanted)
    assert torch.equal(h, last)


def test_a_step_without_a_batch():
    stream, u = StreamingRoa(rnn()), drawn(1, 1)[0]
    output, h = stream.step(u[0])
    assert (output.shape, h.shape) == ((20,), (2, 20))
    batched, states = stream.step(u)
    assert torch.equal(output, batched[0])
    assert torch.equal(h, states[:, 0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_in_half_precision_the_state_is_not_rounded(dtype):
    model, u = rnn(dtype=dtype), drawn(60, 5).to(dtype)
    with torch.no_grad():
        wanted, last = model(u)
    stream = StreamingRoa(model)
    found, h = in_chunks(stream, u, [20, 40])
    assert torch.equal(found, wanted)
    assert h.dtype == torch.float32
    assert torch.equal(h.to(dtype), last)
    assert found.dtype == dtype
    _, h = stream.step(u[0], last)
    assert h.dtype == torch.float32


def test_weights_are_computed_once_and_again_after_a_change(monkeypatch):
    model, counted = rnn(learn_rho=True), []
    bound = norm.square_and_bound
    monkeypatch.setattr(norm, "square_and_bound", lambda *a: counted.append(1) or bound(*a))
    stream, u = StreamingRoa(model), drawn(10, 1)
    assert len(counted) == 2
    h = None
    for u_k in u:
        _, h = stream.step(u_k, h)
    stream(u, h)
    assert len(counted) == 2
    with torch.no_grad():
        model.weight_hh_l1.mul_(2)
    stream.step(u[0], h)
    stream(u, h)
    assert len(counted) == 4


def loaded(model):
    model.load_state_dict(rnn(learn_rho=True, generator=gen(9)).state_dict())


def replaced(model):
    model.weight_ih_l1 = torch.nn.Parameter(torch.randn(20, 20, generator=gen(8)))


def stepped(model):
    model(drawn(5, 2))[0].sum().backward()
    torch.optim.Adam(model.parameters(), lr=0.1).step()


def another_filter(model):
    model.filter_l0 = roann.filters.make("qr", 20, generator=gen(5))


def parametrized(model):
    torch.nn.utils.parametrizations.weight_norm(model, "weight_hh_l0")
    with torch.no_grad():
        model.parametrizations.weight_hh_l0.original0.mul_(0.5)


def of_its_data(model):
    model.weight_hh_l0.data = torch.randn(20, 20, generator=gen(7))


CHANGES = [loaded, replaced, stepped, another_filter, parametrized, of_its_data]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_a_changed_model_is_noticed(change):
    model, u, hx = rnn(learn_rho=True), drawn(10, 1), torch.randn(2, 1, 20, generator=gen(2))
    stream = StreamingRoa(model)
    (before, _), (step_before, _) = stream(u, hx), stream.step(u[0], hx)
    change(model)
    with torch.no_grad():
        wanted, last = model(u, hx)
    step, _ = stream.step(u[0], hx)
    found, h = stream(u, hx)
    assert torch.equal(found, wanted)
    assert torch.equal(h, last)
    torch.testing.assert_close(step, wanted[0], rtol=1e-5, atol=1e-6)
    assert not torch.equal(found, before)
    assert not torch.equal(step, step_before)


def test_a_moved_model_is_noticed():
    model = rnn()
    stream = StreamingRoa(model)
    model.double()
    u = drawn(10, 1, dtype=f64)
    with torch.no_grad():
        assert torch.equal(stream(u)[0], model(u)[0])
    assert stream.step(u[0])[1].dtype == f64


def test_a_change_that_torch_does_not_count_needs_refresh():
    model, u = rnn(), drawn(10, 1)
    stream = StreamingRoa(model)
    model.weight_hh_l0.data.mul_(0.5)
    stream.refresh()
    with torch.no_grad():
        assert torch.equal(stream(u)[0], model(u)[0])


def test_no_graph_and_no_dropout():
    model = rnn(dropout=0.5).train()
    stream, u = StreamingRoa(model), drawn(10, 2).requires_grad_()
    output, h = stream(u)
    again, state = stream.step(u[0], h.requires_grad_())
    assert not any(t.requires_grad for t in (output, again, state))
    with torch.no_grad():
        assert torch.equal(output, model.eval()(u)[0])
    with torch.inference_mode():
        assert torch.equal(StreamingRoa(model).step(u[0], h)[0], again)


def test_what_a_stream_returns_is_the_callers():
    """Writing to an output does not change the state."""
    stream, u = StreamingRoa(rnn(num_layers=1)), drawn(6, 1)
    for call in (lambda: stream(u), lambda: stream.step(u[0])):
        output, h = call()
        kept = h.clone()
        output.zero_()
        assert torch.equal(h, kept)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: StreamingRoa(rnn(bidirectional=True)), ValueError,
         "model: expected a RoaRNN of one direction, got a bidirectional one; its second scan"),
        (lambda: StreamingRoa(RoaRNNCell(3, 20, horizon=9)), TypeError, "model: expected a RoaRNN"),
        (lambda: StreamingRoa(rnn()).step(drawn(4, 2)), ValueError, "input: expected one step"),
        (lambda: StreamingRoa(rnn()).step([[0.0] * 3]), TypeError, "input: expected a tensor"),
        (lambda: StreamingRoa(rnn()).step(torch.zeros(1, 4)), RuntimeError, "3 features, got 4"),
        (lambda: StreamingRoa(rnn()).step(torch.zeros(1, 3, dtype=f64)), ValueError, "input: exp"),
        (lambda: StreamingRoa(rnn()).step(torch.zeros(1, 3), torch.zeros(1, 20)), RuntimeError,
         r"hx: expected shape \(2, 1, 20\), got \(1, 20\)"),
        (lambda: StreamingRoa(rnn())(drawn(4, 2), torch.zeros(2, 1, 20)), RuntimeError, "hx: exp"),
    ],
)  # fmt: skip
def test_misuse_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()


def resident_after(steps):
    """Resident memory in KiB along a stream, in a process of its own."""
    code = f"""
        import torch, roann
        from pathlib import Path
        torch.set_num_threads(1)
        rnn = roann.RoaRNN(3, 32, num_layers=2, horizon=1000)
        stream, h = roann.StreamingRoa(rnn), None
        u = torch.randn(1, 3)
        def resident():
            fields = Path("/proc/self/status").read_text().split("VmRSS:")[1].split()
            return int(fields[0])
        for k in range({steps} + 1):
            _, h = stream.step(u, h)
            if k >= {steps} // 10 and k % ({steps} // 10) == 0:
                print(resident())
        assert bool(h.isfinite().all())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    return list(map(int, done.stdout.split()))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    "steps", [10_000, pytest.param(1_000_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_memory_is_flat(steps):
    """A tensor kept per step would be 10 MB in ten thousand steps, and 1 GB in a million."""
    found = resident_after(steps)
    assert len(found) == 10
    assert max(found) - found[0] < 1024, found


def test_no_tensor_is_left_behind():
    stream, u = StreamingRoa(rnn()), drawn(1, 1)[0]

    def tensors(n):
        h = None
        for _ in range(n):
            _, h = stream.step(u, h)
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    before = tensors(10)
    assert tensors(500) <= before  # fewer, where something of another test goes meanwhile
