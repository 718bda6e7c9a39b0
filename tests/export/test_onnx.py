"""ONNX files: equal to the layer at lengths and batches they were not exported with."""

import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import roann
from roann import RoaRNN, RoaRNNCell, export_onnx
from roann.export import Graph, add_rnn
from roann.export.layers import PHI
from roann.filters import FILTERS
from roann.kernels.activations import ACTIVATIONS

f32, f64 = torch.float32, torch.float64
LENGTHS = (1, 7, 50, 500)
SETTINGS = {
    "plain": {},
    "deep": {"num_layers": 3},
    "both ways": {"bidirectional": True},
    "all": {"num_layers": 2, "bidirectional": True, "batch_first": True},
    "no bias": {"bias": False, "num_layers": 2},
    "learned": {"learn_rho": True, "num_layers": 2},
    "rows": {"num_layers": 2, "horizon": None, "alpha": torch.tensor([[0.01], [0.02]])},
    "vector": {"horizon": None, "alpha": roann.multiscale(9, 10, 1000)},
    "capped": {"max_norm": 0.5},
    "paper": roann.PAPER,
}


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def session(model, path, **options):
    export_onnx(model, path, **options)
    return onnxruntime.InferenceSession(path)


def run(session, **inputs):
    given = {name: t.numpy() for name, t in inputs.items()}
    return tuple(torch.from_numpy(found) for found in session.run(None, given))


def rnn(N=9, **options):
    return RoaRNN(3, N, **({"horizon": 100, "generator": gen()} | options)).eval()


def drawn(model, T, B, seed=1):
    dtype = next(model.parameters()).dtype
    shape = (B, T, 3) if model.batch_first else (T, B, 3)
    layers = model.num_layers * (2 if model.bidirectional else 1)
    u = torch.randn(shape, generator=gen(seed), dtype=dtype)
    return u, torch.randn(layers, B, model.hidden_size, generator=gen(seed + 1), dtype=dtype)


@torch.no_grad()
def held_to(model, file, T, B):
    u, hx = drawn(model, T, B)
    allowed = {f32: 1e-5, f64: 1e-12}[u.dtype]
    for found, wanted in zip(run(file, input=u, hx=hx), model(u, hx), strict=True):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted, rtol=allowed, atol=allowed)


@pytest.mark.parametrize("dtype", [f32, f64])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_at_any_length_and_batch(name, dtype, tmp_path):
    model = rnn(**({"dtype": dtype} | SETTINGS[name]))
    file = session(model, tmp_path / "rnn.onnx")
    for T, B in zip(LENGTHS, (3, 1, 65, 2), strict=True):
        held_to(model, file, T, B)


@pytest.mark.parametrize("dtype", [f32, f64])
@pytest.mark.parametrize("phi", ACTIVATIONS)
@pytest.mark.parametrize("filter", FILTERS)
def test_every_filter_and_activation(filter, phi, dtype, tmp_path):
    for N in (8, 9):
        model = rnn(N, filter=filter, nonlinearity=phi, dtype=dtype)
        held_to(model, session(model, tmp_path / "rnn.onnx"), 50, 4)


@torch.no_grad()
@pytest.mark.parametrize("filter", ["qr", "broad"])
def test_a_wide_layer_to_a_part_in_a_hundred_thousand_of_its_states(filter, tmp_path):
    model = rnn(128, filter=filter, horizon=500)
    file = session(model, tmp_path / "rnn.onnx")
    for T in LENGTHS:
        u, hx = drawn(model, T, 3)
        for found, wanted in zip(run(file, input=u, hx=hx), model(u, hx), strict=True):
            assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5


def test_every_activation_has_a_row():
    assert set(PHI) == set(ACTIVATIONS)


def test_weights_far_from_their_start(tmp_path):
    """A cap that acts, a gain of one's own and an odd width, after weights have moved."""
    model = rnn(num_layers=2, gain=3.0, nonlinearity="tanh", max_norm=2.0)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(4)
    file = session(model, tmp_path / "rnn.onnx")
    for T in LENGTHS:
        held_to(model, file, T, 5)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_unequal_lengths_are_those_of_a_packed_sequence(bidirectional, batch_first, tmp_path):
    model = rnn(num_layers=2, bidirectional=bidirectional, batch_first=batch_first)
    file = session(model, tmp_path / "rnn.onnx", lengths=True)
    assert [i.name for i in file.get_inputs()] == ["input", "hx", "lengths"]
    for lengths in ([1, 7, 4], [50, 13, 50, 2], [500], [9, 9]):
        u, hx = drawn(model, max(lengths), len(lengths))
        lengths = torch.tensor(lengths)
        layout = {"batch_first": batch_first}
        packed = pack_padded_sequence(u, lengths, enforce_sorted=False, **layout)
        with torch.no_grad():
            output, h_n = model(packed, hx)
        output, _ = pad_packed_sequence(output, **layout)
        found = run(file, input=u, hx=hx, lengths=lengths)
        torch.testing.assert_close(found[0], output, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found[1], h_n, rtol=1e-5, atol=1e-5)


def test_what_lies_beyond_the_length_does_not_matter(tmp_path):
    model = rnn(bidirectional=True)
    file = session(model, tmp_path / "rnn.onnx", lengths=True)
    u, hx = drawn(model, 8, 2)
    lengths, other = torch.tensor([8, 3]), u.clone()
    other[3:, 1] = torch.inf
    for a, b in zip(*(run(file, input=v, hx=hx, lengths=lengths) for v in (u, other)), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [f32, f64])
