"""A layer as part of an ONNX graph: its step, and its scans over time.

The equation stands here a third time, after `kernels.reference` and `native.cpp`, because ONNX
knows neither. The tests compare all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from roann import _checks
from roann.export.graph import Graph
from roann.functional import as_form
from roann.kernels.activations import LEAK
from roann.kernels.linear import Dense, Gather, Linear, Planes, Rotation
from roann.nn.cell import RoaRNNCell
from roann.nn.maps import Scan
from roann.nn.rnn import RoaRNN


def add_rnn(
    graph: Graph,
    model: RoaRNN,
    input: str,
    hx: str | None = None,
    *,
    lengths: str | None = None,
) -> tuple[str, str]:
    """Add a `RoaRNN` to a graph; the names of its output and h_n.

    Batch size and length may vary. The cap, the gain, α and the filter become constants; dropout
    is off.

    Args:
        graph: the graph under construction, in the dtype of the model.
        model: the layer, with any number of layers and directions.
        input: (T, B, I), or (B, T, I) if the model has batch_first.
        hx: the first states (D·num_layers, B, N); zeros if not given.
        lengths: the real length of each row, int64 (B,). Beyond it the output is zero; h_n is the
            state at a row's own end, and a reverse scan begins there.

    Example:
        >>> rnn = roann.RoaRNN(3, 8, horizon=100, bidirectional=True)
        >>> graph = Graph()
        >>> u = graph.input("u", ["time", "batch", 3])
        >>> output, h_n = add_rnn(graph, rnn, u)
        >>> mean = graph.node("ReduceMean", output, graph.constant([0]), keepdims=0)
        >>> graph.output("mean", mean, ["batch", 16])
        >>> import onnxruntime
        >>> session, u = onnxruntime.InferenceSession(graph.to_bytes()), torch.randn(9, 2, 3)
        >>> (mean,) = session.run(None, {"u": u.numpy()})
        >>> bool((torch.from_numpy(mean) - rnn(u)[0].mean(0)).abs().max() < 1e-5)
        True
    """
    scans = _scans(model, graph)
    D = 2 if model.bidirectional else 1
    u = graph.node("Transpose", input, perm=[1, 0, 2]) if model.batch_first else input
    over_time = [] if lengths is None else [moving(graph, u, lengths)]
    zeros = _zeros(graph, u, model.hidden_size) if hx is None else ""
    lasts = []
    for layer in range(model.num_layers):
        outputs = []
        for d in range(D):
            i = layer * D + d
            x0 = zeros if hx is None else graph.node("Gather", hx, graph.constant(i), axis=0)
            drive = _drive(graph, scans[i], u)
            body = partial(_body, scans[i])
            last, states = graph.scan(body, x0, [drive, *over_time], reverse=d == 1)
            lasts.append(last)
            outputs.append(states)
        u = outputs[0] if D == 1 else graph.node("Concat", *outputs, axis=-1)
    output = graph.node("Transpose", u, perm=[1, 0, 2]) if model.batch_first else u
    return output, _stacked(graph, lasts)


def add_step(graph: Graph, model: RoaRNN | RoaRNNCell, input: str, hx: str) -> tuple[str, str]:
    """Add one step of a layer or a cell to a graph; the names of its output and h_n.

    Args:
        graph: the graph under construction, in the dtype of the model.
        model: a `RoaRNN` of one direction, or a `RoaRNNCell`.
        input: (B, I).
        hx: the states (num_layers, B, N); of a cell (B, N). h_n is as hx, the output (B, N).

    Example:
        >>> cell, graph = roann.RoaRNNCell(3, 8, horizon=100), Graph()
        >>> u, x = graph.input("u", ["batch", 3]), graph.input("x", ["batch", 8])
        >>> output, _ = add_step(graph, cell, u, x)
        >>> graph.output("y", output, ["batch", 8])
        >>> import onnxruntime
        >>> session, u, x = onnxruntime.InferenceSession(graph.to_bytes()), *torch.randn(2, 8, 8)
        >>> (y,) = session.run(None, {"u": u[:, :3].numpy(), "x": x.numpy()})
        >>> bool((torch.from_numpy(y) - cell(u[:, :3], x)).abs().max() < 1e-5)
        True
    """
    if isinstance(model, RoaRNN) and model.bidirectional:
        cure = "its second scan starts at the end of the sequence"
        _checks.fail("model", "a layer of one direction for one step", "a bidirectional one", cure)
    scans, u, states = _scans(model, graph), input, []
    if isinstance(model, RoaRNNCell):
        u = _step(graph, scans[0], hx, _drive(graph, scans[0], u))
        return u, u
    for i, scan in enumerate(scans):
        x = graph.node("Gather", hx, graph.constant(i), axis=0)
        u = _step(graph, scan, x, _drive(graph, scan, u))
        states.append(u)
    return u, _stacked(graph, states)


@torch.no_grad()
def _scans(model: RoaRNN | RoaRNNCell, graph: Graph) -> tuple[Scan, ...]:
    """The scans of a model as they stand, in the dtype of the graph."""
    maps = model.roa_maps()
    dtype = maps.scans[0].W.dtype
    if dtype != graph.dtype:
        cure = f"move the model with .to({graph.dtype}), or make the graph with dtype={dtype}"
        _checks.fail("model", f"parameters of {graph.dtype}, as the graph", dtype, cure)
    return maps.scans


def _drive(graph: Graph, scan: Scan, u: str) -> str:
    """W_i u + b, for all steps at once."""
    assert scan.W_i is not None
    drive = graph.node("MatMul", u, graph.constant(scan.W_i.mT.contiguous()))
    return drive if scan.b is None else graph.node("Add", drive, graph.constant(scan.b))


def _step(graph: Graph, scan: Scan, x: str, drive: str) -> str:
    """α φ(W x + drive) + (1 − α) O x."""
    alpha = torch.as_tensor(scan.alpha, dtype=graph.dtype).detach()
    y = graph.node("Gemm", x, graph.constant(scan.W), drive, transB=1)
    value = graph.node("Mul", graph.constant(alpha), PHI[scan.phi.name](graph, y))
    kept = graph.node("Mul", graph.constant(1 - alpha), _filtered(graph, scan.O, x))
    return graph.node("Add", value, kept)


def _body(scan: Scan, graph: Graph, x: str, slices: Sequence[str]) -> tuple[str, str]:
    """One step of a scan: the next state and the output. A row that has ended stays."""
    new = _step(graph, scan, x, slices[0])
    if len(slices) == 1:
        return new, new
    zero = graph.constant(torch.zeros((), dtype=graph.dtype))
    return graph.node("Where", slices[1], new, x), graph.node("Where", slices[1], new, zero)


def _filtered(graph: Graph, O: Linear, x: str) -> str:
    """O x."""
    form = as_form(O, graph.dtype)
    if isinstance(form, Gather):
        return x if _counts_up(form.index) else _taken(graph, x, form.index)
    if isinstance(form, Rotation):
        return _rotated(graph, x, form.cos, form.sin, form.partner)
    if isinstance(form, Planes):
        return _rotated(graph, x, form.cos, form.sin, _neighbours(form.cos))
    matrix = form.matrix if isinstance(form, Dense) else form.to_dense().to(graph.dtype)
    return graph.node("Gemm", x, graph.constant(matrix), transB=1)


def _rotated(graph: Graph, x: str, cos: Tensor, sin: Tensor, partner: Tensor) -> str:
    if not bool(sin.any()) and bool((cos == 1).all()):
        return x
    turned = graph.node("Mul", graph.constant(sin), _taken(graph, x, partner))
    return graph.node("Add", graph.node("Mul", graph.constant(cos), x), turned)


def _taken(graph: Graph, x: str, index: Tensor) -> str:
    return graph.node("Gather", x, graph.constant(index), axis=1)


def _counts_up(index: Tensor) -> bool:
    return torch.equal(index, torch.arange(len(index), device=index.device))


def _neighbours(like: Tensor) -> Tensor:
    """The other coordinate of every plane (2j, 2j + 1); an odd last one is its own."""
    N = like.shape[-1]
    return (torch.arange(N) ^ 1).clamp_max(N - 1)


def moving(graph: Graph, u: str, lengths: str) -> str:
    """Whether each row moves at each step, (T, B, 1)."""
    zero, one = graph.constant(0), graph.constant(1)
    last = graph.node("Squeeze", graph.size(u, 0))
    times = graph.node("Range", zero, last, one)
    times = graph.node("Unsqueeze", times, graph.constant([1]))
    moving = graph.node("Less", times, graph.node("Unsqueeze", lengths, graph.constant([0])))
    return graph.node("Unsqueeze", moving, graph.constant([2]))


def _zeros(graph: Graph, u: str, N: int) -> str:
    """A state of zeros (B, N)."""
    shape = graph.node("Concat", graph.size(u, 1), graph.constant([N]), axis=0)
    return graph.node("Expand", graph.constant(torch.zeros((), dtype=graph.dtype)), shape)


def _stacked(graph: Graph, states: Sequence[str]) -> str:
    """(layers, B, N) from states (B, N)."""
    rows = [graph.node("Unsqueeze", state, graph.constant([0])) for state in states]
    return rows[0] if len(rows) == 1 else graph.node("Concat", *rows, axis=0)


def _identity(graph: Graph, y: str) -> str:
    return y


def _leaky_relu(graph: Graph, y: str) -> str:
    # Not LeakyRelu, which ONNX Runtime has for float32 alone.
    leak = graph.constant(torch.tensor(LEAK, dtype=graph.dtype))
    return graph.node("Max", y, graph.node("Mul", leak, y))


def _softplus(graph: Graph, y: str) -> str:
    # Not Softplus, for the same reason: max(y, 0) + log(1 + exp(−|y|)).
    zero, one = (graph.constant(torch.tensor(v, dtype=graph.dtype)) for v in (0.0, 1.0))
    small = graph.node("Exp", graph.node("Neg", graph.node("Abs", y)))
    rest = graph.node("Log", graph.node("Add", one, small))
    return graph.node("Add", graph.node("Max", y, zero), rest)


def _by(op: str) -> Callable[[Graph, str], str]:
    return lambda graph, y: graph.node(op, y)


# φ by the names of `kernels.activations`.
PHI: dict[str, Callable[[Graph, str], str]] = {
    "relu": _by("Relu"),
    "tanh": _by("Tanh"),
    "sigmoid": _by("Sigmoid"),
    "identity": _identity,
    "leaky_relu": _leaky_relu,
    "softplus": _softplus,
}
