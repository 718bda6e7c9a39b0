"""A grid of runs, each in a directory named by its config, executed by an engine.

The directories are the only state of a sweep: after any interruption the same command looks at them
and does what is left. One process per run, so that a crash costs one run; the lock of a directory
keeps two processes from running the same one, and the lock of a sweep keeps out a second driver.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from roann.lab import engines
from roann.lab.board import Board, board
from roann.lab.config import ConfigError, Experiment, Resources, read_toml
from roann.lab.engines.base import Engine, Setup
from roann.lab.engines.process import status_of
from roann.lab.follow import Follower
from roann.lab.progress import counted
from roann.lab.run import METRICS, prepare, result_of
from roann.lab.stop import Stop

ENDED = ("finished", "diverged")
MAX_CELLS = 10_000
ATTEMPTS = 3  # at a run whose process was killed each time before it got any further
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
        values = dict(zip(over, choice, strict=True))
        cell = experiment.changed(values, "sweep")
        named = {k: v for k, v in values.items() if k != "train.seed"}
        words = [word for k, v in named.items() for word in (k.partition(".")[2], str(v))]
        runs[root / cell.run_id("-".join([name, *words]))] = cell
    return runs


class Plan(Protocol):
    """Which runs to do: what `drive` asks and tells."""

    def next(self) -> tuple[Path, Experiment] | None:
        """A run to start now, if there is one."""

    def ended(self, folder: Path, status: str) -> None:
        """A run has ended, for good or to come back to."""

    def unwanted(self, running: Iterable[Path]) -> list[Path]:
        """The runs in progress that need not go on."""

    def left(self) -> int:
        """How many runs will still be started, as far as is known."""


class Grid:
    """A plan: these runs, in this order."""

    def __init__(self, cells: Mapping[Path, Experiment]) -> None:
        self._waiting = [(folder, cells[folder]) for folder in cells if result_of(folder) is None]
        self.statuses: dict[Path, str] = {}

    def next(self) -> tuple[Path, Experiment] | None:
        """The first that has not been started."""
        return self._waiting.pop(0) if self._waiting else None

    def ended(self, folder: Path, status: str) -> None:
        """Note the status."""
        self.statuses[folder] = status

    def unwanted(self, running: Iterable[Path]) -> list[Path]:
        """None: every cell counts."""
        return []

    def left(self) -> int:
        """How many wait."""
        return len(self._waiting)


def run_all(
    cells: Mapping[Path, Experiment],
    jobs: int | None,
    stop: Stop,
    quiet: bool = False,
    engine: str = "local",
    address: str | None = None,
    resources: Resources | None = None,
) -> dict[Path, str]:
    """Run what has not ended, `jobs` at a time; returns the status of every run.

    A status is "finished" or "diverged", or, for runs to come back to, "interrupted", "busy" (in
    another process), "failed" (see its run.log) or "killed" (`ATTEMPTS` times).
    """
    engines.check(engine, jobs, address)
    if not cells:
        return {}
    with engines.sole_driver(_lock(cells)) as home:
        for folder, experiment in cells.items():
            prepare(folder, experiment)
        plan = Grid(cells)
        finished = f"{counted(len(cells), 'run')}, {len(cells) - plan.left()} finished."
        if not plan.left():
            _log.info(finished)
        else:
            setup = Setup(home, jobs, address, resources or Resources())
            with engines.opened(engine, setup) as opened:
                _log.info(finished)
                drive(plan, opened, stop, board(quiet))
    return {f: status_of(f, None) if f not in plan.statuses else plan.statuses[f] for f in cells}


def _lock(cells: Iterable[Path]) -> Path:
    """The lock file of these very runs, beside their directories."""
    folders = sorted(str(folder.absolute()) for folder in cells)
    digest = hashlib.sha256("\n".join(folders).encode()).hexdigest()
    return Path(folders[0]).parent / f".sweep-{digest[:16]}.lock"


def drive(plan: Plan, engine: Engine, stop: Stop, shown: Board) -> None:
    """Hand the runs of a plan to an engine until all have ended, or all have stopped."""
    running: dict[Path, Experiment] = {}
    again: list[tuple[Path, Experiment]] = []
    tries = _Tries()
    ended = 0
    try:
        while True:
            while not stop.number and len(running) < engine.slots:
                cell = again.pop(0) if again else plan.next()
                if cell is None:
                    break
                running[cell[0]] = cell[1]
                engine.start(*cell)
            if not running:
                break
            for folder in list(running) if stop.number else plan.unwanted(running):
                engine.stop(folder)
            for folder, status in engine.ended(0.5).items():
                experiment = running.pop(folder)
                if status == "killed" and not stop.number and tries.one_more(folder):
                    again.append((folder, experiment))
                else:
                    plan.ended(folder, status)
                    ended += 1
                left = plan.left() + len(again) + len(running)
                _log.info("%s: %s; %s left.", folder.name, status, counted(left, "run"))
            shown.show(running, plan.left() + len(again), ended)
    finally:
        shown.close()
    if stop.number:
        name = signal.Signals(stop.number).name
        _log.warning("stopped by %s; run the same command to continue.", name)


class _Tries:
    """How often runs were killed since they last got further than ever before."""

    def __init__(self) -> None:
        self._kills: Counter[Path] = Counter()
        self._reached: dict[Path, int] = {}

    def one_more(self, folder: Path) -> bool:
        """Whether a run that was killed deserves another try: `ATTEMPTS` without progress."""
        step, before = last_step(folder), self._reached.get(folder, 0)
        self._kills[folder] = 1 if step > before else self._kills[folder] + 1
        self._reached[folder] = max(step, before)
        return self._kills[folder] < ATTEMPTS


def last_step(folder: Path) -> int:
    """The step of a run's last record, 0 if it has none."""
    return Follower(folder / METRICS).look().step
