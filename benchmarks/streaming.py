"""Latency on a stream: one step, and a short chunk, of one sequence. ONNX Runtime takes part."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.record import SkippedError
from benchmarks.timing import Contender
from roann import RoaRNN, StreamingRoa, export_onnx

WIDTHS, CHUNK, I = (64, 128, 512), 100, 8
FILTERS = ("broad", "qr")


Race = tuple[str, str, list[Contender], dict[str, int], int, str]
"""Case, work, contenders, sizes, steps, and with whom all are compared."""


def races(quick: bool) -> Iterator[Race]:
    """A step and a chunk of a stream, by width."""
    for N in (16,) if quick else WIDTHS:
        sizes, T = {"B": 1, "N": N, "I": I}, 5 if quick else CHUNK
        rnns = {f: _rnn(N, f) for f in FILTERS}
        yield f"stream-{N}", "step", _steps(rnns), sizes, 1, "nn.RNNCell"
        yield f"stream-{N}", "chunk", _chunks(rnns, T), sizes | {"T": T}, T, "nn.RNN"


def _rnn(N: int, filter: str) -> RoaRNN:
    rng = torch.Generator().manual_seed(0)
    return RoaRNN(I, N, horizon=1000, filter=filter, generator=rng).requires_grad_(False)


def _input(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def _steps(rnns: dict[str, RoaRNN]) -> list[Contender]:
    u, N = _input(1, I), rnns["broad"].hidden_size
    h, x = torch.zeros(1, 1, N), torch.zeros(1, N)
    cell = nn.RNNCell(I, N, nonlinearity="relu").requires_grad_(False)
    made = [Contender("nn.RNNCell", lambda: cell(u, x))]
    for name, rnn in rnns.items():
        made.append(_stream(f"StreamingRoa {name}", StreamingRoa(rnn).step, u, h))
        made.append(_cell(f"RoaRNNCell {name}", rnn, u, x, twin=f"StreamingRoa {name}"))
        made.append(_runtime(rnn, name, u, h, step=True))
    return made


def _chunks(rnns: dict[str, RoaRNN], T: int) -> list[Contender]:
    u, N = _input(T, 1, I), rnns["broad"].hidden_size
    h = torch.zeros(1, 1, N)
    theirs = nn.RNN(I, N, nonlinearity="relu").requires_grad_(False)
    made = [Contender("nn.RNN", lambda: theirs(u, h)[0])]
    for name, rnn in rnns.items():
        made.append(_stream(f"StreamingRoa {name}", StreamingRoa(rnn), u, h))
        made.append(_runtime(rnn, name, u, h, step=False))
    return made


def _stream(name: str, call: Callable[..., Any], u: Tensor, h: Tensor) -> Contender:
    return Contender(name, lambda: call(u, h)[0])


def _cell(name: str, rnn: RoaRNN, u: Tensor, x: Tensor, twin: str) -> Contender:
    cell = rnn.cell()
    return Contender(name, lambda: cell(u, x), twin=twin)


def _runtime(rnn: RoaRNN, filter: str, u: Tensor, h: Tensor, step: bool) -> Contender:
    """The exported layer in ONNX Runtime."""
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError as error:
        raise SkippedError(f"{error.name} is not installed") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        export_onnx(rnn, path, step=step)
        session = onnxruntime.InferenceSession(path, options)
    given = {"input": u.numpy(), "hx": h.numpy()}

    def run() -> Any:
        return session.run(None, given)[0]

    twin = f"StreamingRoa {filter}"
    return Contender(f"ONNX Runtime {filter}", run, twin=twin, as_tensor=torch.from_numpy)
