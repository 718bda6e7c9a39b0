"""A grid of runs, each in a directory named by its config, in a few local processes.

The directories are the only state of a sweep: after any interruption the same command looks at them
and does what is left. One process per run, so that a crash costs one run; the lock of a directory
keeps two sweeps from running the same one.
"""

from __future__ import annotations

import itertools
import logging
import math
import multiprocessing
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from roann.lab.checkpoint import BusyError
from roann.lab.config import ConfigError, Experiment, parse, read_toml
from roann.lab.files import RunFileError, parse_object
from roann.lab.progress import counted, logging_to_file, printable
from roann.lab.run import LOG, METRICS, execute, prepare, result_of
from roann.lab.stop import InterruptedRun, Stop, UnfinishedRun

ENDED = ("finished", "diverged")
MAX_CELLS, MAX_JOBS = 10_000, 256
ATTEMPTS = 3  # at a run whose process was killed
NEWS_SECONDS = 30.0
# A server imports these once and forks for every run; torch's optimisers import the second.
PRELOAD = ["roann.lab.sweep", "torch._dynamo"]
_BUSY, _INTERRUPTED, _FAILED = 40, 41, 42  # exit codes of the processes
_log = logging.getLogger(__name__)

Axes = dict[str, list[Any]]


def axes(table: Mapping[str, Any], grid: Iterable[str], seeds: Sequence[int]) -> Axes:
    """The fields to vary and their values, from `[sweep]`, `--grid` and `--seeds`; later ones win.

    Example:
        >>> axes({"model": {"rho": [1.0, 3.0]}}, ["train.lr=0.1,0.5"], [0, 1])
        {'model.rho': [1.0, 3.0], 'train.lr': [0.1, 0.5], 'train.seed': [0, 1]}
    """
    found: Axes = {}
    for key, values in table.items():
        # TOML reads train.lr = [...] as a table in a table, and "train.lr" = [...] as a key.
        inner = values if isinstance(values, dict) else {"": values}
        found |= {f"{key}.{field}".rstrip("."): items for field, items in inner.items()}
    for word in grid:
        name, equals, text = word.partition("=")
        if not equals:
            raise ConfigError(f"--grid {word!r}: write FIELD=VALUE,VALUE, as in train.lr=0.1,0.5.")
        found[name.strip()] = _values(text)
    if seeds:
        found["train.seed"] = list(seeds)
    for name, values in found.items():
        if not isinstance(values, list) or not values:
            raise ConfigError(f"[sweep] {name} must be a list of values, not {values!r}.")
    return found


def _values(text: str) -> list[Any]:
    parts = [text] if text.lstrip().startswith("[") else text.split(",")
    values = []
    for part in parts:
        try:
            values.append(read_toml(f"value = {part}")["value"])
        except ConfigError:
            values.append(part.strip())
    return values[0] if len(parts) == 1 and isinstance(values[0], list) else values


def expand(experiment: Experiment, over: Axes, root: Path, name: str) -> dict[Path, Experiment]:
    """Every combination of values, checked, by the directory of its run; nothing is written."""
    cells = math.prod(map(len, over.values()))
    if cells > MAX_CELLS:
        raise ConfigError(f"the grid has {cells} runs; at most {MAX_CELLS} are allowed.")
    runs = {}
    for choice in itertools.product(*over.values()):
        tables, words = experiment.tables(), [name]
        for field, value in zip(over, choice, strict=True):
            table, dot, key = field.partition(".")
            if not dot or table not in tables:
                raise ConfigError(f"[sweep] {field!r}: write TABLE.FIELD, as in train.lr.")
            tables[table][key] = value
            words += [] if field == "train.seed" else [key, str(value)]
        cell = parse(tables)
        runs[root / cell.run_id("-".join(words))] = cell
    return runs


