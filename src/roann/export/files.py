"""`export_onnx`: a layer, a cell, an estimator or what builds its own graph, as an ONNX file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from roann import _checks
from roann.export.graph import Graph
from roann.export.layers import add_rnn, add_step
from roann.nn.cell import RoaRNNCell
from roann.nn.rnn import RoaRNN
from roann.serialization import write_atomically


@runtime_checkable
class Exportable(Protocol):
    """A model that builds its own graph, from `add_rnn` and nodes of ONNX.

    `export_onnx` writes it as it does a layer.

    Example:
        >>> class Scores(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.rnn, self.out = roann.RoaRNN(3, 8, horizon=50), torch.nn.Linear(8, 2)
        ...
        ...     def onnx_graph(self, *, lengths=False):
        ...         graph = Graph()
        ...         _, h_n = add_rnn(graph, self.rnn, graph.input("input", ["time", "batch", 3]))
        ...         last = graph.node("Squeeze", h_n, graph.constant([0]))
        ...         weights = [graph.constant(t) for t in (self.out.weight, self.out.bias)]
        ...         scores = graph.node("Gemm", last, *weights, transB=1)
        ...         graph.output("scores", scores, ["batch", 2])
        ...         return graph
        >>> isinstance(Scores(), Exportable)
        True
        >>> len(Scores().onnx_graph().to_bytes()) > 0
        True
    """

    def onnx_graph(self, *, lengths: bool = False) -> Graph:
        """The whole graph, with its inputs and outputs."""
        ...


def export_onnx(
    model: RoaRNN | RoaRNNCell | Exportable,
    path: str | os.PathLike[str],
    *,
    lengths: bool = False,
    step: bool = False,
) -> None:
    """Write a layer, or a fitted estimator, as an ONNX file for any batch size and any length.

    The recurrence is one Scan node for each layer and direction, not unrolled, so the file has the
    size of the weights. The cap, the gain, α and the filter are constants in it; dropout is off.
    Needs `pip install "roann[onnx]"`.

    Args:
        model: a `RoaRNN`, a `RoaRNNCell`, or an `Exportable`, which estimators of
            `roann.estimators` are once fitted; in float32 or float64.
        path: the file to write, atomically.
        lengths: add an input `lengths`, int64 (B,): the real length of each row. Beyond it the
            output is zero; h_n is the state at a row's own end, and a reverse scan begins there.
        step: one step of a `RoaRNN` of one direction, to call in a loop.

    Shape:
        Inputs `input` (T, B, I), or (B, T, I) if batch_first, and `hx` (D·num_layers, B, N);
        outputs `output` (T, B, D·N), laid out as the input, and `h_n`, as hx. With step=True the
        input is (B, I) and the output (B, N). Of a cell: `input` (B, I) and `hx` (B, N) give `h_n`
        (B, N). Of an estimator: `input` in float64 as (B, T, C), or (B, C, T) if it has
        channels_first, NaN where missing, and `exog` (B, T + steps, E) if it was fitted with
        exogenous inputs. Outputs are `probabilities` (B, classes) and `labels` (B,); `prediction`,
        `forecast` (B, steps, C), or `scores` of a `fixed_classifier`, as the estimator gives them.

    Example:
        >>> import os, tempfile
        >>> import onnxruntime
        >>> rnn = roann.RoaRNN(3, 8, num_layers=2, horizon=100)
        >>> path = os.path.join(tempfile.mkdtemp(), "rnn.onnx")
        >>> export_onnx(rnn, path)
        >>> session = onnxruntime.InferenceSession(path)
        >>> u, hx = torch.randn(70, 5, 3), torch.zeros(2, 5, 8)
        >>> output, h_n = session.run(None, {"input": u.numpy(), "hx": hx.numpy()})
        >>> bool((torch.from_numpy(output) - rnn(u, hx)[0]).abs().max() < 1e-5)
        True
    """
    if isinstance(model, RoaRNNCell | RoaRNN):
        if lengths and (step or isinstance(model, RoaRNNCell)):
            _checks.fail("lengths", "False for one step", lengths)
        if isinstance(model, RoaRNNCell):
            graph = _of_cell(model)
        else:
            graph = _of_step(model) if step else _of_rnn(model, lengths)
    elif isinstance(model, Exportable):
        if step:
            _checks.fail("step", "False for an Exportable", step)
        graph = model.onnx_graph(lengths=lengths)
    else:
        cure = "for another model, build a roann.export.Graph with add_rnn"
        got = type(model).__name__
        _checks.fail("model", "a RoaRNN, a RoaRNNCell or an Exportable", got, cure, TypeError)
    write_atomically(Path(path), graph.to_bytes())


def _of_rnn(model: RoaRNN, lengths: bool) -> Graph:
    graph, D = Graph(next(model.parameters()).dtype), 2 if model.bidirectional else 1
    N, I, layers = model.hidden_size, model.input_size, D * model.num_layers
    lead = ["batch", "time"] if model.batch_first else ["time", "batch"]
    u, hx = graph.input("input", [*lead, I]), graph.input("hx", [layers, "batch", N])
    ends = graph.input("lengths", ["batch"], torch.int64) if lengths else None
    output, h_n = add_rnn(graph, model, u, hx, lengths=ends)
    graph.output("output", output, [*lead, D * N])
    graph.output("h_n", h_n, [layers, "batch", N])
    return graph


def _of_step(model: RoaRNN) -> Graph:
    graph, N = Graph(next(model.parameters()).dtype), model.hidden_size
    u = graph.input("input", ["batch", model.input_size])
    hx = graph.input("hx", [model.num_layers, "batch", N])
    output, h_n = add_step(graph, model, u, hx)
    graph.output("output", output, ["batch", N])
    graph.output("h_n", h_n, [model.num_layers, "batch", N])
    return graph


def _of_cell(model: RoaRNNCell) -> Graph:
    graph, N = Graph(next(model.parameters()).dtype), model.hidden_size
    u, hx = graph.input("input", ["batch", model.input_size]), graph.input("hx", ["batch", N])
    _, h_n = add_step(graph, model, u, hx)
    graph.output("h_n", h_n, ["batch", N])
    return graph
