"""Run directories to committed records, and back: one small JSONL file per run.

The first line of a record says what was run, where and how it ended; the others are the lines of
its `metrics.jsonl`, thinned to what figures and tables show. Everything downstream is made from
these files alone.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roann.info import source
from roann.lab import records
from roann.lab.checkpoint import replace_file
from roann.lab.config import read_text
from roann.lab.report import ReportError, Run, load_run

SOURCE, ENDS = "source.json", "ends.jsonl"
ELSEWHERE = "elsewhere"
"""Beside the figures' records: those of runs of the same names on another processor."""
_THEN = ", then "  # between the commits a run was made with
LINES = 200  # of the training loss that are kept
POINTS = 100  # of the gradient along time that are kept
_log = logging.getLogger(__name__)


def note_source(folder: Path) -> None:
    """Write beside a run which commit it is begun with, and which it goes on with, if known."""
    path = folder / SOURCE
    noted = json.loads(path.read_bytes()).get("commit") if path.exists() else None
    now = source().get("commit")
    commits = noted.split(_THEN) if noted else []
    if now is not None and now not in commits[-1:]:
        text = json.dumps({"commit": _THEN.join([*commits, now])})
        replace_file(path, (text + "\n").encode())


def collect(folder: Path, out: Path) -> Path | None:
    """Write the record of a run directory to `out`.

    None if the run has measured nothing yet. A run that has not ended leaves alone a record that
    has, or is further on, made elsewhere or with an earlier version.
    """
    run = load_run(folder)
    if not any(line["kind"] == "eval" for line in run.records) and not run.result:
        return None
    target = out / f"{run.name}.jsonl"
    if target.exists() and not run.result:
        other = read_record(target)
        if other.result or other.steps > run.steps:
            _log.warning("%s is left alone: it has gone further than %s.", target, folder)
            return target
    path = folder / SOURCE
    noted = json.loads(path.read_bytes()) if path.exists() else {}
    head = {
        "kind": "run",
        "name": run.name,
        "seed": run.seed,
        "config": run.text,
        "env": dict(run.env) | noted,
        "result": dict(run.result),
    }
    ends = records.read(folder / ENDS) if (folder / ENDS).exists() else []
    lines = [head, *thinned(run.records + ends)]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    out.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_bytes() != text.encode():
        replace_file(target, text.encode())
    return target


def thinned(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What figures and tables show: every evaluation and event, some of the rest.

    Of probes, eigenvalues are kept of the first and the last, decision surfaces of the last.
    """
    train = [line for line in lines if line["kind"] == "train"]
    every = math.ceil(len(train) / LINES)
    kept = {id(line) for line in train[every - 1 :: every]} if train else set()
    probes = [line for line in lines if line["kind"] == "probe"]
    ends = {id(line) for line in (probes[:1] + probes[-1:])}
    made = []
    for line in lines:
        if line["kind"] == "probe":
            made.append(_thin_probe(line, id(line) in ends, line is probes[-1]))
        elif line["kind"] != "train" or id(line) in kept:
            made.append({key: _digits(value) for key, value in line.items()})
    return made


def _thin_probe(line: Mapping[str, Any], end: bool, last: bool) -> dict[str, Any]:
    made = {key: value for key, value in line.items() if key not in ("eigenvalues", "surface")}
    if end and "eigenvalues" in line:
        made["eigenvalues"] = [[_digits(part, 4) for part in pair] for pair in line["eigenvalues"]]
    if last and "surface" in line:
        made["surface"] = line["surface"]
    for key in ("gradient_at", "gradient_by_step"):
        if key in line:
            made[key] = _some(line[key])
    if "sigma" in line:
        made["sigma"] = [_digits(value, 4) for value in line["sigma"]]
    return made


def _some(values: list[Any]) -> list[Any]:
    """At most `POINTS` of them, evenly, with the first and the last."""
    if len(values) <= POINTS:
        return values
    places = (round(k * (len(values) - 1) / (POINTS - 1)) for k in range(POINTS))
    return [_digits(values[place], 4) for place in places]


def _digits(value: Any, digits: int = 7) -> Any:
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def read_record(path: Path) -> Run:
    """A record as the run it is of."""
    try:
        head, *lines = records.read(path)
        if head.get("kind") != "run":
            raise ValueError("the first line is not that of a run")
        return Run(
            name=str(head["name"]),
            config=read_text(head["config"]),
            text=str(head["config"]),
            records=lines,
            env=head["env"],
            result=head["result"],
        )
    except (ValueError, KeyError) as error:
        raise ReportError(f"{path}: not the record of a run ({error}).") from None


def read_records(folder: Path) -> list[Run]:
    """Every record in a directory, by name."""
    return [read_record(path) for path in sorted(folder.glob("*.jsonl"))]
