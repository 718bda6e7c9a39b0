"""Runs per hour of a sweep, by engine, and what the death of a process costs a training."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.record import SkippedError
from roann.lab.checkpoint import committed, step_of
from roann.lab.run import LOG
from roann.lab.run_context import CHECKPOINTS

ENGINES: dict[str, list[str]] = {"local": [], "ray": ["--engine", "ray"]}
"""By name the flags of `roann sweep`; a new engine is a row here."""
JOBS = 2
_SMALL = """[task]
name = "copying"
lag = 50
[model]
name = "roa-rnn"
hidden_size = 32
[train]
eval_every = 1000000
clock = "wall"
"""
_SWEPT = _SMALL + "length = {steps}\n"
_KILLED = _SMALL + "length = 1000000\ncheckpoint_every = {every}\n"
_WAIT = 300.0


def sweep(engine: str, runs: int, steps: int, folder: Path) -> dict[str, Any]:
    """Wall seconds of a sweep, those its runs trained, and the processor's of its driver."""
    file = folder / "swept.toml"
    file.write_text(_SWEPT.format(steps=steps), encoding="utf-8")
    words = ["sweep", file, "--root", folder / f"{engine}-{runs}", "--jobs", JOBS, "--json", "-q"]
    words += [*ENGINES[engine], "--seeds", *range(runs)]
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "roann", *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    driver = 0.0
    while process.poll() is None:
        driver = max(driver, _processor_seconds(process.pid))
        time.sleep(0.05)
    seconds = time.perf_counter() - start
    out, err = process.communicate()
    if process.returncode:
        said = [line.strip(" ╭╮╰╯│─") for line in err.splitlines()]  # without tyro's frames
        raise SkippedError(f"roann sweep ended with {process.returncode}: {' '.join(said)[:200]}")
    results = [Path(directory) / "result.json" for directory in json.loads(out)["runs"]]
    trained = sum(json.loads(path.read_text())["seconds"] for path in results)
    return {"runs": len(results), "seconds": seconds, "trained": trained, "driver": driver}


def _processor_seconds(pid: int) -> float:
    """What a process has used itself, without its children; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill(every: int, folder: Path) -> dict[str, Any]:
    """Kill rank 1 of two just before a checkpoint is due; what it costs, in seconds.

    `restart` is the time from the kill until the last checkpoint is read again, `repeated` the
    training between that checkpoint and the kill, and `cost` how much later the next one comes.
    """
    file, run = folder / "killed.toml", folder / "killed"
    file.write_text(_KILLED.format(every=every), encoding="utf-8")
    words = ["run", file, "--out", run, "--processes", 2, "--max-restarts", 1, "-q"]
    process = subprocess.Popen(
        [sys.executable, "-m", "roann", *map(str, words)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        first, second = (_when(lambda n=n: _newest(run) >= n * every) for n in (1, 2))
        period = second - first
        time.sleep(0.9 * period)
        killed = time.perf_counter()
        os.kill(_rank(process.pid, 1), signal.SIGKILL)
        resumed = _when(lambda: "resumed at step" in (run / LOG).read_text(), 0.01)
        third = _when(lambda: _newest(run) >= 3 * every)
    finally:
        process.terminate()
        process.wait(60)
    return {
        "period": period,
        "repeated": killed - second,
        "restart": resumed - killed,
        "cost": third - second - period,
    }


def _when(happened: Callable[[], bool], pause: float = 0.002) -> float:
    """The moment at which something is seen to have happened."""
    end = time.perf_counter() + _WAIT
    while not happened():
        if time.perf_counter() > end:
            raise SkippedError(f"nothing happened for {_WAIT:g} s")
        time.sleep(pause)
    return time.perf_counter()


def _newest(run: Path) -> int:
    return max((step_of(path) for path in committed(run / CHECKPOINTS)), default=0)


def _rank(launcher: int, rank: int) -> int:
    """The process of a rank, among the children of its launcher."""
    for child in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise SkippedError(f"rank {rank} has no process")
