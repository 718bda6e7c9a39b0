"""Run directories as plain data, checked for what the figures of the report take for granted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roann.lab import files, records
from roann.lab.config import ConfigError, read_tables
from roann.lab.exits import LabError
from roann.lab.records import is_number


class ReportError(LabError):
    """A directory that cannot be reported: what, where, and what to do."""


@dataclass(frozen=True)
class Run:
    """What one run directory holds; `env` and `result` are empty where there is no file."""

    name: str
    config: Mapping[str, Mapping[str, Any]]
    text: str  # of the config
    records: list[dict[str, Any]]
    env: Mapping[str, Any]
    result: Mapping[str, Any]

    @property
    def task(self) -> Mapping[str, Any]:
        """The table `[task]`."""
        return self.config["task"]

    @property
    def model(self) -> Mapping[str, Any]:
        """The table `[model]`."""
        return self.config["model"]

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return int(self.config.get("train", {}).get("seed", 0))

    @property
    def status(self) -> str:
        """Finished, diverged, or unfinished."""
        return str(self.result.get("status", "unfinished"))

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the run said of itself when it began: primary score, trivial scores, parameters."""
        starts = (r for r in self.of_kind("event") if r.get("event") == "start")
        return next(starts, {}) or self.result

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """Its records of one kind."""
        return [record for record in self.records if record["kind"] == kind]

    @property
    def steps(self) -> int:
        """Updates done."""
        return int(self.result.get("steps", max((r["step"] for r in self.records), default=0)))

    @property
    def seconds(self) -> float:
        """Training wall time over all resumes."""
        times = (float(r.get("seconds") or 0) for r in self.records)
        return float(self.result.get("seconds", max(times, default=0.0)))


def load_run(folder: Path) -> Run:
    """Read a run directory; `ReportError` says what is missing or damaged, and where."""
    if not (folder / "config.toml").is_file():
        raise ReportError(
            f"{folder}: no config.toml, so this is not a run directory; "
            "give a directory that `roann run` wrote, or one that holds such directories."
        )
    try:
        config = read_tables(folder / "config.toml")
    except ConfigError as error:
        raise ReportError(str(error)) from None
    for table in ("task", "model"):
        if not isinstance(config.get(table, {}).get("name"), str):
            raise ReportError(f"{folder / 'config.toml'}: [{table}] has no name.")
    if not isinstance(config.get("train", {}).get("seed", 0), int):
        raise ReportError(f"{folder / 'config.toml'}: [train] seed must be a whole number.")
    return Run(
        name=folder.resolve().name,
        config=config,
        text=(folder / "config.toml").read_text(encoding="utf-8"),
        records=_records(folder / "metrics.jsonl"),
        env=_json(folder / "env.json"),
        result=_result(folder / "result.json"),
    )


def load_runs(places: Iterable[Path]) -> list[Run]:
    """Every run in these directories, which are runs or hold runs at any depth; each once."""
    folders: dict[Path, None] = {}
    places = list(places)
    if not places:
        raise ReportError(
            "no run directories given; name one that `roann run` wrote, or one that holds some."
        )
    for place in places:
        found = [place] if (place / "config.toml").is_file() else []
        found = found or sorted(path.parent for path in place.rglob("config.toml"))
        if not found:
            raise ReportError(
                f"{place}: no run directory here or below (none has a config.toml); "
                "give a directory that `roann run` or `roann sweep` wrote."
            )
        folders |= dict.fromkeys(folder.resolve() for folder in found)
    return [load_run(folder) for folder in folders]


@contextmanager
def _reported(path: Path, words: str = "{}") -> Iterator[None]:
    """Turn a ValueError into a `ReportError` that names the file."""
    try:
        yield
    except ValueError as error:
        raise ReportError(f"{path}: {words.format(error)}.") from None


def _records(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    with _reported(path, "a line is damaged: {}"):
        lines = records.read(path)
    for number, line in enumerate(lines, 1):
        with _reported(path, f"line {number} is not a record with a kind and a step ({{}})"):
            _check_record(line)
    return lines


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    with _reported(path):
        return files.read_object(path)


def _result(path: Path) -> dict[str, Any]:
    result = _json(path)
    with _reported(path, "not the result of a run ({})"):
        _check(result, _RESULT)
    return result


def _optional(value: object) -> bool:
    """A number, or null where it was not finite."""
    return value is None or is_number(value)


def _row(value: object) -> bool:
    return isinstance(value, list) and all(map(_optional, value))


def _text(value: object) -> bool:
    return isinstance(value, str)


def _scores(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _tuples(value: object, size: int) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list) and len(row) == size and all(map(is_number, row)) for row in value
    )


def _surface(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    extent, rows, points = (value.get(key) for key in ("extent", "values", "points"))
    width = len(rows[0]) if isinstance(rows, list) and rows and isinstance(rows[0], list) else 0
    return (
        _tuples([extent], 4)
        and width > 1
        and isinstance(rows, list)
        and len(rows) > 1
        and all(_row(row) and len(row) == width for row in rows)
        and (points is None or _tuples(points, 3))
    )


_Fields = Mapping[str, Callable[[Any], bool]]
_PROBE: _Fields = {
    "norm_W": _optional,
    "sigma": _row,
    "sigma_max": _optional,
    "sigma_min": _optional,
    "eigenvalues": lambda value: _tuples(value, 2),
    "gradient_at": lambda value: _tuples([value], len(value) if isinstance(value, list) else -1),
    "gradient_by_step": _row,
    "bound": lambda v: isinstance(v, dict) and _row([v.get("lower"), v.get("upper")]),
    "surface": _surface,
}
_FACTS: _Fields = {"primary": _text, "better": _text, "trivial": _scores}
_RESULT: _Fields = {
    "status": _text,
    "steps": lambda value: isinstance(value, int) and is_number(value),
    "seconds": is_number,
    **_FACTS,
}
_TOGETHER = (("sigma_max", "sigma_min"), ("gradient_at", "gradient_by_step"))


def _check_record(record: Mapping[str, Any]) -> None:
    """Raise a ValueError unless this is a record that the figures can draw."""
    records.check(record)
    if record["kind"] == "probe":
        _check(record, _PROBE)
        for one, other in _TOGETHER:
            if (one in record) != (other in record):
                raise ValueError(f"it has only one of {one} and {other}")
        if len(record.get("gradient_at", [])) != len(record.get("gradient_by_step", [])):
            raise ValueError("gradient_at and gradient_by_step have different lengths")
    elif record["kind"] == "eval":
        names = [key for key in record if key not in ("kind", "set")]
        _check(record, dict.fromkeys(names, _optional))
    elif record["kind"] == "event":
        _check(record, _FACTS)


def _check(values: Mapping[str, Any], fields: _Fields) -> None:
    for name, fits in fields.items():
        if name in values and not fits(values[name]):
            raise ValueError(f"its {name} is not of the shape that a run writes")
