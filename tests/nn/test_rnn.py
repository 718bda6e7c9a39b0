"""RoaRNN keeps torch.nn.RNN's contract to the letter, and its own equation."""

import copy
import itertools
import pickle
import re
import textwrap

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import roann
from roann import PAPER, RoaRNN, filters
from roann.kernels.memory import MEMORIES

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1, dtype=f64):
    return torch.randn(*shape, generator=gen(seed), dtype=dtype)


def twins(nonlinearity="tanh", bias=True, **kw):
    """RoaRNN with α = 1 and a torch.nn.RNN with the same weights."""
    roa = RoaRNN(
        3, 4, nonlinearity=nonlinearity, bias=bias, alpha=1.0, dtype=f64, generator=gen(), **kw
    )
    rnn = nn.RNN(3, 4, nonlinearity=nonlinearity, bias=bias, dtype=f64, **kw)
    with torch.no_grad():
        for name, p in rnn.named_parameters():
            if name.startswith("bias_hh"):
                p.zero_()
            else:
                p.copy_(roa.get_parameter(name.replace("bias_ih", "bias")))
    return roa, rnn


def sequences():
    lengths = [2, 5, 1, 5]
    parts = [data(n, 3, seed=10 + n + i) for i, n in enumerate(lengths)]
    padded = nn.utils.rnn.pad_sequence(parts)
    order = torch.tensor(lengths).argsort(descending=True)
    sorted_lengths = torch.tensor(lengths)[order]
    return {
        "batched": data(6, 4, 3),
        "unbatched": data(6, 3),
        "one step": data(1, 4, 3),
        "packed": pack_sequence(parts, enforce_sorted=False),
        "packed, sorted": pack_padded_sequence(padded[:, order], sorted_lengths),
        "packed, equal": pack_padded_sequence(data(6, 4, 3), [6] * 4),
        "not contiguous": data(3, 4, 6).permute(2, 1, 0),
    }


def flat(output):
    return output.data if isinstance(output, PackedSequence) else output


