"""`plan.toml` as experiments: which runs make which figure, at the full or the quick scale."""

from __future__ import annotations

import fnmatch
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paper import ROOT
from roann.lab.config import Experiment, parse, read_tables
from roann.lab.sweep import axes

PLAN: dict[str, Any] = tomllib.loads((ROOT / "paper/plan.toml").read_text(encoding="utf-8"))
FIGURES: dict[str, dict[str, Any]] = PLAN["figure"]
SEEDS = 5  # of every experiment of the paper
Entry = Mapping[str, Any]
"""Runs of the plan that differ in the seed alone, or also along the `[sweep]` of their file."""


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
            yield row | {"name": name, "change": changes}


def experiments(
    figure: str,
    scale: Literal["quick", "full"],
    folder: Path = ROOT / "experiments",
    only: Sequence[str] = (),
) -> dict[str, Experiment]:
    """The runs of a figure by name, checked; with `only`, those whose names contain a pattern."""
    # When quick, entries that differ in length alone may be the same run.
    found: dict[str, tuple[str, Experiment]] = {}
    for name, experiment in (run for e in entries(figure) for run in _runs(e, scale, folder)):
        found.setdefault(experiment.digest(), (name, experiment))
    patterns = [f"*{word}*" for word in only] or ["*"]
    return {n: e for n, e in found.values() if any(fnmatch.fnmatchcase(n, p) for p in patterns)}


def _runs(entry: Entry, scale: str, folder: Path) -> Iterator[tuple[str, Experiment]]:
    tables = read_tables(folder / f"{entry['file']}.toml")
    quick = PLAN["quick"].get(entry["file"], {}) if scale == "quick" else {}
    seeds = range(min(entry["seeds"], 1) if scale == "quick" else entry["seeds"])
    grid = axes(tables.pop("sweep", {}), (), seeds)
    for values in itertools.product(*grid.values()) if seeds else ():
        choice = dict(zip(grid, values, strict=True))
        made = {name: dict(table) for name, table in tables.items()}
        for key, value in {**entry["change"], **quick, **choice}.items():
            table, dot, field = key.partition(".")
            made[table] = made[table] | {field: value} if dot else value
        seed = choice.pop("train.seed")
        shown = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in choice.items()}
        words = [f"{key.partition('.')[2]}-{value}" for key, value in shown.items()]
        yield "-".join([entry["name"], *words, f"s{seed}"]), parse(made)
