"""Committed records, read: figure → arm → its runs, and the lines of the bounds study."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paper.plan import FIGURES, entries
from roann.lab import records
from roann.lab.config import read_text
from roann.lab.report import Arm, Goal, Outcome, ReportError, Run

Records = Mapping[str, Any]
BOUNDS = "bounds/bounds.jsonl"
ELSEWHERE = "elsewhere"
"""Records of runs of the same names on another processor."""


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
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        groups.setdefault(re.sub(r"-s\d+$", "", run.name), []).append(run)
    return {
        name: Arm(name, tuple(Outcome(run, Goal.of([run])) for run in group))
        for name, group in groups.items()
    }


def read_records(folder: Path) -> Records:
    """All records, in the order of the plan."""
    found: dict[str, Any] = {}
    for figure in (*FIGURES, ELSEWHERE):
        arms = arms_of(map(read_record, sorted((folder / figure).glob("*.jsonl"))))
        planned = [entry.name for entry in entries(figure)] if figure in FIGURES else []
        places = {}
        for name, arm in arms.items():
            fits = [entry for entry in planned if f"{name}-".startswith(f"{entry}-")]
            index = planned.index(max(fits, key=len)) if fits else 0
            places[name] = index, arm.model.get("rho") or 0
        found[figure] = {name: arms[name] for name in sorted(arms, key=places.__getitem__)}
    study = folder / BOUNDS
    return found | {"bounds": records.read(study) if study.is_file() else []}
