"""Committed records, one small JSONL file per run: written from run directories, and read again.

The first line of a record says what was run, where and how it ended; the others are the lines of
its `metrics.jsonl`, thinned to what tables show.
"""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paper.plan import FIGURES, experiments
from roann.info import source
from roann.lab import records
from roann.lab.checkpoint import replace_file
from roann.lab.config import read_text
from roann.lab.report import Arm, Goal, Outcome, ReportError, Run, load_run

Records = Mapping[str, Any]
"""Figure → arm → its runs; under "bounds" the lines of that study."""
ELSEWHERE = "elsewhere"  # runs of the same names on another processor
BOUNDS = "bounds/bounds.jsonl"
SOURCE, ENDS = "source.json", "ends.jsonl"
LINES = 20  # of training that are kept, at most
_TRAIN = {"kind", "step", "seconds", "loss", "grad_norm"}
_DRAWN = {"sigma", "eigenvalues", "surface", "gradient_at", "gradient_by_step"}  # not in tables
_log = logging.getLogger("roann.paper")


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The whole JSON objects of a file; none if there is no file."""
    return records.read(path, strict=False) if path.exists() else []


def note_source(folder: Path) -> None:
    """Write beside a run which commit it is made with from now on."""
    with open(folder / SOURCE, "ab") as file:
        file.write(records.encoded(source()))


def collect(folder: Path, results: Path) -> None:
    """Write the record of a run directory, unless the run has measured nothing yet.

    An unfinished run does not replace a record that has ended or has more steps.
    """
    run = load_run(folder)
    if not run.of_kind("eval") and not run.result:
        return
    target = results / folder.parent.name / f"{run.name}.jsonl"
    if target.exists() and not run.result:
        other = read_record(target)
        if other.result or other.steps > run.steps:
            _log.warning("%s is kept: it has more steps than %s.", target, folder)
            return
    commits = dict.fromkeys(line["commit"] for line in lines_of(folder / SOURCE) if line)
    env = dict(run.env) | ({"commit": ", then ".join(commits)} if commits else {})
    head = {"kind": "run", "name": run.name, "seed": run.seed, "config": run.text}
    head |= {"env": env, "result": dict(run.result)}
    data = records.encoded(head, *thinned(run.records + lines_of(folder / ENDS)))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_bytes() != data:
        replace_file(target, data)


def thinned(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every evaluation, event and spike; some of the training loss; of probes what tables show."""
    train = [line for line in lines if line["kind"] == "train"]
    kept = {id(line) for line in train[:: -math.ceil(len(train) / LINES)]} if train else set()
    made = []
    for line in (line for line in lines if line["kind"] != "train" or id(line) in kept):
        keys = _TRAIN if line["kind"] == "train" else line.keys() - _DRAWN
        found = {key: value for key, value in line.items() if key in keys}
        if "sigma" in line:
            found |= {"sigma_max": line["sigma"][0], "sigma_min": line["sigma"][-1]}
        reals = {key: float(f"{x:.7g}") for key, x in found.items() if isinstance(x, float)}
        made.append(found | reals)
    return made


def read_record(path: Path) -> Run:
    """A record as the run it is of."""
    try:
        head, *lines = records.read(path)
        tables = read_text(head["config"])
        return Run(str(head["name"]), tables, head["config"], lines, head["env"], head["result"])
    except (ValueError, KeyError) as error:
        raise ReportError(f"{path}: not the record of a run ({error}).") from None


def arms_of(runs: Iterable[Run]) -> dict[str, Arm]:
    """Arms by name, which is a run's name without its seed; runs of an arm follow each other."""
    groups = itertools.groupby(runs, lambda run: re.sub(r"-s\d+$", "", run.name))
    scored = ((name, [Outcome(run, Goal.of([run])) for run in group]) for name, group in groups)
    return {name: Arm(name, tuple(outcomes)) for name, outcomes in scored}


def read_records(folder: Path) -> Records:
    """All records, in the order of the plan."""
    found: dict[str, Any] = {}
    for figure in (*FIGURES, ELSEWHERE):
        paths = {path.stem: path for path in sorted((folder / figure).glob("*.jsonl"))}
        planned = experiments(figure, "full") if figure in FIGURES else paths
        found[figure] = arms_of(read_record(paths[name]) for name in planned if name in paths)
    return found | {"bounds": lines_of(folder / BOUNDS)}
