"""`plan.toml` as experiments: which runs make which figure, at the full or the quick scale."""

from __future__ import annotations

import fnmatch
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from paper import ROOT
from roann.lab.config import ConfigError, Experiment, parse, read_tables
from roann.lab.sweep import axes

PLAN: dict[str, Any] = tomllib.loads((ROOT / "paper/plan.toml").read_text(encoding="utf-8"))
FIGURES: dict[str, dict[str, Any]] = PLAN["figure"]
SEEDS = 5
"""Trials of every experiment of the paper."""


class Entry(NamedTuple):
    """Runs of the plan that differ in the seed alone, or also along the `[sweep]` of their file."""

    name: str
    file: str
    seeds: int
    change: Mapping[str, Any]
    paper_length: int | None = None
    cut: str = ""


def entries(figure: str) -> Iterator[Entry]:
    """The entries of a figure, one per variant, in the order in which they are worth most."""
    for row in FIGURES[figure]["runs"]:
        variants = dict(row.get("variants", {}))
        variants |= {f"lr-{rate:g}": {"train.lr": rate} for rate in row.get("rates", ())}
        variants |= PLAN["kinds"] if row.get("kinds") else {}
        for name, change in PLAN["systems"].get(row.get("systems"), {}).items():
            variants[name] = {"model": {"name": name}, "train.optimizer": "adam"} | change
        for variant, change in (variants or {"": {}}).items():
            name = "-".join(filter(None, [row.get("name", row["file"]), variant]))
            changes = FIGURES[figure].get("change", {}) | row.get("change", {}) | change
            rest = {key: row[key] for key in ("paper_length", "cut") if key in row}
            yield Entry(name, row["file"], row["seeds"], changes, **rest)


def experiments(
    figure: str,
    scale: Literal["quick", "full"],
    folder: Path = ROOT / "experiments",
    only: Sequence[str] = (),
) -> dict[str, Experiment]:
    """The runs of a figure by name, checked; with `only`, those whose names contain a pattern."""
    found: dict[str, Experiment] = {}
    seen: set[str] = set()  # entries that differ in length alone may be one when shortened
    for name, experiment in (run for e in entries(figure) for run in _runs(e, scale, folder)):
        wanted = not only or any(fnmatch.fnmatchcase(name, f"*{word}*") for word in only)
        if wanted and experiment.digest() not in seen:
            found[name] = experiment
        seen.add(experiment.digest())
    return found


def _runs(entry: Entry, scale: str, folder: Path) -> Iterator[tuple[str, Experiment]]:
    path = folder / f"{entry.file}.toml"
    if not path.is_file():
        raise ConfigError(f"{path} is missing; pass the folder of experiment files.")
    tables = read_tables(path)
    grid = axes(tables.pop("sweep", {}), (), ())
    grid.pop("train.seed", None)  # the plan says how many
    quick = PLAN["quick"].get(entry.file, {}) if scale == "quick" else {}
    for values in itertools.product(*grid.values()):
        choice = dict(zip(grid, values, strict=True))
        shown = (f"{v:.4g}" if isinstance(v, float) else v for v in values)
        words = (f"{key.partition('.')[2]}-{v}" for key, v in zip(grid, shown, strict=True))
        name = "-".join([entry.name, *words])
        for seed in range(min(entry.seeds, 1) if scale == "quick" else entry.seeds):
            changes = {**entry.change, **quick, **choice, "train.seed": seed}
            yield f"{name}-s{seed}", parse(_changed(tables, changes))


def _changed(tables: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Tables with fields set differently, each `table.field`, or with another table in place."""
    made = {name: dict(table) for name, table in tables.items()}
    for key, value in changes.items():
        table, dot, name = key.partition(".")
        made[table] = made[table] | {name: value} if dot else value
    return made
