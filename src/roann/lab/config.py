"""An experiment is a file: what may stand in it, how it is read, checked and written back.

A file has three tables, `[task]`, `[model]` and `[train]`; the first two have a `name` from a fixed
table and the settings of that task or model. `[sweep]` may list values for any of their fields,
`[search]` ranges; `[resources]` says what a run needs of a cluster.
This module imports neither torch nor pydantic until a config is checked: help must be instant.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from annotated_types import Ge, Gt, Le

from roann.lab.exits import LabError

if TYPE_CHECKING:
    import pydantic

MAX_FILE = 100_000  # bytes of an experiment file
MAX_DEPTH = 6  # of nested lists
MAX_PARTS = 100  # of a dotted key
TABLES = ("task", "model", "train")
RUN_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")

Tables = dict[str, dict[str, Any]]

_Count = Annotated[int, Ge(0), Le(10**9)]
_Some = Annotated[int, Ge(1), Le(10**9)]
_Rate = Annotated[float, Gt(0), Le(1e9)]
_Seconds = Annotated[float, Gt(0), Le(1e9)]


class ConfigError(LabError):
    """A user's mistake in a config: what, where, the value, what is allowed."""


@dataclass(frozen=True)
class Train:
    """How to train.

    `length`, `eval_every`, `schedule` and `probe_at` are counted in `unit`s; `warmup`, `log_every`
    and `checkpoint_every` always in iterations.
    """

    # adam, sgd (without momentum), nag (SGD with Nesterov momentum), rmsprop or adagrad.
    optimizer: str = "adam"
    lr: _Rate = 1e-3  # learning rate.
    # momentum of nag; the other optimizers have none.
    momentum: Annotated[float, Ge(0), Le(1)] = 0.99
    # smoothing constant of rmsprop; torch's default, 0.99, if not given.
    alpha: Annotated[float, Ge(0), Le(1)] | None = None
    weight_decay: _Rate | None = None  # L2 penalty on the parameters; none in the paper.
    # norm above which gradients are scaled down to it; none in the paper.
    clip_norm: _Rate | None = None
    # largest absolute value of an entry of the gradient; none in the paper.
    clip_value: _Rate | None = None
    # iteration or epoch; epochs are for tasks with a finite data set.
    unit: Literal["iteration", "epoch"] = "iteration"
    length: _Some = 1000  # number of units to train for.
    # pairs (start, factor): from start on, the learning rate is lr * factor.
    schedule: tuple[tuple[_Count, _Rate], ...] = ()
    # cosine: the learning rate falls to 0 along half a wave; it does not if not given.
    decay: Literal["cosine"] | None = None
    # number of iterations in which the learning rate first grows linearly to lr.
    warmup: _Count = 0
    eval_every: _Some = 100  # number of units between evaluations.
    # when to measure spectrum, gradient flow and bounds; 0 is before training.
    probe_at: tuple[_Count, ...] = ()
    # number of steps to measure around a loss spike; none if not given.
    black_box: _Some | None = None
    log_every: _Some = 10  # number of iterations between records of the training loss.
    # number of iterations between checkpoints; 0 for checkpoints by time only.
    checkpoint_every: _Count = 0
    checkpoint_seconds: _Seconds = 60.0  # number of seconds between checkpoints.
    # stop when the primary score of the first evaluation set reaches this.
    stop_score: float | None = None
    stop_evals: _Some = 1  # number of evaluations in a row that must reach it.
    max_seconds: _Seconds | None = None  # stop after this much training time, over all resumes.
    # how training time is measured: wall, or processor (CPU time over threads).
    clock: Literal["wall", "processor"] = "wall"
    # seed of weights, filters and data.
    seed: Annotated[int, Ge(0), Le(2**62), tyro.conf.arg(aliases=("--seed",))] = 0
    # number of torch threads; it changes the last bits of results.
    threads: Annotated[int, Ge(1), Le(1024)] = 1
    device: Literal["cpu", "cuda"] = "cpu"  # cpu or cuda.


