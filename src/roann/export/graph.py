"""An ONNX graph under construction: nodes, constants, inputs, outputs and scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import count
from typing import Any

import torch
from torch import Tensor

from roann import __version__, _checks

OPSET, IR_VERSION = 18, 8  # ONNX 1.13, ONNX Runtime 1.14 and later
# The numbers of TensorProto.DataType.
_TYPES = {torch.float32: 1, torch.float64: 11, torch.int64: 7, torch.bool: 9, str: 8}
Type = torch.dtype | type[str]
Dim = int | str  # a size, or the name of one that may vary


def _onnx() -> Any:
    try:
        return import_module("onnx")
    except ImportError:
        cure = 'install it with pip install "roann[onnx]"'
        _checks.fail("onnx", "the package onnx", "none", cure, ImportError)


def _plain(value: Sequence[str] | Sequence[int] | int) -> Tensor | tuple[str, ...]:
    """Integers as a tensor, words as they are."""
    if isinstance(value, int):
        return torch.tensor(value, dtype=torch.int64)
    words = tuple(v for v in value if isinstance(v, str))
    return words or torch.tensor(value, dtype=torch.int64)


class Graph:
    """An ONNX graph under construction.

    Values are strings: `input`, `constant` and `node` return the name of what they add, and take
    such names as arguments. `add_rnn` and `add_step` add a layer.

    Args:
        dtype: of the floats: float32 or float64.

    Example:
        >>> graph = Graph()
        >>> x = graph.input("x", ["batch", 3])
        >>> y = graph.node("Mul", x, graph.constant(torch.tensor(2.0)))
        >>> graph.output("y", y, ["batch", 3])
        >>> import onnxruntime
        >>> session = onnxruntime.InferenceSession(graph.to_bytes())
        >>> session.run(None, {"x": torch.ones(1, 3).numpy()})[0].tolist()
        [[2.0, 2.0, 2.0]]
    """

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        if dtype not in (torch.float32, torch.float64):
            cure = "move the model with .float()"
            _checks.fail("dtype", "torch.float32 or torch.float64", dtype, cure)
        self.dtype = dtype
        self._onnx = _onnx()
        self._numbers: Iterator[int] = count()
        self._outer: Graph | None = None  # a body uses the constants of the graph around it
        self._constants: dict[tuple[Any, ...], tuple[str, Tensor | tuple[str, ...]]] = {}
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def _inside(self) -> Graph:
        """The body of a scan of this graph."""
        body = Graph(self.dtype)
        body._outer, body._numbers = self, self._numbers
        return body

    def _name(self, hint: str) -> str:
        return f"{hint}_{next(self._numbers)}"

    def _value(self, name: str, shape: Sequence[Dim] | None, dtype: Type | None) -> Any:
        kind = _TYPES[self.dtype if dtype is None else dtype]
        return self._onnx.helper.make_tensor_value_info(name, kind, shape)

    def input(self, name: str, shape: Sequence[Dim], dtype: torch.dtype | None = None) -> str:
        """An input of the graph; names in its shape are sizes that may vary."""
        self._inputs.append(self._value(name, shape, dtype))
        return name

    def output(
        self, name: str, value: str, shape: Sequence[Dim], dtype: Type | None = None
    ) -> None:
        """Make a value an output of the graph, under this name."""
        self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name], name))
        self._outputs.append(self._value(name, shape, dtype))

    def constant(self, value: Tensor | Sequence[str] | Sequence[int] | int) -> str:
        """A tensor of its own dtype, integers as int64, or words; equal memory is stored once."""
        if self._outer is not None:
            return self._outer.constant(value)
        key: tuple[Any, ...]
        t: Tensor | tuple[str, ...]
        if isinstance(value, Tensor):
            t = value.detach()  # kept below, so that its memory stays its own
            key = (t.data_ptr(), tuple(t.shape), t.stride(), t.dtype)
        else:
            t, key = _plain(value), (str(value),)
        if key not in self._constants:
            self._constants[key] = self._name("constant"), t
        return self._constants[key][0]

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output, whose name it returns."""
        return self.nodes(op, inputs, 1, **attributes)[0]

    def nodes(
        self, op: str, inputs: Sequence[str], outputs: int, **attributes: Any
    ) -> tuple[str, ...]:
        """A node with several outputs."""
        made = tuple(self._name(op.lower()) for _ in range(outputs))
        node = self._onnx.helper.make_node(op, list(inputs), list(made), made[0], **attributes)
        self._nodes.append(node)
        return made

    def size(self, value: str, axis: int) -> str:
        """The size of a dimension, as an int64 tensor (1,)."""
        return self.node("Shape", value, start=axis, end=axis + 1)

    def scan(
        self,
        body: Callable[[Graph, str, Sequence[str]], tuple[str, str]],
        state: str,
        over_time: Sequence[str],
        reverse: bool = False,
    ) -> tuple[str, str]:
        """A scan over the first dimension of `over_time`: (the last state, the states over time).

        `body(graph, state, slices)` adds one step to the graph inside the scan, and returns the
        next state and the value to collect. With `reverse` time runs backwards, and the collected
        values stay in the order of time.
        """
        inside = self._inside()
        names = [inside._name("state"), *(inside._name("slice") for _ in over_time)]
        # Their types follow from what the scan is given.
        inside._inputs = [self._onnx.ValueInfoProto(name=name) for name in names]
        found = body(inside, names[0], names[1:])
        outputs = [inside.node("Identity", value) for value in found]  # names of their own
        inside._outputs = [self._onnx.ValueInfoProto(name=name) for name in outputs]
        way = int(reverse)
        last, states = self.nodes(
            "Scan", [state, *over_time], 2,
            body=inside._graph("step"), num_scan_inputs=len(over_time),
            scan_input_directions=[way] * len(over_time), scan_output_directions=[way],
        )  # fmt: skip
        return last, states

    def _graph(self, name: str) -> Any:
        array, words = self._onnx.numpy_helper.from_array, self._onnx.helper.make_tensor
        constants = [
            array(t.cpu().numpy(), key)
            if isinstance(t, Tensor)
            else words(key, _TYPES[str], [len(t)], t)
            for key, t in self._constants.values()
        ]
        make = self._onnx.helper.make_graph
        return make(self._nodes, name, self._inputs, self._outputs, constants)

    def to_bytes(self) -> bytes:
        """The model as a file has it, checked by ONNX's own checker."""
        helper = self._onnx.helper
        model = helper.make_model(
            self._graph("roann"),
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="roann",
            producer_version=__version__,
        )
        self._onnx.checker.check_model(model, full_check=True)
        written: bytes = model.SerializeToString()
        return written
