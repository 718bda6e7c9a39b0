"""Peak memory of one training step, each in a fresh process: `python -m benchmarks.memory`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from benchmarks import depth
from benchmarks.peers import Sequences, recurrent

MODES = ("store", "checkpoint", "reversible")


@dataclass(frozen=True)
class Spec:
    """What to do in the fresh process.

    Attributes:
        contender: a memory mode, "naive loop" or "nn.RNN".
        threads: of torch.
        sequences: the arguments of `Sequences`, if it is a recurrent network;
        depth: else the number of layers of width 2.
    """

    contender: str
    threads: int
    sequences: dict[str, Any] | None = None
    depth: int = 0


class Peak(NamedTuple):
    """Seconds of the one training step, bytes of its peak above what was there, and warnings."""

    seconds: float
    extra: int
    notes: list[str]


def measure(spec: Spec) -> Peak:
    """Run one training step in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", json.dumps(asdict(spec))],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"the fresh process for {spec} failed:\n{done.stderr}")
    return Peak(*json.loads(done.stdout))


def resident() -> dict[str, int]:
    """Bytes resident now ("VmRSS") and at most ("VmHWM"); empty where the system does not say."""
    try:
        with open("/proc/self/status", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file if line.startswith(("VmR", "VmH")))
    except OSError:
        return {}
    return {k: int(fields[k].split()[0]) * 1024 for k in ("VmRSS", "VmHWM")}


def _forget_peak() -> None:
    """Reset the peak. Where that is not allowed, the result may be too large."""
    with suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _steps(spec: Spec) -> tuple[Callable[[], object], Callable[[], object]]:
    """A short training step that loads everything, and the one to measure."""
    if spec.sequences is None:
        short, long = (
            depth.net(n, horizon=spec.depth, memory=spec.contender) for n in (2, spec.depth)
        )
        return depth.step(short, 1, "train"), depth.step(long, 1, "train")
    case = Sequences(**spec.sequences)
    options: dict[str, Any] = {}
    layer: nn.Module
    if spec.contender == "nn.RNN":
        layer = nn.RNN(case.I, case.N, nonlinearity="relu")
    elif spec.contender == "naive loop":
        layer = case.roa(backend="reference")
    else:
        layer, options = case.roa(memory=spec.contender), {"last_only": not case.reads_all}
    u, g = case.input(), case.cotangent()
    few = g[:2] if case.reads_all else g
    return (
        recurrent(layer, u[:2], few, "train", case.reads_all, **options),
        recurrent(layer, u, g, "train", case.reads_all, **options),
    )


def main(argv: list[str]) -> int:
    """The fresh process: prints a `Peak` as JSON."""
    spec = Spec(**json.loads(argv[0]))
    torch.set_flush_denormal(True)
    torch.set_num_threads(spec.threads)
    short, step = _steps(spec)
    short()
    _forget_peak()
    before = resident()["VmRSS"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        step()
        seconds = time.perf_counter() - start
    notes = [str(w.message) for w in caught]
    print(json.dumps(Peak(seconds, resident()["VmHWM"] - before, notes)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
