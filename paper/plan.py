"""`plan.toml` as experiments: which runs make which figure, at the full or the quick scale."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from paper import ROOT
from roann.lab.config import ConfigError, Experiment, parse, read_tables
from roann.lab.models import MODELS, Preset
from roann.lab.sweep import axes

Scale = Literal["quick", "full"]
PLAN: dict[str, Any] = tomllib.loads((ROOT / "paper/plan.toml").read_text(encoding="utf-8"))
FIGURES: dict[str, dict[str, Any]] = PLAN["figure"]
SEEDS = 5
"""Trials of every experiment of the paper."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """Runs of the plan that differ in the seed alone, or also along the `[sweep]` of their file."""

    name: str
    file: str
    seeds: int
    change: Mapping[str, Any]
    paper_length: int | None = None
    cut: str = ""
    keep: bool = False


def entries(figure: str) -> Iterator[Entry]:
    """The entries of a figure, one per variant, in the order in which they are worth most."""
    common = FIGURES[figure].get("change", {})
    for row in FIGURES[figure]["runs"]:
        variants = row.get("variants", {}) | {
            f"lr-{rate:g}": {"train.lr": rate} for rate in row.get("rates", ())
        }
        variants |= PLAN["kinds"] if row.get("kinds") else {}
        variants |= _systems(row["file"].split("-")[1], row["systems"]) if "systems" in row else {}
        for variant, change in (variants or {"": {}}).items():
            name = "-".join(filter(None, [row.get("name", row["file"]), variant]))
            rest = {key: row[key] for key in ("paper_length", "cut", "keep") if key in row}
            changes = {**common, **row.get("change", {}), **change}
            yield Entry(name, row["file"], row["seeds"], changes, **rest)


def experiments(
    figure: str,
    scale: Scale,
    folder: Path = ROOT / "experiments",
    only: Sequence[str] = (),
) -> dict[str, Experiment]:
    """The runs of a figure by name, checked; with `only`, those whose names contain a pattern."""
    found: dict[str, Experiment] = {}
    seen: set[str] = set()  # entries that differ in length alone may be one when shortened
    for entry in entries(figure):
        for name, experiment in _runs(entry, scale, folder):
            if experiment.digest() not in seen:
                seen.add(experiment.digest())
                if not only or any(fnmatch.fnmatchcase(name, f"*{word}*") for word in only):
                    found[name] = experiment
    return found


def _runs(entry: Entry, scale: Scale, folder: Path) -> Iterator[tuple[str, Experiment]]:
    path = folder / f"{entry.file}.toml"
    if not path.is_file():
        raise ConfigError(f"{path} is missing; pass the folder of experiment files.")
    tables = read_tables(path)
    seeds = range(min(entry.seeds, 1) if scale == "quick" else entry.seeds)
    grid = axes(tables.pop("sweep", {}), (), ()) | {"train.seed": list(seeds)}
    quick = PLAN["quick"].get(entry.file, {}) if scale == "quick" else {}
    for values in itertools.product(*grid.values()):
        choice = dict(zip(grid, values, strict=True))
        name = entry.name
        for key, value in choice.items():
            word = key.partition(".")[2]
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            name += f"-s{value}" if word == "seed" else f"-{word}-{shown}"
        yield name, parse(changed(tables, {**entry.change, **quick, **choice}))


def changed(
    tables: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Tables with fields set differently, each `table.field`; a table alone is emptied."""
    made = {name: dict(table) for name, table in tables.items()}
    for key, value in changes.items():
        table, dot, name = key.partition(".")
        if dot:
            made[table][name] = value
        else:
            made[table] = {}
    return made


def _systems(task: str, which: str) -> dict[str, dict[str, Any]]:
    """What makes an experiment one of each system of the league: model and learning rate."""
    names = [name for name, row in MODELS.items() if row.kind == "sequence"]
    return {
        name: {"model": None, **_system(name, task)}
        for name in (names if which == "all" else PLAN["league"]["quick"])
    }


def _system(name: str, task: str) -> dict[str, Any]:
    preset, league = _preset(name, task), PLAN["league"]
    sizes = {key: pair[task == "copying"] for key, pair in league["sizes"].get(name, {}).items()}
    sizes |= league.get(task, {}).get(name, {})
    config = dataclasses.replace(preset.config, **sizes)
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    made = {f"model.{key}": value for key, value in values.items() if value is not None}
    made |= {"model.name": name, "train.optimizer": "adam", "train.lr": _rate(name, task, preset)}
    if "clip_norm" in preset.settings:
        made["train.clip_norm"] = float(preset.settings["clip_norm"])
    return made


def _preset(name: str, task: str) -> Preset:
    """The published setting for this task, else the first one, else the defaults."""
    row = MODELS[name]
    own = [preset for preset in row.presets.values() if preset.task == task]
    return next(iter([*own, *row.presets.values()]), Preset(task, row.config()))


def _rate(name: str, task: str, preset: Preset) -> float:
    """The published rate. RMSProp's serves Adam, whose steps have the same size; Adagrad's not."""
    if name == "eye-rnn":  # a tenth of the roaRNN's, as in the paper
        return _rate("roa-rnn", task, _preset("roa-rnn", task)) / 10
    alike = preset.settings.get("optimizer", "adam") in ("adam", "rmsprop")
    return float(preset.settings.get("lr", 1e-3)) if alike else 1e-3
