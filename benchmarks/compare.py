"""Time this checkout's layers and those of another revision, interleaved in one run.

    python -m benchmarks.compare REVISION [--out results/bench]

Builds the other revision in a temporary directory, times both in processes of their own, turn by
turn, and keeps the best of all rounds of each. Prints a table and writes a record.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import roann
from benchmarks.timing import call, sample

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 0.4  # of calls in each measurement, at least
ROUNDS = 5
_VARIANTS = {"filter": ("qr", "permutation", "rotations"), "nonlinearity": ("tanh",)}
_VARIANTS |= {"memory": ("checkpoint", "reversible")}


def models() -> Iterator[tuple[str, nn.Module, list[Tensor]]]:
    """What is timed: a name, a layer that every revision has, its inputs."""
    paper = getattr(roann, "PAPER", {})  # before it had a name, it was the default

    def seeded(layer: Callable[..., nn.Module], *sizes: Any, **options: Any) -> nn.Module:
        return layer(*sizes, **paper | {"generator": torch.Generator().manual_seed(0)} | options)

    for key, words in _VARIANTS.items():
        for word in words:
            rnn = seeded(roann.RoaRNN, 1, 178, horizon=784, **{key: word})
            yield f"RNN {word} N=178 T=784 B=100", rnn, [torch.randn(784, 100, 1)]
    for N, T, B in ((128, 400, 50), (32, 50, 16), (16, 20, 1)):
        rnn = seeded(roann.RoaRNN, 2, N, horizon=T)
        yield f"RNN N={N} T={T} B={B}", rnn, [torch.randn(T, B, 2)]
    deep, wide = (seeded(roann.RoaFNN, s) for s in ([2] * 5000 + [1], [64] * 50 + [10]))
    yield "FNN 5,000 maps N=2 B=1,000", deep, [torch.randn(1000, 2)]
    yield "FNN 50 maps N=64 B=64", wide, [torch.randn(64, 64)]
    cell = seeded(roann.RoaRNNCell, 3, 178, horizon=100)
    yield "cell N=178 B=1", cell, [torch.randn(1, 3), torch.randn(1, 178)]


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Inference and a training step of every model, by name."""

    def read(found: Any) -> Any:
        return found[0] if isinstance(found, tuple) else found

    for name, model, inputs in models():
        g = torch.ones_like(read(model(*inputs)))
        yield f"{name}: inference", call(model, inputs, g, "forward", read)
        yield f"{name}: training step", call(model, inputs, g, "train", read)


def best(run: Callable[[], object]) -> float:
    """Microseconds of a call: the best of several measurements."""
    run()
    number = max(1, int(SECONDS / 4 / max(sample(run, 1), 1e-7)))
    return 1e6 * min(sample(run, number) for _ in range(4))


def measure() -> None:
    """Time all cases of the `roann` that is importable here; print them as JSON."""
    warnings.simplefilter("ignore")
    torch.set_flush_denormal(True)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    json.dump({name: best(run) for name, run in calls()}, sys.stdout)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def _install(revision: str, to: Path) -> None:
    """Build a revision of the package, kernel included, into a directory."""
    source = to / "source"
    source.mkdir(parents=True)
    subprocess.run(["tar", "-x"], cwd=source, input=_git("archive", revision), check=True)
    options = ["--quiet", "--no-deps", "--disable-pip-version-check", "--target", str(to / "lib")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)


def _timed(path: Path) -> dict[str, float]:
    """One round over all cases with the package found at `path`."""
    code = "from benchmarks.compare import measure; measure()"
    env = os.environ | {"PYTHONPATH": f"{path}{os.pathsep}{ROOT}"}
    run = subprocess.run([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(run.stdout))


def table(record: dict[str, Any]) -> str:
    """The record as a table."""
    before, after = record["microseconds"]["before"], record["microseconds"]["after"]
    lines = ["| case | before, µs | after, µs | after / before |", "|---|---|---|---|"]
    for case, now in after.items():
        lines += [f"| {case} | {before[case]:,.1f} | {now:,.1f} | {now / before[case]:.2f} |"]
    return "\n".join(lines)


def recorded(folder: Path = ROOT / "results" / "bench") -> str:
    """The tables of all such records in a folder, one after the other."""
    found = []
    for path in sorted(folder.glob("compare-*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        about = record["about"]
        cpu, isa = about["machine"]["cpu"], about["machine"]["isa"]
        revisions = f"Before: commit {about['before']}; after: commit {about['machine']['commit']}"
        found.append(f"{revisions}. {cpu}, {isa}.\n\n{table(record)}\n")
    return "\n".join(found)


def main() -> None:
    """The command: the best times of both revisions, in microseconds."""
    from benchmarks.machine import describe  # another revision may lack what it asks for

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("revision", help="the revision to compare with")
    parser.add_argument("--out", type=Path, default=None, help="where to write the record")
    args = parser.parse_args()
    name = _git("rev-parse", "--short=10", args.revision).decode().strip()
    found: dict[str, dict[str, float]] = {"before": {}, "after": {}}
    with tempfile.TemporaryDirectory() as room:
        for which, revision in zip(found, (args.revision, "HEAD"), strict=True):
            _install(revision, Path(room, which))
        for _ in range(ROUNDS):
            for which, least in found.items():
                for case, time in _timed(Path(room, which, "lib")).items():
                    least[case] = min(time, least.get(case, time))
    about = {"before": name, "rounds": ROUNDS, "machine": describe()}
    record = {"about": about, "microseconds": found}
    print(table(record))
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / f"compare-{name}.json"
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