@dataclass(frozen=True)
class Resources:
    """What each run of a sweep or a search gets of a cluster; no part of the run's config."""

    # processor cores; by default as many as threads.
    cores: Annotated[int, Ge(1), Le(1024)] | None = None
    memory: _Rate | None = None  # gigabytes of memory; not limited by default.
    # GPUs; by default one if device is cuda.
    gpus: Annotated[float, Ge(0), Le(64)] | None = None
    hours: _Rate = 24.0  # time limit of a Slurm job; a longer run continues in the next job.
    partition: str | None = None  # Slurm partition.
    account: str | None = None  # Slurm account.

    def of(self, train: Train) -> tuple[int, float]:
        """The cores and GPUs of a run."""
        gpus = float(train.device == "cuda") if self.gpus is None else self.gpus
        return self.cores or train.threads, gpus


@dataclass(frozen=True)
class Experiment:
    """A checked config: a task and a model by name with their settings, and how to train."""

    task_name: str
    task: Any
    model_name: str
    model: Any
    train: Train

    def tables(self) -> Tables:
        """Every field, resolved, as a file would hold it; fields that are None are left out."""
        return {
            "task": {"name": self.task_name} | _fields(self.task),
            "model": {"name": self.model_name} | _fields(self.model),
            "train": _fields(self.train),
        }

    def changed(self, values: Mapping[str, Any], source: str) -> Experiment:
        """It with other values of some fields, checked; `source` is the table that has them."""
        tables = self.tables()
        for field, value in values.items():
            table, dot, key = field.partition(".")
            if not dot or table not in tables:
                raise ConfigError(f"[{source}] {field!r}: write TABLE.FIELD, as in train.lr.")
            tables[table][key] = value
        return parse(tables)

    def digest(self) -> str:
        """A hash of the resolved config: equal for equal experiments, however they were written."""
        return hashlib.sha256(to_toml(self.tables()).encode()).hexdigest()

    def run_id(self, name: str) -> str:
        """A readable name, the seed and a hash, safe as a folder's name."""
        slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:70].rstrip("-._") or "run"
        return f"{slug}-s{self.train.seed}-{self.digest()[:10]}"