@pytest.mark.parametrize("kind", sequences())
@pytest.mark.parametrize(
    ("layers", "bidirectional", "bias"),
    list(itertools.product([1, 2], [False, True], [True, False])),
)
@pytest.mark.parametrize("given", [False, True])
def test_alpha_one_is_torchs_rnn(kind, layers, bidirectional, bias, given):
    """States and every gradient, in every combination of layers, directions and packing."""
    roa, rnn = twins(bias=bias, num_layers=layers, bidirectional=bidirectional)
    u = sequences()[kind]
    rows = layers * (1 + bidirectional)
    shape = (rows, 4) if kind == "unbatched" else (rows, 4, 4)
    hx = data(*shape, seed=3).requires_grad_() if given else None
    results = []
    for model in (roa, rnn):
        leaf = flat(u).clone().requires_grad_()
        inputs = u._replace(data=leaf) if isinstance(u, PackedSequence) else leaf
        output, h_n = model(inputs, hx)
        assert type(output) is type(u)
        weight = torch.linspace(-1, 1, flat(output).numel(), dtype=f64)
        loss = (flat(output).flatten() * weight).sum() + h_n.square().sum()
        wanted = [leaf, *([hx] if given else [])]
        wanted += [p for n, p in model.named_parameters() if not n.startswith("bias_hh")]
        results.append([flat(output), h_n, *torch.autograd.grad(loss, wanted)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_packed_output_is_packed_alike():
    roa, rnn = twins()
    for kind in ("packed", "packed, sorted", "packed, equal"):
        ours, theirs = roa(sequences()[kind])[0], rnn(sequences()[kind])[0]
        for a, b in zip(ours, theirs, strict=True):
            assert (a is None and b is None) or torch.allclose(a, b)


def test_batch_first():
    a = RoaRNN(3, 4, horizon=6, batch_first=True, dtype=f64, generator=gen())
    b = RoaRNN(3, 4, horizon=6, dtype=f64, generator=gen())
    u = data(2, 6, 3)
    (x, h), (y, k) = a(u), b(u.transpose(0, 1))
    assert x.shape == (2, 6, 4)
    assert torch.equal(x, y.transpose(0, 1))
    assert torch.equal(h, k)
    assert torch.equal(a(u[0])[0], b(u[0])[0])  # unbatched input has no batch to put first


@pytest.mark.parametrize("settings", [{}, roann.PAPER, {"max_norm": 0.7, "gain": 3.0}], ids=str)
def test_its_docstring_is_the_truth(settings):
    """The plain loop in RoaRNN's docstring, executed, gives RoaRNN's output."""
    text = re.search(r"The plain loop it computes::\n\n(.*?)\n\n    Args:", RoaRNN.__doc__, re.S)
    rnn = RoaRNN(3, 5, horizon=7, dtype=f64, generator=gen(), **settings)
    u, hx = data(7, 2, 3), data(1, 2, 5, seed=2)
    names = {"rnn": rnn, "input": u, "hx": hx, "torch": torch, "roann": roann}
    output, h_n = rnn(u, hx)
    exec(textwrap.dedent(text.group(1)), names)
    torch.testing.assert_close(output, names["output"], rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(h_n, names["h_n"], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", filters.FILTERS)
def test_alpha_zero_is_an_isometry(name):
    rnn = RoaRNN(3, 6, alpha=0.0, filter=name, dtype=f64, generator=gen())
    hx = data(1, 4, 6)
    output, _ = rnn(data(50, 4, 3), hx)
    norms = output.norm(dim=-1)
    torch.testing.assert_close(norms, hx.norm(dim=-1).expand_as(norms), rtol=1e-12, atol=0)


def test_vector_alpha_multiplies_from_the_left():
    """diag(1 − α) O x, not O diag(1 − α) x: seen only with a non-constant α."""
    alpha = torch.tensor([0.0, 0.3, 0.9], dtype=f64)
    rnn = RoaRNN(
        2,
        3,
        alpha=alpha,
        nonlinearity="identity",
        filter="qr",
        max_norm=None,
        dtype=f64,
        generator=gen(),
    )
    u, hx = data(1, 1, 2), data(1, 1, 3)
    drive = rnn.weight_ih_l0 @ u[0, 0] + rnn.bias_l0
    y = rnn.weight_hh_l0 @ hx[0, 0] + rnn.gain_of("_l0") * drive
    expected = alpha * y + (1 - alpha) * (rnn.filter_l0.to_dense() @ hx[0, 0])
    torch.testing.assert_close(rnn(u, hx)[1][0, 0], expected, rtol=1e-13, atol=1e-14)
    assert torch.equal(rnn.alpha, alpha)
    assert "_alpha" in rnn.state_dict()


def test_step_scans_to_forward():
    rnn = RoaRNN(3, 4, 2, horizon=5, dtype=f64, generator=gen())
    u = data(5, 2, 3)
    x = [torch.zeros(2, 4, dtype=f64)] * 2
    for k in range(5):
        x[0] = rnn.step(x[0], u[k])
        x[1] = rnn.step(x[1], x[0], layer=1)
    torch.testing.assert_close(torch.stack(x), rnn(u)[1], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("memory", MEMORIES)
def test_last_only(memory):
    rnn = RoaRNN(3, 4, 2, bidirectional=True, horizon=9, dtype=f64, generator=gen(), memory=memory)
    output, h_n = rnn(data(9, 2, 3), last_only=True)
    assert output is None
    torch.testing.assert_close(h_n, rnn(data(9, 2, 3))[1], rtol=1e-13, atol=1e-13)


def test_dropout_between_layers_only():
    kw = {"horizon": 5, "dtype": f64}
    one = RoaRNN(3, 8, 2, dropout=0.5, generator=gen(), **kw)
    two = RoaRNN(3, 8, 2, generator=gen(), **kw)
    u = data(5, 2, 3)
    assert torch.equal(one.eval()(u)[0], two(u)[0])
    torch.manual_seed(0)
    assert not torch.equal(one.train()(u)[0], two(u)[0])
    with pytest.warns(UserWarning, match="does nothing with num_layers=1"):
        RoaRNN(3, 8, dropout=0.5, horizon=5)


def test_seeds_and_filters_are_independent():
    """One seed gives the same parameters under every filter, and never touches the global state."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    models = [RoaRNN(3, 4, horizon=5, filter=n, generator=gen(7)) for n in filters.FILTERS]
    assert torch.equal(before, torch.get_rng_state())
    for m in models[1:]:
        for (k, a), b in zip(models[0].named_parameters(), m.parameters(), strict=True):
            assert torch.equal(a, b), k


def test_names_and_counts():
    rnn = RoaRNN(1, 178, horizon=784, **PAPER)
    names = [n for n, _ in rnn.named_parameters()]
    assert names == ["weight_ih_l0", "weight_hh_l0", "bias_l0"]
    assert {k for k in rnn.state_dict() if k not in names} == {"filter_l0.matrix", "_extra_state"}
    for N, count in ((178, 33_830), (256, 68_618), (512, 268_298)):
        parts = (RoaRNN(1, N, horizon=784, device="meta"), nn.Linear(N, 10, device="meta"))
        assert sum(p.numel() for m in parts for p in m.parameters()) == count
    assert {*RoaRNN(1, 178, horizon=784).state_dict()} - {*names} == {
        "filter_l0.angle",
        "_extra_state",
    }
    both = RoaRNN(2, 3, 2, bidirectional=True, alpha=0.1, **PAPER)
    assert {"weight_hh_l1_reverse", "bias_l0_reverse", "filter_l1_reverse.matrix"} <= set(
        both.state_dict()
    )


def test_moves_copies_and_pickles():
    rnn = RoaRNN(3, 4, horizon=5, generator=gen(), filter="rotations")
    u = data(5, 2, 3, dtype=torch.float32)
    expected = rnn(u)[0]
    for twin in (copy.deepcopy(rnn), pickle.loads(pickle.dumps(rnn))):
        assert torch.equal(twin(u)[0], expected)
    other = RoaRNN(3, 4, horizon=5, generator=gen(3), filter="rotations")
    other.load_state_dict(rnn.state_dict())
    assert torch.equal(other(u)[0], expected)
    wide = copy.deepcopy(rnn).to(f64)
    torch.testing.assert_close(wide(u.to(f64))[0].float(), expected, rtol=1e-5, atol=1e-5)
    half = copy.deepcopy(rnn).to(torch.bfloat16)
    assert half(u.to(torch.bfloat16))[0].dtype == torch.bfloat16
    ghost = RoaRNN(3, 4, horizon=5, device="meta")
    assert ghost(torch.empty(5, 2, 3, device="meta"))[0].shape == (5, 2, 4)


def test_frozen_empty_and_small():
    rnn = RoaRNN(3, 4, horizon=5, generator=gen()).requires_grad_(False)
    assert not rnn(data(5, 2, 3, dtype=torch.float32))[0].requires_grad
    u = data(5, 2, 3, dtype=torch.float32).requires_grad_()
    rnn(u)[0].sum().backward()  # gradients still reach the input
    assert u.grad.abs().max() > 0
    train = RoaRNN(3, 1, horizon=5, generator=gen())
    with torch.no_grad():
        assert not train(u)[0].requires_grad
    output, h_n = train(torch.zeros(5, 0, 3))
    assert output.shape == (5, 0, 1)
    assert h_n.shape == (1, 0, 1)
    output.sum().backward()
    assert train.weight_hh_l0.grad.abs().max() == 0
    assert train(torch.zeros(1, 1, 3))[0].shape == (1, 1, 1)


def test_autocast_keeps_the_state_in_float32():
    rnn = RoaRNN(3, 16, horizon=300, generator=gen())
    u = data(300, 2, 3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, _ = rnn(u)
    assert output.dtype == torch.float32
    assert torch.equal(output, rnn(u)[0])
    output.sum().backward()
    assert rnn.weight_hh_l0.grad.dtype == torch.float32


def test_tiny_alpha_keeps_its_gradient():
    """α = 1e-6 (adding, T = 5000): φ is never recovered by dividing by α."""
    rnn = RoaRNN(2, 8, alpha=1e-6, generator=gen(), dtype=torch.float32)
    wide = copy.deepcopy(rnn).to(f64)
    u = data(40, 3, 2)
    for model, inputs in ((rnn, u.float()), (wide, u)):
        model(inputs)[1].sum().backward()
    for (name, a), b in zip(rnn.named_parameters(), wide.parameters(), strict=True):
        torch.testing.assert_close(
            a.grad.double(), b.grad, rtol=1e-4, atol=1e-5 * float(b.grad.abs().max()), msg=name
        )


# The tracer itself looks at .grad of tensors that are no leaves, and makes a Function.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_compile_does_not_unroll():
    """One graph break, not a graph of T nodes; the values stay."""
    torch._dynamo.reset()
    graphs = []

    def count(module, _):
        graphs.append(len(module.graph.nodes))
        return module.forward

    rnn = RoaRNN(3, 4, horizon=500, max_norm=None, generator=gen())
    u = data(500, 2, 3, dtype=torch.float32)
    compiled = torch.compile(rnn, backend=count)
    assert torch.equal(compiled(u)[0], rnn(u)[0])
    assert sum(graphs) < 50
    compiled(u)[1].sum().backward()
    assert rnn.weight_hh_l0.grad.abs().max() > 0


def test_functional_call_and_parametrizations():
    """Tensors put in a parameter's place are used: ensembles, meta-learning, constraints."""
    rnn = RoaRNN(3, 4, horizon=5, dtype=f64, generator=gen())
    u = data(5, 2, 3)
    other = {k: 2 * p.detach() for k, p in rnn.named_parameters()}
    twin = copy.deepcopy(rnn)
    twin.load_state_dict(other, strict=False)
    called = torch.func.functional_call(rnn, other, (u,))[0]
    torch.testing.assert_close(called, twin(u)[0], rtol=1e-13, atol=1e-13)
    stacked = {k: torch.stack([p.detach(), 2 * p.detach()]) for k, p in rnn.named_parameters()}
    both = torch.vmap(lambda p: torch.func.functional_call(rnn, p, (u,))[1])(stacked)
    torch.testing.assert_close(both[1], twin(u)[1], rtol=1e-12, atol=1e-12)
    nn.utils.parametrizations.orthogonal(rnn, "weight_hh_l0")
    rnn(u)[1].sum().backward()
    W = rnn.weight_hh_l0.detach()
    torch.testing.assert_close(W @ W.T, torch.eye(4, dtype=f64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_what_code_for_torch_calls_is_there(bias):
    rnn = RoaRNN(3, 4, 2, bias=bias, bidirectional=True, horizon=9)
    rnn.flatten_parameters()
    shapes = [[tuple(w.shape) for w in row] for row in rnn.all_weights]
    assert shapes == [[(4, I), (4, 4), *[(4,)] * bias] for I in (3, 3, 8, 8)]
    assert rnn.all_weights[3][1] is rnn.weight_hh_l1_reverse


def test_repr_says_gain_and_cap_as_given():
    assert "nonlinearity=relu, gain=1\n" in repr(RoaRNN(3, 4, horizon=100, **roann.PAPER))
    text = repr(RoaRNN(3, 4, horizon=100, gain=torch.ones(4), max_norm=2.5))
    assert "gain=one per neuron, max_norm=2.5\n" in text


def test_repr_says_what_it_is():
    text = repr(RoaRNN(3, 4, 2, horizon=100, memory="checkpoint", filter="cycle"))
    said = "3, 4, alpha=0.003, nonlinearity=relu, max_norm=10, num_layers=2, memory=checkpoint"
    assert said in text
    assert "(filter_l1): Cycle(4, 4)" in text


u3 = torch.zeros(5, 2, 3)
BAD_CALLS = [
    ((torch.zeros(5, 2, 4),), RuntimeError, "input: expected 3 features .* got 4"),
    ((torch.zeros(5),), ValueError, "input: expected 2 dimensions .* got 1"),
    ((torch.zeros(0, 2, 3),), RuntimeError, "at least one time step"),
    ((u3.double(),), ValueError, "input: expected dtype torch.float32"),
    ((u3, torch.zeros(1, 3, 4)), RuntimeError, r"hx: expected shape \(1, 2, 4\)"),
    ((u3, torch.zeros(2, 4)), RuntimeError, r"hx: expected shape \(1, 2, 4\)"),
    ((u3, torch.zeros(1, 2, 4).double()), ValueError, "hx: expected dtype"),
    ((u3[:, 0], torch.zeros(1, 1, 4)), RuntimeError, r"hx: expected shape \(1, 4\)"),
    (
        (pack_sequence([u3[:, 0], u3[:2, 0]]), torch.zeros(1, 3, 4)),
        RuntimeError,
        r"hx: expected shape \(1, 2, 4\) for a batch of packed sequences",
    ),
    (([1, 2],), TypeError, "input: expected a tensor or a PackedSequence, got list"),
    ((u3, (u3, u3)), TypeError, r"hx: expected a tensor, got a tuple; .* \(h_0, c_0\) pass h_0"),
    ((u3.long(),), ValueError, r"cast it with .to\(torch.float32\)$"),
]


@pytest.mark.parametrize(("arguments", "error", "match"), BAD_CALLS)
def test_bad_calls(arguments, error, match):
    with pytest.raises(error, match=match):
        RoaRNN(3, 4, horizon=5)(*arguments)


BAD_MAKINGS = [
    ({}, ValueError, "horizon: .* pass horizon=T .* or pass alpha"),
    ({"alpha": 1.5}, ValueError, r"alpha: expected a number in \[0, 1\], got 1.5"),
    ({"alpha": -0.1}, ValueError, "alpha: expected"),
    ({"alpha": float("nan")}, ValueError, "alpha: expected a finite"),
    ({"alpha": torch.tensor([0.5, 2.0, 0, 0])}, ValueError, r"entries in \[0, 1\], got \[0, 2\]"),
    ({"alpha": torch.zeros(3)}, ValueError, r"alpha: expected a float or a float tensor \(4,\)"),
    ({"rho": 0, "horizon": 5}, ValueError, "rho: expected a finite number above 0"),
    ({"rho": 9, "horizon": 5}, ValueError, "rho=9 and horizon=5 give"),
    ({"rho": "1", "horizon": 5}, TypeError, "rho: expected a number, got '1'"),
    ({"horizon": 0}, ValueError, "horizon: expected a finite number above 0"),
    ({"horizon": 5, "alpha": 0.1}, ValueError, "horizon: expected None when alpha"),
    ({"horizon": 5, "nonlinearity": "Relu"}, ValueError, "did you mean 'relu'"),
    ({"horizon": 5, "filter": "harr"}, ValueError, "did you mean 'haar'"),
    ({"horizon": 5, "filter": torch.ones(4, 4)}, ValueError, "defect"),
    ({"horizon": 5, "init": "normale"}, ValueError, "did you mean 'normal'"),
    ({"horizon": 5, "memory": "none"}, ValueError, "memory: expected one of"),
    ({"horizon": 5, "backend": "cuda"}, ValueError, "backend: expected one of"),
    ({"horizon": 5, "num_layers": 0}, ValueError, "num_layers: expected at least 1"),
    ({"horizon": 5, "dropout": 2}, ValueError, "dropout: expected a probability"),
    ({"horizon": 5, "dtype": torch.int64}, TypeError, "dtype: expected a floating"),
    ({"horizon": 5, "generator": 0}, TypeError, r"generator: .* got 0; pass torch.Generator\(\)"),
    ({"horizon": 5, "nonlinearity": True}, ValueError, "got True; it stands before bias and batch"),
]


@pytest.mark.parametrize(("arguments", "error", "match"), BAD_MAKINGS)
def test_bad_makings(arguments, error, match):
    with pytest.raises(error, match=match):
        RoaRNN(3, 4, **arguments)


def test_bad_sizes():
    with pytest.raises(ValueError, match="hidden_size: expected at least 1"):
        RoaRNN(3, 0, horizon=5)
    with pytest.raises(TypeError, match="input_size: expected an int"):
        RoaRNN(3.0, 4, horizon=5)
