"""Run directories as plain data: config, records, environment, result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roann.lab import files, records
from roann.lab.config import ConfigError, read_tables
from roann.lab.exits import LabError
from roann.lab.report.checks import check_record, check_result


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
        starts = (r for r in self.records if r["kind"] == "event" and r.get("event") == "start")
        return next(starts, {}) or self.result

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
            check_record(line)
    return lines


def _json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    with _reported(path):
        return files.read_object(path)


def _result(path: Path) -> dict[str, Any]:
    result = _json(path)
    with _reported(path, "not the result of a run ({})"):
        check_result(result)
    return result
