"""Fitted estimators as ONNX graphs: scaling, missing values, networks, pooling, answers.

Values are (T, B, C) inside a graph, in float64 as the estimators read them, until they are scaled;
networks are in float32. A row of unequal length is padded at its end with anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from roann import _checks
from roann.estimators.network import LAST, Network
from roann.estimators.prepare import FARTHEST, Preparation
from roann.estimators.series import Floats
from roann.export import Graph, add_rnn
from roann.export.layers import moving
from roann.nn import RoaRNN

FLOAT, DOUBLE, INT64 = 1, 11, 7  # TensorProto.DataType


@dataclass(frozen=True)
class Given:
    """The inputs of a graph: values (T, B, C), and lengths (B,) if rows are padded."""

    values: str
    lengths: str | None


def given(graph: Graph, channels: int, layout: str, lengths: bool) -> Given:
    """The input with series as `predict` takes them, and `lengths` if asked for."""
    first = layout == "channels_first"
    shape: list[int | str] = ["batch", channels, "time"] if first else ["batch", "time", channels]
    values = graph.input("input", shape, torch.float64)
    values = graph.node("Transpose", values, perm=[2, 0, 1] if first else [1, 0, 2])
    return Given(values, graph.input("lengths", ["batch"], torch.int64) if lengths else None)


def real(graph: Graph, value: float | Floats) -> str:
    """A constant in float64."""
    return graph.constant(torch.tensor(value, dtype=torch.float64))


def column(graph: Graph, value: str) -> str:
    """(B,) as (B, 1)."""
    return graph.node("Unsqueeze", value, graph.constant([1]))


def count(graph: Graph, size: str) -> str:
    """0, 1, …, size − 1 as (size, 1, 1), from a size (1,)."""
    last = graph.node("Squeeze", size)
    steps = graph.node("Range", graph.constant(0), last, graph.constant(1))
    return graph.node("Unsqueeze", steps, graph.constant([1, 2]))


def take(graph: Graph, values: str, index: str) -> str:
    """values[index[t, b, c], b, c]; an index below 0 takes the first, one too large the last."""
    last = graph.node("Sub", graph.size(values, 0), graph.constant([1]))
    index = graph.node("Max", graph.node("Min", index, last), graph.constant([0]))
    return graph.node("GatherElements", values, index, axis=0)


def seen_at(graph: Graph, values: str) -> str:
    """The step of each value, and −1 where it is missing, (T, B, C)."""
    missing = graph.node("IsNaN", values)
    return graph.node("Where", missing, graph.constant(-1), count(graph, graph.size(values, 0)))


def prepared(graph: Graph, preparation: Preparation, values: str) -> str:
    """The inputs of a network, (T, B, I), as `Preparation` makes them from values (T, B, C)."""
    if preparation.dt is not None:
        cure = "export the layers of networks_ yourself, or fit without times"
        _checks.fail("estimator", "one without time stamps", "one fitted with them", cure)
    seen = seen_at(graph, values)
    none = graph.node("Gather", seen, graph.constant(0), axis=0)
    none = graph.node("Min", none, graph.constant(-1))
    last = graph.scan(_later, none, [seen])[1]
    mean = real(graph, preparation.mean)
    filled = _known(graph, last, take(graph, values, last), mean)
    off = graph.node("Sub", filled, mean)
    parts = [graph.node("Div", off, real(graph, preparation.scale))]
    here = count(graph, graph.size(values, 0))
    if preparation.step_scale is not None:
        before = graph.node("Sub", here, graph.constant(1))
        before = graph.node("Expand", before, graph.node("Shape", values))
        steps = graph.node("Sub", filled, take(graph, filled, before))
        parts.append(graph.node("Div", steps, real(graph, preparation.step_scale)))
    if preparation.missing:
        known = graph.node("GreaterOrEqual", seen, graph.constant(0))
        since = graph.node("Sub", here, graph.node("Max", last, graph.constant(0)))
        since = graph.node("Add", graph.node("Cast", since, to=DOUBLE), real(graph, 1.0))
        parts += [graph.node("Cast", known, to=DOUBLE), graph.node("Log", since)]
    inputs = graph.node("Concat", *parts, axis=-1)
    inputs = graph.node("Clip", inputs, real(graph, -FARTHEST), real(graph, FARTHEST))
    return graph.node("Cast", inputs, to=FLOAT)


def _later(graph: Graph, state: str, slices: Sequence[str]) -> tuple[str, str]:
    new = graph.node("Max", state, slices[0])
    return new, new


def _known(graph: Graph, step: str, value: str, otherwise: str) -> str:
    """The value where its step is not −1."""
    known = graph.node("GreaterOrEqual", step, graph.constant(0))
    return graph.node("Where", known, value, otherwise)


@dataclass(frozen=True)
class States:
    """The states of a layer over time, and which of them are real.

    Attributes:
        x: (T, B, N).
        lengths: (B,), or None.
        moving: (T, B, 1), or None.
    """

    x: str
    lengths: str | None
    moving: str | None


def _mean(graph: Graph, states: States, x: str) -> str:
    """The mean of x (T, B, N) over real steps, (B, N)."""
    if states.lengths is None or states.moving is None:
        return graph.node("ReduceMean", x, graph.constant([0]), keepdims=0)
    x = graph.node("Where", states.moving, x, graph.constant(torch.tensor(0.0)))
    total = graph.node("ReduceSum", x, graph.constant([0]), keepdims=0)
    return graph.node("Div", total, column(graph, graph.node("Cast", states.lengths, to=FLOAT)))


def _maximum(graph: Graph, states: States) -> str:
    x = states.x
    if states.moving is not None:
        x = graph.node("Where", states.moving, x, graph.constant(torch.tensor(-torch.inf)))
    return graph.node("ReduceMax", x, graph.constant([0]), keepdims=0)


def _changes(graph: Graph, states: States) -> str:
    before = graph.node("Pad", states.x, graph.constant([1, 0, 0, -1, 0, 0]))  # 0 at the first
    return _mean(graph, states, graph.node("Abs", graph.node("Sub", states.x, before)))


def share(graph: Graph, states: States, threshold: Tensor) -> str:
    """The part of the steps at which a state is above its threshold, (B, N)."""
    above = graph.node("Greater", states.x, graph.constant(threshold))
    return _mean(graph, states, graph.node("Cast", above, to=FLOAT))


# As `network.POOLINGS`.
POOLINGS: dict[str, Callable[[Graph, States], str]] = {
    "mean": lambda graph, states: _mean(graph, states, states.x),
    "mean_abs": lambda graph, states: _mean(graph, states, graph.node("Abs", states.x)),
    "max": _maximum,
    "change": _changes,
}


def scanned(graph: Graph, layer: RoaRNN, u: str, lengths: str | None) -> tuple[States, str]:
    """The states of the last layer, and h_n."""
    x, h_n = add_rnn(graph, layer, u, lengths=lengths)
    return States(x, lengths, None if lengths is None else moving(graph, u, lengths)), h_n


def _answer(graph: Graph, network: Network, u: str, lengths: str | None) -> str:
    """The outputs of a network, (B, outputs), from its inputs (T, B, I)."""
    layer = network.layers[0]
    assert isinstance(layer, RoaRNN)
    states, h_n = scanned(graph, layer, u, lengths)
    D = 1 + network.plan.bidirectional
    ends = range(D * layer.num_layers - D, D * layer.num_layers)
    parts: list[str] = []
    for name in network.plan.pooling:
        if name == LAST:
            parts += [graph.node("Gather", h_n, graph.constant(i), axis=0) for i in ends]
        else:
            parts.append(POOLINGS[name](graph, states))
    norm, head = network.norm, network.head
    weights = [graph.constant(t) for t in (norm.weight, norm.bias)]
    pooled = graph.node("Concat", *parts, axis=1)
    pooled = graph.node("LayerNormalization", pooled, *weights, epsilon=norm.eps)
    weights = [graph.constant(t) for t in (head.weight, head.bias)]
    return graph.node("Gemm", pooled, *weights, transB=1)


def answers(graph: Graph, networks: Sequence[Network], u: str, lengths: str | None) -> list[str]:
    """The outputs of each network in float64, (B, outputs)."""
    found = [_answer(graph, network.eval(), u, lengths) for network in networks]
    return [graph.node("Cast", outputs, to=DOUBLE) for outputs in found]


def averaged(graph: Graph, values: Sequence[str]) -> str:
    """The mean of values of one shape; ONNX Runtime has no Mean in float64."""
    return graph.node("Div", graph.node("Sum", *values), real(graph, float(len(values))))


def scaled_back(graph: Graph, values: str, spread: Floats, center: Floats) -> str:
    """values · spread + center."""
    wide = graph.node("Mul", values, real(graph, spread))
    return graph.node("Add", wide, real(graph, center))


def labels(graph: Graph, codes: str, classes: np.ndarray) -> None:
    """The output `labels` (B,): classes of these numbers, as text or numbers."""
    kinds = {"i": np.int64, "u": np.int64, "f": np.float64, "b": np.bool_}
    if classes.dtype.kind in kinds:
        table = torch.from_numpy(classes.astype(kinds[classes.dtype.kind]))
        found = graph.node("Gather", graph.constant(table), codes, axis=0)
        graph.output("labels", found, ["batch"], table.dtype)
    else:
        names = graph.constant([str(name) for name in classes])
        graph.output("labels", graph.node("Gather", names, codes, axis=0), ["batch"], str)


@dataclass(frozen=True)
class Window:
    """The end of each series, less its base: what a forecast is made from.

    Attributes:
        values: (W, B, C + E), missing over the steps ahead if there are exogenous inputs.
        lengths: (B,), or None if all are W.
        base: (B, 1, C).
    """

    values: str
    lengths: str | None
    base: str


def window(graph: Graph, past: Given, size: int, relative: bool, exog: str | None,
           steps: int) -> Window:  # fmt: skip
    """As `windows.ends` cuts it; exog (T + steps, B, E)."""
    batch, ahead = graph.size(past.values, 1), 0 if exog is None else steps
    longest = graph.size(past.values, 0)
    ends = graph.node("Expand", longest, batch) if past.lengths is None else past.lengths
    base = real(graph, 0.0)
    ends = graph.node("Unsqueeze", ends, graph.constant([0, 2]))  # (1, B, 1)
    shape = graph.node("Concat", graph.constant([1]), batch, graph.size(past.values, 2), axis=0)
    base = graph.node("Expand", base, shape)
    if relative:
        seen = graph.node("Less", count(graph, longest), ends)
        seen = graph.node("Where", seen, seen_at(graph, past.values), graph.constant(-1))
        last = graph.node("ReduceMax", seen, graph.constant([0]), keepdims=1)
        base = _known(graph, last, take(graph, past.values, last), base)
    start = graph.node("Max", graph.node("Sub", ends, graph.constant(size)), graph.constant(0))
    width = graph.node("Min", longest, graph.constant([size]))
    width = graph.node("Add", width, graph.constant([ahead]))
    index = graph.node("Add", start, count(graph, width))  # (W, B, 1)
    own = graph.node("Sub", _rows(graph, past.values, index), base)
    inside = graph.node("Less", index, ends)
    own = graph.node("Where", inside, own, real(graph, float("nan")))
    if exog is not None:
        own = graph.node("Concat", own, _rows(graph, exog, index), axis=-1)
    lengths = None
    if past.lengths is not None:
        lengths = graph.node("Min", past.lengths, graph.constant([size]))
        lengths = graph.node("Add", lengths, graph.constant([ahead]))
    return Window(own, lengths, graph.node("Transpose", base, perm=[1, 0, 2]))


def _rows(graph: Graph, values: str, index: str) -> str:
    """values[index[w, b], b, :] from an index (W, B, 1)."""
    shape = graph.node("Concat", graph.constant([1, 1]), graph.size(values, 2), axis=0)
    return take(graph, values, graph.node("Expand", index, shape))