def run_all(
    cells: Mapping[Path, Experiment], jobs: int, stop: Stop, quiet: bool = False
) -> dict[Path, str]:
    """Run what has not ended, `jobs` at a time; returns the status of every run.

    A status is "finished" or "diverged", or, for runs to come back to, "interrupted", "busy" (in
    another process), "failed" (see its run.log) or "killed" (`ATTEMPTS` times).
    """
    if not 1 <= jobs <= MAX_JOBS:
        raise ConfigError(f"--jobs must be from 1 to {MAX_JOBS}, not {jobs}.")
    for folder, experiment in cells.items():
        prepare(folder, experiment)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    _start_server()
    waiting = [folder for folder in cells if result_of(folder) is None]
    _log.info("%s, %d finished.", counted(len(cells), "run"), len(cells) - len(waiting))
    running: dict[ForkServerProcess, Path] = {}
    statuses: dict[Path, str] = {}
    kills: Counter[Path] = Counter()
    news = time.monotonic() + NEWS_SECONDS
    while waiting or running:
        if stop.number:
            waiting.clear()
            for process in running:
                process.terminate()
        while waiting and len(running) < jobs:
            folder = waiting.pop(0)
            process = context.Process(target=_work, args=(folder,))
            process.start()
            running[process] = folder
        wait([process.sentinel for process in running], timeout=0.5)
        for process in [p for p in running if not p.is_alive()]:
            folder = running.pop(process)
            statuses[folder] = _status(folder, process.exitcode)
            kills[folder] += statuses[folder] == "killed"
            if statuses[folder] == "killed" and kills[folder] < ATTEMPTS and not stop.number:
                waiting.append(folder)
            left = len(waiting) + len(running)
            _log.info("%s: %s; %s left.", folder.name, statuses[folder], counted(left, "run"))
        if not quiet and time.monotonic() >= news:
            news = time.monotonic() + NEWS_SECONDS
            steps = [f"{f.name} at step {last_step(f)}" for f in running.values()]
            _log.info("running: %s.", ", ".join(steps))
    if stop.number:
        name = signal.Signals(stop.number).name
        _log.warning("stopped by %s; run the same command to continue.", name)
    return {folder: _status(folder, None, statuses.get(folder)) for folder in cells}


def _start_server() -> None:
    """Start the process that starts the others; it ignores Ctrl-C.

    A terminal sends it to all of them, and this one would die of it while it loads torch.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited, and it stays so there
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, before)


def _status(folder: Path, code: int | None, known: str | None = None) -> str:
    result = result_of(folder)
    if result is not None:
        return str(result["status"])
    names = {_BUSY: "busy", _INTERRUPTED: "interrupted", _FAILED: "failed"}
    return known or ("interrupted" if code is None else names.get(code, "killed"))


def last_step(folder: Path) -> int:
    """The step of a run's last record, 0 if it has none."""
    try:
        with open(folder / METRICS, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 100_000))
            lines = file.read().split(b"\n")
        step = parse_object(lines[-2]).get("step")
        return step if isinstance(step, int) else 0
    except (OSError, ValueError, IndexError):
        return 0


def _work(folder: Path) -> None:
    """The whole life of one process: one run."""
    parent = multiprocessing.parent_process()
    stop = Stop(orphaned=None if parent is None else lambda: not parent.is_alive())
    logging.getLogger("roann").setLevel(logging.INFO)
    with stop.listening():
        try:
            execute(folder, stop)
        except BusyError:
            sys.exit(_BUSY)
        except InterruptedRun:
            sys.exit(_INTERRUPTED)
        except (RunFileError, UnfinishedRun) as error:
            print(f"roann: {printable(str(error))}", file=sys.stderr)
            sys.exit(_INTERRUPTED if isinstance(error, UnfinishedRun) else _FAILED)
        except Exception as error:
            with logging_to_file(folder / LOG):
                _log.exception("the run failed")
            print(f"roann: {folder}: {printable(str(error))}", file=sys.stderr)
            sys.exit(_FAILED)
