"""Runs to tables: which belong together, and what they scored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

from roann.lab.report.results import Arm, Goal, Outcome
from roann.lab.report.runs import Run
from roann.lab.tasks import TASKS, TaskRow

# What does not make a run another experiment.
_IDLE = {
    "model": {"backend", "memory"},
    "task": {"data_dir", "eval_batch_size", "eval_batches"},
    "train": {
        "seed", "threads", "device", "log_every", "eval_every", "probe_at", "checkpoint_every",
        "checkpoint_seconds", "max_seconds", "length", "clock", "black_box",
    },
}  # fmt: skip
_LETTERS = {"hidden_size": "N", "rho": "ρ", "lag": "L", "length": "T", "layers": "L"}
_WORDS = {"filter", "optimizer", "nonlinearity"}
_SIZES = {"hidden_size", "layers"}  # always shown where they differ


@dataclass(frozen=True)
class Section:
    """One task at one size, and every arm that ran on it."""

    title: str
    task: Mapping[str, Any]
    goal: Goal
    arms: tuple[Arm, ...]

    @property
    def row(self) -> TaskRow | None:
        """The row of its task; None for a task that is not in the table."""
        return TASKS.get(str(self.task["name"]))

    @property
    def outcomes(self) -> list[Outcome]:
        """What all its runs scored."""
        return [outcome for arm in self.arms for outcome in arm.outcomes]

    @property
    def runs(self) -> list[Run]:
        """All its runs."""
        return [outcome.run for outcome in self.outcomes]


def sections_of(runs: Iterable[Run]) -> list[Section]:
    """Group runs by task, then by everything but the seed."""
    by_task: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        by_task.setdefault(_key(run.task, "task"), []).append(run)
    sections = [_section(group) for group in by_task.values()]
    return _distinguished(sorted(sections, key=_order))


def _distinguished(sections: list[Section]) -> list[Section]:
    """Sections of one title get the settings in which their tasks differ added to it."""
    titled = []
    for section in sections:
        others = [other.task for other in sections if other.title == section.title]
        differing = [
            _setting(key, value)
            for key, value in section.task.items()
            if any(other.get(key) != value for other in others)
        ]
        titled.append(replace(section, title=", ".join([section.title, *differing])))
    return titled


def _key(table: Mapping[str, Any], name: str) -> tuple[tuple[str, str], ...]:
    idle = _IDLE.get(name, set())
    return tuple(sorted((k, repr(v)) for k, v in table.items() if k not in idle))


def _section(runs: list[Run]) -> Section:
    task, goal = runs[0].task, Goal.of(runs)
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        key = _key(run.model, "model"), _key(run.config.get("train", {}), "train")
        groups.setdefault(key, []).append(run)
    arms = [
        Arm(
            label,
            tuple(Outcome(run, goal) for run in _furthest(group)),
            len(group) - len(_furthest(group)),
        )
        for label, group in zip(_labels(list(groups.values())), groups.values(), strict=True)
    ]
    names = list(dict.fromkeys(str(arm.model["name"]) for arm in arms))
    names.sort(key=lambda name: not name.startswith("roa-"))
    arms.sort(key=lambda arm: (names.index(str(arm.model["name"])), _natural(arm.label)))
    return Section(_title(task), task, goal, tuple(arms))


def _furthest(group: Iterable[Run]) -> list[Run]:
    """The longest run of each seed, by seed."""
    found: dict[int, Run] = {}
    for run in group:
        if run.seed not in found or run.steps >= found[run.seed].steps:
            found[run.seed] = run
    return [found[seed] for seed in sorted(found)]


def _labels(groups: Sequence[list[Run]]) -> list[str]:
    """The model's name, and the settings in which it differs from others of that name."""
    flat = [
        {
            key: value
            for name in ("model", "train")
            for key, value in group[0].config.get(name, {}).items()
            if key not in _IDLE.get(name, set())
        }
        for group in groups
    ]
    labels = []
    for own in flat:
        namesakes = [other for other in flat if other.get("name") == own.get("name")]
        words = [_setting(key, own[key]) for key in _distinguishing(namesakes) if own.get(key)]
        labels.append(", ".join([str(own.get("name")), *words]))
    return labels


def _distinguishing(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys that distinguish these tables: sizes, and as few others as possible.

    A label that is a part of another's reads as the same system without the rest, so a key in which
    the two differ stays.
    """
    keys = [
        key
        for key in dict.fromkeys(key for table in tables for key in table)
        if len({repr(table.get(key)) for table in tables}) > 1
    ]
    for key in [key for key in reversed(keys) if key not in _SIZES]:
        fewer = [other for other in keys if other != key]
        words = [{(k, repr(table[k])) for k in fewer if table.get(k)} for table in tables]
        values = [repr(table.get(key) or None) for table in tables]
        pairs = permutations(zip(values, words, strict=True), 2)
        if all(a == b or not said <= more for (a, said), (b, more) in pairs):
            keys = fewer
    return keys


def _natural(label: str) -> list[tuple[float, str]]:
    """A sort key that puts 9 before 10, and 0.5 before 3."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)", label)
    return [(float(part), "") if k % 2 else (-1.0, part) for k, part in enumerate(parts)]


def _setting(key: str, value: object) -> str:
    if value is True:
        return key.replace("_", " ")
    if isinstance(value, str):
        # The name of a filter or an optimiser is clear by itself; other words need their key.
        return value if key in _WORDS else f"{key.replace('_', ' ')} {value}"
    shown = str(value)
    if isinstance(value, float):
        shown = f"{value:g}" if value.is_integer() else f"{value:.4g}"
    return f"{_LETTERS.get(key, key.replace('_', ' '))} = {shown}"


def _title(task: Mapping[str, Any]) -> str:
    row = TASKS.get(str(task["name"]))
    if row is None:
        return str(task["name"])
    if row.size is None or row.size[0] not in task:
        return row.title
    field, letter = row.size
    value = task[field]
    return f"{row.title}, {letter} = " + (f"{value:,}" if isinstance(value, int) else str(value))


def _order(section: Section) -> tuple[int, list[tuple[float, str]]]:
    """The tasks of the table in its order, then the others; each by its title."""
    names = list(TASKS)
    place = names.index(section.task["name"]) if section.row else len(names)
    return place, _natural(section.title.replace(",", ""))