def test_a_cell_and_a_step(dtype, tmp_path):
    cell = RoaRNNCell(3, 9, horizon=100, generator=gen(), dtype=dtype)
    of_cell = session(cell, tmp_path / "cell.onnx")
    model = rnn(num_layers=2, dtype=dtype)
    of_step = session(model, tmp_path / "step.onnx", step=True)
    for B in (1, 6):
        u, x = (torch.randn(B, n, generator=gen(n), dtype=dtype) for n in (3, 9))
        (h_n,) = run(of_cell, input=u, hx=x)
        torch.testing.assert_close(h_n, cell(u, x).detach(), rtol=1e-5, atol=1e-6)
        us, hx = drawn(model, 20, B)
        state = hx
        for u_k in us:
            output, state = run(of_step, input=u_k, hx=state)
        wanted, last = (t.detach() for t in model(us, hx))
        torch.testing.assert_close(output, wanted[-1], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(state, last, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("filter", ["qr", "broad", "permutation"])
def test_the_file_has_the_size_of_the_weights(filter, tmp_path):
    model, path = rnn(200, num_layers=2, filter=filter, bidirectional=True), tmp_path / "rnn.onnx"
    export_onnx(model, path)
    weights = sum(t.numel() * t.itemsize for t in model.parameters())
    weights += sum(t.numel() * t.itemsize for t in model.buffers())
    assert path.stat().st_size < 1.02 * weights + 20_000


def test_scans_are_not_unrolled_and_a_shared_filter_is_stored_once(tmp_path):
    O = roann.filters.make("qr", 9, generator=gen())
    model, path = rnn(num_layers=3, filter=O, bidirectional=True), tmp_path / "rnn.onnx"
    export_onnx(model, path)
    graph = onnx.load(path).graph
    ops = [node.op_type for node in graph.node]
    assert ops.count("Scan") == 6
    assert len(ops) < 60
    matrices = [onnx.numpy_helper.to_array(t) for t in graph.initializer if t.dims == [9, 9]]
    assert len([m for m in matrices if (m == O.to_dense().numpy()).all()]) == 1


class Classifier(nn.Module):
    """Both directions, the last states and the mean |state|, LayerNorm, scores."""

    def __init__(self):
        super().__init__()
        self.rnn = rnn(num_layers=2, bidirectional=True, batch_first=True)
        self.norm, self.out = nn.LayerNorm(36), nn.Linear(36, 4)

    def forward(self, u, lengths):
        packed = pack_padded_sequence(u, lengths, batch_first=True, enforce_sorted=False)
        states, h_n = self.rnn(packed)
        states, _ = pad_packed_sequence(states, batch_first=True)
        mean = states.abs().sum(1) / lengths.unsqueeze(1)
        return self.out(self.norm(torch.cat([*h_n[-2:], mean], 1)))

    def onnx_graph(self, *, lengths=False):
        graph = Graph()
        u = graph.input("input", ["batch", "time", 3])
        ends = graph.input("lengths", ["batch"], torch.int64)
        states, h_n = add_rnn(graph, self.rnn, u, lengths=ends)
        lasts = [graph.node("Gather", h_n, graph.constant(i), axis=0) for i in (2, 3)]
        total = graph.node("ReduceSum", graph.node("Abs", states), graph.constant([1]), keepdims=0)
        count = graph.node("Cast", ends, to=onnx.TensorProto.FLOAT)
        count = graph.node("Unsqueeze", count, graph.constant([1]))
        read = graph.node("Concat", *lasts, graph.node("Div", total, count), axis=1)
        norm = [graph.constant(t) for t in (self.norm.weight, self.norm.bias)]
        read = graph.node("LayerNormalization", read, *norm, epsilon=self.norm.eps)
        out = [graph.constant(t) for t in (self.out.weight, self.out.bias)]
        graph.output("scores", graph.node("Gemm", read, *out, transB=1), ["batch", 4])
        return graph


def test_a_whole_model_around_a_layer(tmp_path):
    model = Classifier().eval()
    file = session(model, tmp_path / "model.onnx")
    for lengths in ([12, 5, 1], [200, 199]):
        lengths = torch.tensor(lengths)
        u = torch.randn(len(lengths), int(lengths.max()), 3, generator=gen(1))
        (scores,) = run(file, input=u, lengths=lengths)
        torch.testing.assert_close(scores, model(u, lengths).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "options", "error", "words"),
    [
        (nn.RNN(3, 4), {}, TypeError, "model: expected a RoaRNN, a RoaRNNCell or an Exportable"),
        (rnn(dtype=torch.float16), {}, ValueError, r"dtype: expected torch.float32 .* \.float\(\)"),
        (rnn(bidirectional=True), {"step": True}, ValueError, "model: expected a layer of one dir"),
        (rnn(), {"step": True, "lengths": True}, ValueError, "lengths: expected False for one st"),
    ],
)
def test_what_cannot_be_exported_is_refused_in_one_sentence(model, options, error, words, tmp_path):
    with pytest.raises(error, match=words):
        export_onnx(model, tmp_path / "model.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_without_onnx_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(ImportError, match=r'onnx: expected .* pip install "roann\[onnx\]"'):
        export_onnx(rnn(), tmp_path / "rnn.onnx")
