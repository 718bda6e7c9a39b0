"""The runs of the plan, through the lab's run directories: safe to stop and to start again."""

from __future__ import annotations

import logging
from pathlib import Path

from paper.collect import ENDS, collect, jsonl, note_source
from paper.plan import FIGURES
from roann.lab import checkpoint, run, sweep
from roann.lab.config import Experiment, parse, read_tables
from roann.lab.data import DataError, find_mnist
from roann.lab.probe import probe
from roann.lab.run_context import CHECKPOINTS
from roann.lab.stop import Stop

_log = logging.getLogger("roann.paper")


def train(figure: str, cells: dict[str, Experiment], runs: Path, results: Path, jobs: int) -> int:
    """Finish the runs of a figure and collect them; returns how many are left."""
    folders = {runs / figure / name: cell for name, cell in _with_data(cells).items()}
    timed = FIGURES[figure].get("timed", False)
    if timed:  # one by one, seed by seed: no system has all its runs in one slow minute
        folders = dict(sorted(folders.items(), key=lambda item: item[1].train.seed))
    for folder, cell in folders.items():
        run.prepare(folder, cell)
        if run.result_of(folder) is None:
            note_source(folder)
    stop = Stop()
    with stop.listening():
        statuses = sweep.run_all(folders, 1 if timed else jobs, stop)
        for folder in [f for f, cell in folders.items() if timed and cell.train.seed == 0]:
            if not stop.number:
                _probe_ends(folder)
    for folder in folders:
        collect(folder, results)
        print(f"{statuses[folder]:>11}  {figure}/{folder.name}", flush=True)
    stop.poll()
    return len(cells) - sum(status in sweep.ENDED for status in statuses.values())


def _with_data(cells: dict[str, Experiment]) -> dict[str, Experiment]:
    """The runs whose data are here; what is missing is logged."""
    there = {name: cell for name, cell in cells.items() if "mnist" not in cell.task_name}
    try:
        if len(there) < len(cells):
            find_mnist()
    except DataError as error:
        _log.warning("%d runs are left out: %s", len(cells) - len(there), error)
        return there
    return cells


def _probe_ends(folder: Path) -> None:
    """Probe the model of a run as it began and as it ended, once, outside its wall time."""
    result, found = run.result_of(folder), checkpoint.newest(folder / CHECKPOINTS, touch=False)
    if result is None or found is None or (folder / ENDS).exists():
        return
    experiment = parse(read_tables(folder / run.CONFIG))
    seed = experiment.train.seed
    run.set_up(experiment.train.threads, seed)
    task, model = run.build(experiment)
    about = {"kind": "probe", "epoch": None, "seconds": None}
    lines = [about | {"step": 0} | probe(task, model, seed)]
    checkpoint.unpack(found.tensors, model, None)
    if result["status"] != "diverged":
        lines.append(about | {"step": found.step} | probe(task, model, seed))
    checkpoint.replace_file(folder / ENDS, jsonl(lines))
