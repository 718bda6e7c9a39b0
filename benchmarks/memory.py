"""Peak memory of one training step, each in a fresh process."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.contenders import TORCH, Sequences, deep, fnn, recurrent
from benchmarks.machine import set_up
from benchmarks.record import Row, SkippedError
from roann import StreamingRoa

MODES = ("store", "checkpoint", "reversible")
STREAM = "stream"  # no training step: one step of a stream after the other


def peak(case: str, name: str, how: str, what: Sequences | int) -> Row:
    """The row of a memory mode, a stream, "naive loop" or a layer of torch, on sequences or layers.

    Its memory is the peak above what was there before the step.
    """
    if not resident():
        raise SkippedError("this system has no /proc/self/status")
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        seconds, extra, notes = fresh.submit(_step, how, what, torch.get_num_threads()).result()
    if isinstance(what, int):
        steps, sizes = what, {"depth": what, "B": 1, "N": 2}
    else:
        steps, sizes = what.T, what.sizes()
    work = "forward" if how == STREAM else "train"
    row = Row(case, work, name, seconds, steps, [seconds], sizes=sizes)
    return replace(row, extra_bytes=extra, notes=notes)


def resident() -> dict[str, int]:
    """Bytes resident now ("VmRSS") and at most ("VmHWM"); empty where the system does not say."""
    path = Path("/proc/self/status")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    fields = dict(line.split(":", 1) for line in lines if line.startswith(("VmRSS", "VmHWM")))
    return {name: int(text.split()[0]) * 1024 for name, text in fields.items()}


def _step(how: str, what: Sequences | int, threads: int) -> tuple[float, int, list[str]]:
    """In the fresh process: seconds, bytes and warnings of the step."""
    set_up(threads)
    short, step = _steps(how, what)
    short()  # loads everything
    with suppress(OSError):  # where the peak cannot be reset, the result may be too large
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident()["VmRSS"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
    return seconds, resident()["VmHWM"] - before, [str(w.message) for w in caught]


def _steps(how: str, what: Sequences | int) -> list[Callable[[], object]]:
    """A short training step, and the one to measure."""
    if isinstance(what, int):
        nets = [fnn(depth, horizon=what, memory=how) for depth in (2, what)]
        return [deep(net, 1, "train") for net in nets]
    if how == STREAM:
        stream, u = StreamingRoa(what.roa()), replace(what, T=1).input()[0]
        return [partial(_streamed, stream, u, T) for T in (2, what.T)]
    layer: nn.Module
    u, g, options = what.input(), what.cotangent(), {}
    if how in TORCH:
        layer = TORCH[how][0](what.I, what.N)
    elif how == "naive loop":
        layer = what.roa(backend="reference")
    else:
        layer, options = what.roa(memory=how), {"last_only": True}
    return [recurrent(layer, inputs, g, "train", **options) for inputs in (u[:2], u)]


def _streamed(stream: StreamingRoa, u: Tensor, steps: int) -> Tensor:
    h = None
    for _ in range(steps):
        _, h = stream.step(u, h)
    assert h is not None
    return h
