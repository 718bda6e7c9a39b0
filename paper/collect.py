"""Committed records, one small JSONL file per run: written from run directories, and read again.

The first line of a record says what was run, where and how it ended; the others are the lines of
its `metrics.jsonl`, thinned to what tables show.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paper.plan import FIGURES, entries
from roann.info import source
from roann.lab import records
from roann.lab.checkpoint import replace_file
from roann.lab.config import read_text
from roann.lab.report import Arm, Goal, Outcome, ReportError, Run, load_run

Records = Mapping[str, Any]
"""Figure → arm → its runs; under "bounds" the lines of that study."""
ELSEWHERE = "elsewhere"
"""Records of runs of the same names on another processor."""
BOUNDS = "bounds/bounds.jsonl"
SOURCE, ENDS = "source.json", "ends.jsonl"
LINES, TIMED_LINES = 20, 200  # of training that are kept; a timed step is read off them
_TRAIN = {"kind", "step", "seconds", "loss", "grad_norm"}
_DRAWN = {"sigma", "eigenvalues", "surface", "gradient_at", "gradient_by_step"}  # not in tables
_log = logging.getLogger("roann.paper")


def jsonl(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """One JSON object a line."""
    plain = (records.plain(dict(line)) for line in lines)
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in plain).encode()


def note_source(folder: Path) -> None:
    """Write beside a run which commits it was made with."""
    commits, now = _noted(folder).get("commit", "").split(", then "), source().get("commit")
    if now is not None and now != commits[-1]:
        noted = ", then ".join(filter(None, [*commits, now]))
        replace_file(folder / SOURCE, jsonl([{"commit": noted}]))


def _noted(folder: Path) -> dict[str, str]:
    path = folder / SOURCE
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def collect(folder: Path, results: Path) -> Path | None:
    """Write the record of a run directory; None if the run has measured nothing yet.

    An unfinished run does not replace a record that has ended or has more steps.
    """
    run, figure = load_run(folder), folder.parent.name
    if not any(line["kind"] == "eval" for line in run.records) and not run.result:
        return None
    target = results / figure / f"{run.name}.jsonl"
    if target.exists() and not run.result:
        other = read_record(target)
        if other.result or other.steps > run.steps:
            _log.warning("%s is kept: it has more steps than %s.", target, folder)
            return target
    ends = records.read(folder / ENDS) if (folder / ENDS).exists() else []
    head = {"kind": "run", "name": run.name, "seed": run.seed, "config": run.text}
    head |= {"env": dict(run.env) | _noted(folder), "result": dict(run.result)}
    most = TIMED_LINES if FIGURES.get(figure, {}).get("timed") else LINES
    data = jsonl([head, *thinned(run.records + ends, most)])
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_bytes() != data:
        replace_file(target, data)
    return target


def thinned(lines: list[dict[str, Any]], most: int = LINES) -> list[dict[str, Any]]:
    """Every evaluation, event and spike; some of the training loss; of probes what tables show."""
    train = [line for line in lines if line["kind"] == "train"]
    kept = {id(line) for line in train[:: -math.ceil(len(train) / most)]} if train else set()
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
        if head.get("kind") != "run":
            raise ValueError("the first line is not that of a run")
        tables = read_text(head["config"])
        return Run(str(head["name"]), tables, head["config"], lines, head["env"], head["result"])
    except (ValueError, KeyError) as error:
        raise ReportError(f"{path}: not the record of a run ({error}).") from None


def arms_of(runs: Iterable[Run]) -> dict[str, Arm]:
    """Arms by name, which is a run's name without its seed."""
    groups: dict[str, list[Outcome]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        group = groups.setdefault(re.sub(r"-s\d+$", "", run.name), [])
        group.append(Outcome(run, Goal.of([run])))
    return {name: Arm(name, tuple(group)) for name, group in groups.items()}


def read_records(folder: Path) -> Records:
    """All records, in the order of the plan."""
    found: dict[str, Any] = {}
    for figure in (*FIGURES, ELSEWHERE):
        planned = [entry.name for entry in entries(figure)] if figure in FIGURES else []

        def place(arm: Arm, planned: list[str] = planned) -> tuple[int, float]:
            fits = [name for name in planned if f"{arm.label}-".startswith(f"{name}-")]
            return planned.index(max(fits, key=len)) if fits else 0, arm.model.get("rho") or 0

        arms = arms_of(map(read_record, sorted((folder / figure).glob("*.jsonl"))))
        found[figure] = {arm.label: arm for arm in sorted(arms.values(), key=place)}
    study = folder / BOUNDS
    return found | {"bounds": records.read(study) if study.is_file() else []}
