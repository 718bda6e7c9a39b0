"""Which runs make which figure: experiment files, what is changed in them, and how many seeds.

The paper's setting is the scale "full". The scale "quick" is for a look: one seed, shorter
sequences and trainings. It has a place of its own and is never shown beside the other.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roann.lab.config import ConfigError, Experiment, parse, read_tables
from roann.lab.reproduce import league
from roann.lab.sweep import axes

Scale = Literal["quick", "full"]
Change = Mapping[str, Any]


@dataclass(frozen=True)
class Arm:
    """Runs that differ in the seed alone, or also along the `[sweep]` of their file.

    Attributes:
        file: the experiment, a file's name without its ending.
        seeds: how many: 0, 1, ….
        change: fields to set otherwise than the file does, by `table.field`.
        name: of its runs; by default that of the file.
    """

    file: str
    seeds: int = 5
    change: Change = field(default_factory=dict)
    name: str = ""

    @property
    def title(self) -> str:
        """The name of its runs, without the seed."""
        return self.name or self.file


@dataclass(frozen=True)
class Figure:
    """A figure or table of the paper, or a study of ours.

    Attributes:
        title: where it stands, short.
        arms: what is run for it, the most telling first.
        ours: not in the paper; `all` leaves it out at the quick scale.
        ends: probe the first seeds before and after training, outside its wall time.
    """

    title: str
    arms: Sequence[Arm]
    ours: bool = False
    ends: bool = False


def _filters(
    file: str, seeds: int, lr: float, names: Iterable[str], change: Change | None = None
) -> Iterator[Arm]:
    """One arm per filter; the identity at a tenth of the learning rate, as in the paper."""
    for name in names:
        own = {"model.filter": name, "train.lr": lr / 10 if name == "identity" else lr}
        yield Arm(file, seeds, {**own, **(change or {})}, f"{file}-{name}")


def _rates(file: str, rates: Iterable[float]) -> Iterator[Arm]:
    for lr in rates:
        yield Arm(file, 2, {"train.lr": lr, "train.probe_at": []}, f"{file}-lr-{lr:g}")


def _kinds(file: str, seeds: int) -> Iterator[Arm]:
    """One arm per kind of ρ: a number or a vector, fixed or learned."""
    learned = {"model.learn_rho": 0.04}
    for name, change in (
        ("scalar", {}),
        ("learned", learned),
        ("learned-vector", {"model.rho_vector": "equal", **learned}),
        ("multiscale", {"model.rho_vector": "multiscale"}),
        ("learned-multiscale", {"model.rho_vector": "multiscale", **learned}),
    ):
        yield Arm(file, seeds, change, f"{file}-{name}")


def _league(file: str, names: Iterable[str], seeds: int) -> Iterator[Arm]:
    for name in names:
        change = {"model": None, **league.changes(name, file.split("-")[1])}
        yield Arm(file, seeds, change, f"{file}-{name}")


_MOON, _DEEP = "double-moon-roa-50", "double-moon-roa-50000-adam"
# At L = 2000 what does not learn at L = 400 is not watched for long.
_FAR_LSTM = {"task.lag": 2000, "train.length": 150, "train.probe_at": [0, 150]}
_FAR_RNN = {"task.lag": 2000, "train.length": 400, "train.probe_at": [0, 400]}
# Half of the paper's iterations: where, it says, recall is 100 % "on most steps".
_HALF = {"train.length": 2000}
# As far as the paper's claim at this lag goes.
_CALM_FAR = {"model.rho": 0.1, "train.length": 500, "train.probe_at": [0, 500]}
_FEW = {"train.length": 3, "train.schedule": [], "train.probe_at": [0, 1, 3]}
_EVERY = ("qr", "identity", "haar", "permutation", "cycle")

FIGURES: dict[str, Figure] = {
    "fig1": Figure(
        "Fig. 1",
        (
            Arm("double-moon-shallow"),
            Arm("double-moon-vanilla-50"),
            Arm(_MOON),
            Arm(_DEEP),
            Arm("double-moon-roa-50000-sgd"),
            Arm("double-moon-roa-50000-nag"),
            Arm(_MOON, 5, {"model.filter": "permutation"}, f"{_MOON}-strategy-1"),
            Arm(_MOON, 5, {"model.recycle": True}, f"{_MOON}-strategy-2"),
            Arm(_DEEP, 5, {"model.filter": "permutation"}, f"{_DEEP}-strategy-1"),
            Arm(_DEEP, 5, {"model.recycle": True}, f"{_DEEP}-strategy-2"),
        ),
    ),
    "lr": Figure(
        "the search for learning rates",
        (
            *_rates("double-moon-shallow", (0.01, 0.03, 0.1, 0.3, 1.0)),
            *_rates("double-moon-vanilla-50", (0.001, 0.01, 0.1, 0.5, 1.0)),
            *_rates(_MOON, (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)),
            *_rates(_DEEP, (0.02, 0.05, 0.1, 0.2, 0.5)),
            *_rates("double-moon-roa-50000-sgd", (1e3, 3e3, 1e4, 3e4, 1e5)),
            *_rates("double-moon-roa-50000-nag", (30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)),
        ),
        ours=True,
    ),
    "fig3": Figure(
        "Fig. 3",
        (
            Arm("adding-200"),
            Arm("adding-1000"),
            Arm("adding-rnn", 2, name="adding-200-rnn"),
            Arm("adding-lstm", 2, name="adding-200-lstm"),
            Arm("adding-rnn", 1, {"task.length": 1000}, "adding-1000-rnn"),
            Arm("adding-lstm", 1, {"task.length": 1000}, "adding-1000-lstm"),
            Arm("adding-5000", 3),
        ),
    ),
    "fig2": Figure(
        "Fig. 2",
        (
            Arm("copying-400", 5, _HALF),
            Arm("copying-10000", 1),
            Arm("copying-rnn", 2, {**_HALF, "train.probe_at": [0, 2000]}, "copying-400-rnn"),
            Arm("copying-lstm", 2, {**_HALF, "train.probe_at": [0, 2000]}, "copying-400-lstm"),
            Arm("copying-2000", 5, _HALF),
            Arm("copying-rnn", 2, _FAR_RNN, "copying-2000-rnn"),
            Arm("copying-lstm", 1, _FAR_LSTM, "copying-2000-lstm"),
        ),
    ),
    "table1": Figure(
        "Table 1 and Fig. 5",
        (
            Arm("psmnist-178", 3),
            Arm("psmnist-178", 1, {"model.filter": "permutation"}, "psmnist-178-permutation"),
            Arm("psmnist-178", 1, {"task.split": "validation"}, "psmnist-178-validation"),
            Arm("psmnist-256", 1),
            Arm("psmnist-512", 1),
        ),
    ),
    "fig6": Figure(
        "Fig. 6",
        (
            *_filters("ablation-copying", 5, 0.5, _EVERY),
            *_filters("ablation-adding", 5, 0.5, _EVERY),
            *_filters("ablation-psmnist", 2, 0.1, ("qr", "identity"), _FEW),
        ),
    ),
    "rho": Figure("the ρ grid", (Arm("rho-adding", 2), Arm("rho-copying", 2))),
    "rho-kinds": Figure(
        "ρ as a vector, and learned",
        (
            *_kinds("rho-kinds-adding", 2),
            *_kinds("rho-kinds-copying", 2),
            *_kinds("rho-kinds-psmnist", 1),
        ),
        ours=True,
    ),
    "stable": Figure(
        "what makes it stable",
        (
            Arm("copying-400", 5, {"train.warmup": 50, **_HALF}, "copying-400-warmup"),
            Arm("copying-400", 5, {"train.lr": 0.1, **_HALF}, "copying-400-lr-0.1"),
            # About the norm of a gradient while it learns; where the loss leaps it has far more.
            Arm("copying-400", 5, {"train.clip_norm": 0.01, **_HALF}, "copying-400-clip-0.01"),
            # The grid, at a shorter lag, ends at 100 % for every ρ up to 1/2.
            Arm("copying-400", 5, {"model.rho": 0.1, **_HALF}, "copying-400-rho-0.1"),
            Arm("copying-10000", 1, _CALM_FAR, "copying-10000-rho-0.1"),
        ),
        ours=True,
    ),
    "league": Figure(
        "the league",
        (
            *_league("league-adding-200", league.systems(), 2),
            *_league("league-copying-100", league.systems(), 2),
            *_league("league-adding-1000", league.systems(), 2),
            *_league("league-psmnist-784", league.QUICK, 1),
        ),
        ours=True,
        ends=True,
    ),
}
"""What `roann reproduce` trains, by the word of its command line."""

# What the scale "quick" changes, by file; depth costs little and stays as it is.
_BRIEF: dict[str, dict[str, Any]] = {
    "copying-400": {"task.lag": 50, "train.length": 300, "train.probe_at": [0, 50, 300]},
    "copying-2000": {"task.lag": 100, "train.length": 300, "train.probe_at": [0, 50, 300]},
    "copying-10000": {"task.lag": 200, "train.length": 200, "train.probe_at": [0, 50, 200]},
    "copying-rnn": {"task.lag": 50, "train.length": 100, "train.probe_at": [0, 100]},
    "copying-lstm": {"task.lag": 50, "train.length": 100, "train.probe_at": [0, 100]},
    "adding-200": {"task.length": 50, "train.length": 1500, "train.probe_at": [0, 1500]},
    "adding-1000": {"task.length": 100, "train.length": 1500, "train.probe_at": [0, 1500]},
    "adding-5000": {"task.length": 200, "train.length": 1000, "train.probe_at": [0, 1000]},
    "adding-rnn": {"task.length": 50, "train.length": 500, "train.probe_at": [0, 500]},
    "adding-lstm": {"task.length": 50, "train.length": 500, "train.probe_at": [0, 500]},
    "psmnist-178": {"model.hidden_size": 64, "train.length": 1, "train.probe_at": [0, 1]},
    "psmnist-256": {"model.hidden_size": 80, "train.length": 1, "train.probe_at": [0, 1]},
    "psmnist-512": {"model.hidden_size": 96, "train.length": 1, "train.probe_at": [0, 1]},
    "ablation-copying": {"task.lag": 50, "train.length": 300, "train.probe_at": [0, 300]},
    "ablation-adding": {"task.length": 50, "train.length": 1000, "train.probe_at": [0, 1000]},
    "ablation-psmnist": {"model.hidden_size": 48, "train.length": 1, "train.probe_at": [0, 1]},
    "rho-adding": {"task.length": 50, "train.length": 500, "train.probe_at": []},
    "rho-copying": {
        "task.lag": 50,  # with the ten symbols more than the largest ρ
        "model.hidden_size": 64,
        "train.length": 200,
        "train.probe_at": [],
    },
    "rho-kinds-adding": {"task.length": 50, "train.length": 500},
    "rho-kinds-copying": {"task.lag": 40, "model.hidden_size": 64, "train.length": 200},
    "rho-kinds-psmnist": {"model.hidden_size": 48, "train.length": 1},
    "league-adding-200": {"task.length": 50, "train.max_seconds": 3.0},
    "league-copying-100": {"task.lag": 20, "train.max_seconds": 3.0},
    "league-adding-1000": {"task.length": 100, "train.max_seconds": 3.0},
    "league-psmnist-784": {"train.length": 1, "train.max_seconds": 20.0},
}


def experiments(
    figure: str, scale: Scale, folder: Path, only: Sequence[str] = ()
) -> dict[str, Experiment]:
    """The runs of a figure by name, checked, in the order in which they are worth most.

    Args:
        figure: a key of `FIGURES`.
        scale: the paper's setting, or a look at it.
        folder: where the experiment files are.
        only: patterns (with * and ?); runs of whose names no part matches any are left out.
    """
    found: dict[str, Experiment] = {}
    seen: set[str] = set()  # arms that differ in length alone may be one when shortened
    for arm in FIGURES[figure].arms:
        for name, experiment in _runs(arm, scale, folder):
            if experiment.digest() in seen:
                continue
            seen.add(experiment.digest())
            if not only or any(fnmatch.fnmatchcase(name, f"*{word}*") for word in only):
                found[name] = experiment
    return found


def _runs(arm: Arm, scale: Scale, folder: Path) -> Iterator[tuple[str, Experiment]]:
    path = folder / f"{arm.file}.toml"
    if not path.is_file():
        raise ConfigError(
            f"{path} is not there: run this in a checkout of the project, or name the directory "
            "with the experiment files by --experiments."
        )
    tables = read_tables(path)
    grid = axes(tables.pop("sweep", {}), (), range(1 if scale == "quick" else arm.seeds))
    brief = _BRIEF.get(arm.file, {}) if scale == "quick" else {}
    for choice in _choices(grid):
        changes = {**arm.change, **brief, **choice}
        name = arm.title
        for key, value in choice.items():
            word = key.partition(".")[2]
            name += f"-s{value}" if word == "seed" else f"-{word}-{_short(value)}"
        yield name, parse(changed(tables, changes))


def _choices(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    if not grid:
        yield {}
        return
    (key, values), *rest = grid.items()
    for value in values:
        for others in _choices(dict(rest)):
            yield {key: value, **others}


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def changed(tables: Mapping[str, Mapping[str, Any]], changes: Change) -> dict[str, dict[str, Any]]:
    """Tables with fields set otherwise, each `table.field`; a table alone is emptied."""
    made = {name: dict(table) for name, table in tables.items()}
    for key, value in changes.items():
        table, dot, name = key.partition(".")
        if dot:
            made[table][name] = value
        else:
            made[table] = {}
    return made