def read_tables(path: Path) -> Tables:
    """The tables of a TOML file, unchecked but for their form."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_FILE + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}.") from None
    if len(data) > MAX_FILE:
        raise ConfigError(f"{path}: an experiment file has at most {MAX_FILE} bytes.")
    try:
        return read_text(data.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_text(text: str) -> Tables:
    """As `read_tables`, from the text of a file."""
    tables = read_toml(text)
    _known("table", tables, (*TABLES, "sweep", "search", "resources"))
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise ConfigError(f"[{name}] must be a table, not {_shown(table)}.")
    return tables


# tomllib takes a time that grows with the square of the parts of a dotted key. The pattern
# itself takes no longer than the text: it starts where a part starts, and never goes back.
_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DOT = r"[ \t]*+\.[ \t]*+"
_LONG_KEY = re.compile(rf"""(?<![A-Za-z0-9_"'.-]){_PART}(?:{_DOT}{_PART}){{{MAX_PARTS}}}+""")


def read_toml(text: str) -> dict[str, Any]:
    """The values of a TOML text, within limits that keep reading and showing them quick."""
    if _LONG_KEY.search(text):
        raise ConfigError(f"not valid: a dotted key has at most {MAX_PARTS} parts.")
    try:
        values = tomllib.loads(text)
        _check_integers(values)
    except RecursionError:
        raise ConfigError("not valid TOML: nested too deeply.") from None
    except ValueError as error:
        raise ConfigError(f"not valid TOML: {error}.") from None
    return values


def _check_integers(value: object, where: str = "") -> None:
    """Reject integers of more than 64 bits: those of thousands of digits cannot even be shown."""
    if isinstance(value, dict):
        for key, item in value.items():
            name = f"{where} {key:.60}" if where else f"[{key:.60}]"
            _check_integers(item, name)
    elif isinstance(value, list):
        for item in value:
            _check_integers(item, where)
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{where} must be an integer of at most 64 bits.")


def parse(tables: Mapping[str, Mapping[str, Any]]) -> Experiment:
    """Check tables strictly and fill in defaults; a `[sweep]` is left to `roann.lab.sweep`."""
    from roann.lab.models import MODELS
    from roann.lab.optimizers import OPTIMIZERS
    from roann.lab.tasks import TASKS

    for name in TABLES:
        for key, value in tables.get(name, {}).items():
            _plain(f"[{name}] {key}", value)
    task_name, task = _named("task", tables, {name: row.config for name, row in TASKS.items()})
    model_name, model = _named("model", tables, {name: row.config for name, row in MODELS.items()})
    train = _checked("train", Train, tables.get("train", {}))
    _known("[train] optimizer", [train.optimizer], OPTIMIZERS)
    return Experiment(task_name, task, model_name, model, train)


def parse_resources(tables: Mapping[str, Mapping[str, Any]]) -> Resources:
    """Check `[resources]` strictly and fill in defaults."""
    settings = tables.get("resources", {})
    for key, value in settings.items():
        _plain(f"[resources] {key}", value)
    found: Resources = _checked("resources", Resources, settings)
    return found


def _named(
    table: str, tables: Mapping[str, Mapping[str, Any]], types: Mapping[str, type[Any]]
) -> tuple[str, Any]:
    settings = dict(tables.get(table, {}))
    name = settings.pop("name", None)
    if not isinstance(name, str):
        raise ConfigError(f'[{table}] needs name = "…", one of: {", ".join(types)}.')
    _known(f"[{table}] name", [name], types)
    return name, _checked(table, types[name], settings)


@functools.cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    import pydantic

    return pydantic.TypeAdapter(kind)


def _checked(table: str, kind: Any, settings: Mapping[str, Any]) -> Any:
    import pydantic

    _known(f"[{table}] key", settings, [f.name for f in dataclasses.fields(kind)])
    try:
        # Through JSON, because only there strict means: 1 is a float, but 1.5, true, "1" no int.
        text = json.dumps(settings, allow_nan=False)
        return _adapter(kind).validate_json(text, strict=True)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "value_error":  # worded by the settings themselves
            raise ConfigError(f"[{table}] {first['ctx']['error']}.") from None
        what = first["msg"].removeprefix("Input ")
        raise ConfigError(f"[{table}] {where} {what}, not {_shown(first['input'])}.") from None


def _known(what: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    names = list(allowed)
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(names)}."
            raise ConfigError(f"unknown {what} {_shown(name)}; {hint}")


def _plain(where: str, value: object, depth: int = 0) -> None:
    """Reject what strict JSON cannot express: dates, nan, inf, tables, huge integers."""
    if isinstance(value, list | tuple) and depth < MAX_DEPTH:
        for item in value:
            _plain(where, item, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where} must be a finite number, not {value}.")
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{where} must be an integer of at most 64 bits.")
    elif isinstance(value, str) and any(0xD800 <= ord(c) <= 0xDFFF for c in value):
        # Bytes of a command line that are not UTF-8: they cannot be written.
        raise ConfigError(f"{where} must be text in UTF-8.")
    elif not isinstance(value, bool | int | float | str):
        kind = type(value).__name__
        raise ConfigError(f"{where} must be a number, true or false, text or a list, not a {kind}.")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _fields(settings: Any) -> dict[str, Any]:
    values = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is not None:
            values[field.name] = value
        elif field.default is not None:
            raise ConfigError(f"{field.name} cannot be none: TOML has no word for it.")
    return values


def to_toml(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Write tables of plain values as TOML."""
    parts = []
    for name, table in tables.items():
        lines = [f"{key} = {_value(value)}" for key, value in table.items()]
        parts.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join(parts) + "\n"


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON's escapes are TOML's, but for DEL and the surrogate pairs of ensure_ascii.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise ConfigError(f"a config cannot hold {_shown(value)}.")
