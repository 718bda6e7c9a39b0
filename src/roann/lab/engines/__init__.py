"""The engines of sweeps and searches, by name. Their packages are imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from roann.lab.config import ConfigError
from roann.lab.engines.base import Engine, Setup
from roann.lab.engines.base import sole_driver as sole_driver

MAX_JOBS = 10_000


class Row(NamedTuple):
    """Where an engine is: module and class, the package it needs, and the extra that has it."""

    module: str
    name: str
    needs: str | None = None


ENGINES = {
    "local": Row("local", "Local"),
    "ray": Row("ray", "Ray", "ray"),
    "slurm": Row("slurm", "Slurm", "submitit"),
}


def check(engine: str, jobs: int | None, address: str | None) -> None:
    """Refuse what the engine cannot do, or a package that is not installed."""
    if jobs is not None and not 1 <= jobs <= MAX_JOBS:
        raise ConfigError(f"--jobs must be from 1 to {MAX_JOBS}, not {jobs}.")
    if address is not None and (engine == "local" or (engine == "slurm" and address != "local")):
        raise ConfigError(
            f"--address is a cluster of --engine ray, or 'local' to try --engine slurm here, not "
            f"{address!r} with --engine {engine}."
        )
    needs = ENGINES[engine].needs
    if needs is not None:
        need(needs, f"--engine {engine}", engine)


def need(package: str, what: str, extra: str) -> None:
    """Raise an error in one sentence if a package is not installed."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs the extra '{extra}' ({error}); install it with: "
            f"python -m pip install 'roann[{extra}]'"
        ) from None


@contextmanager
def opened(engine: str, setup: Setup) -> Iterator[Engine]:
    """The engine of this name, ready for runs; closed at the end."""
    row = ENGINES[engine]
    module = importlib.import_module(f"roann.lab.engines.{row.module}")
    found: Engine = getattr(module, row.name)(setup)
    try:
        yield found
    finally:
        found.close()
