"""What the verbs of the command line do: results to stdout, everything else to stderr."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roann.lab import checkpoint, joining, launch, run, sweep, verbs
from roann.lab.config import (
    ConfigError,
    Experiment,
    Resources,
    parse,
    parse_resources,
    read_tables,
    to_toml,
)
from roann.lab.data import DataError
from roann.lab.exits import DATA, DIVERGED, INTERRUPTED, OK
from roann.lab.models import MODELS
from roann.lab.models.base import count_parameters
from roann.lab.progress import counted, printable, watcher
from roann.lab.records import is_number, plain
from roann.lab.run_context import BEST, CHECKPOINTS
from roann.lab.stop import Stop
from roann.lab.train import unit_steps


def perform(verb: verbs.Verb) -> int:
    """Do what a parsed command line says; returns the exit code."""
    return next(act for kind, act in _ACTS.items() if isinstance(verb, kind))(verb)


def _experiment(verb: Any) -> Experiment:
    base = verb.base
    if base is None:
        raise ConfigError(f"{verb.file}: the experiment file must be named before the flags.")
    merged = Experiment(base.task_name, verb.task, base.model_name, verb.model, verb.train)
    return parse(merged.tables())


def _run(verb: verbs.Run) -> int:
    experiment = _experiment(verb)
    folder = verb.out or verb.root / experiment.run_id(verb.file.stem)
    if verb.print_config:
        print(to_toml(experiment.tables()), end="")
        return OK
    if verb.dry_run:
        plan = _plan(experiment, folder)
        _say(verb, plan)
        return DATA if "missing" in plan else OK
    return _execute(verb, folder, None, experiment)


def _plan(experiment: Experiment, folder: Path) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "directory": str(folder),
        "task": experiment.task_name,
        "model": experiment.model_name,
        "seed": experiment.train.seed,
        "length": f"{experiment.train.length} {experiment.train.unit}s",
    }
    try:
        task, model = run.build(experiment)
    except DataError as error:
        return plan | {"missing": str(error)}
    steps = experiment.train.length * unit_steps(experiment.train, task)
    return plan | {"steps": steps, "parameters": count_parameters(model)}


def _execute(
    verb: verbs.Together, folder: Path, step: int | None, experiment: Experiment | None = None
) -> int:
    """Run or resume, here or in several processes; an experiment may need its run directory."""
    launch.check(verb.processes, verb.max_restarts, verb.timeout)
    if (verb.processes or 1) > 1:
        return _launch(verb, folder, step, experiment)
    parent = os.getppid()
    # A process of a launcher that was killed must not go on alone.
    stop = Stop((lambda: os.getppid() != parent) if joining.launched() else None)
    # Joined first: a signal ends a process that still waits for the others at once.
    with joining.joined(verb.timeout) as ranks, stop.listening():
        with ranks.together():
            if experiment is not None and ranks.leads:
                if ranks.is_lost(folder):
                    raise ConfigError(
                        f"{folder}: rank 0 has moved to a machine that does not have this "
                        "directory; put it on a file system that all machines share."
                    )
                run.prepare(folder, experiment)
                ranks.begin()
        if joining.restarts():  # later checkpoints are of this very command
            step = None
        result = run.execute(folder, stop, watcher(verb.quiet), step, ranks)
    if ranks.leads and not launch.launched_here():
        _say_result(verb, folder, result)
    return DIVERGED if result["status"] == "diverged" else OK


def _launch(
    verb: verbs.Together, folder: Path, step: int | None, experiment: Experiment | None
) -> int:
    assert verb.processes is not None
    if experiment is not None:
        run.prepare(folder, experiment)
    words = ["resume", str(folder), "--timeout", str(verb.timeout)]
    words += [] if step is None else ["--checkpoint", str(step)]
    words += ["-q"] * verb.quiet + ["-v"] * verb.verbose
    code = launch.launch(words, verb.processes, verb.max_restarts, verb.timeout)
    if code in (OK, DIVERGED) and (result := run.result_of(folder)) is not None:
        _say_result(verb, folder, result)
    return code


def _say_result(verb: verbs.Result, folder: Path, result: dict[str, Any]) -> None:
    _say(verb, {"directory": str(folder)} | result, _summary(folder, result))


def _summary(folder: Path, result: dict[str, Any]) -> str:
    primary, trivial = result["primary"], result["trivial"][result["primary"]]
    after = counted(result["steps"], "step")
    head = f"{result['status']} after {after} ({result['seconds']:.0f} s)"
    lines = [f"{folder}: {head}: {result['cause']}"]
    for name, best in result["best"].items():
        final = result["final"][name].get(primary)
        values = f"{_number(final)}, best {_number(best.get(primary))} at step {best.get('step')}"
        lines.append(f"  {name} {primary}: {values} (trivial {trivial:.4g})")
    return "\n".join(lines)


def _scores(folder: Path) -> dict[str, Any] | None:
    """The best score of a run that has ended, of the first of its sets, and what it took."""
    result = run.result_of(folder)
    if result is None or not result["best"]:
        return None
    name, best = next(iter(result["best"].items()))
    found = {"set": name, "score": result["primary"], "best": best.get(result["primary"])}
    return found | {"steps": result["steps"], "seconds": result["seconds"]}


def _best(folder: Path) -> str:
    """The best score of a run, in a few words."""
    found = _scores(folder)
    return f"  best {found['set']} {found['score']} {_number(found['best'])}" if found else ""


def _resources(verb: verbs.Many) -> Resources:
    """What the file and the flags say, checked."""
    given = {k: v for k, v in dataclasses.asdict(verb.resources).items() if v is not None}
    return parse_resources({"resources": given})


def _sweep(verb: verbs.Sweep) -> int:
    experiment = _experiment(verb)
    axes = sweep.axes(read_tables(verb.file).get("sweep", {}), verb.grid, verb.seeds)
    cells = sweep.expand(experiment, axes, verb.root, verb.file.stem)
    if verb.dry_run:
        _say(verb, {"directories": [str(folder) for folder in cells]}, "\n".join(map(str, cells)))
        return OK
    stop = Stop()
    with stop.listening():
        table = sweep.run_all(
            cells, verb.jobs, stop, verb.quiet, verb.engine, verb.address, _resources(verb)
        )
    lines = [f"{status:>11}  {folder}{_best(folder)}" for folder, status in table.items()]
    runs = {str(folder): status for folder, status in table.items()}
    results = {str(folder): _scores(folder) for folder in table}
    _say(verb, {"runs": runs, "scores": results}, "\n".join(lines))
    stop.poll()
    return OK if all(s in sweep.ENDED for s in table.values()) else INTERRUPTED


def _search(verb: verbs.Search) -> int:
    from roann.lab import search

    experiment = _experiment(verb)
    over = search.space(read_tables(verb.file).get("search", {}), experiment)
    setup: dict[str, Any] = {"engine": verb.engine, "jobs": verb.jobs, "address": verb.address}
    setup["resources"] = _resources(verb)
    stop = Stop()
    with stop.listening():
        stem = verb.root / verb.file.stem
        found = search.run_search(experiment, over, stem, verb.trials, setup, stop, verb.quiet)
    lines = [f"trial       state  {found.score:>10}", *map(_trial_line, found.trials)]
    lines += [] if found.best is None else ["best:", _trial_line(found.best)]
    value = {"trials": found.trials, "best": found.best, "score": found.score}
    _say(verb, value, "\n".join(lines))
    stop.poll()
    return INTERRUPTED if any(row["state"] == "unfinished" for row in found.trials) else OK


def _trial_line(row: dict[str, Any]) -> str:
    values = [f"{k} {_number(v) if is_number(v) else v}" for k, v in row["values"].items()]
    head = f"{row['trial']:>5}  {row['state']:>10}  {_number(row['score']):>10}"
    return "  ".join([head, *values, row.get("directory", "")])


def _probe(verb: verbs.Probe) -> int:
    from roann.lab.probe import probe

    if verb.figure is not None:  # checked before the work
        from roann.lab.figures.style import SUFFIXES, SUFFIXES_TEXT

        if verb.figure.suffix not in SUFFIXES:
            raise ConfigError(f"--figure must end in {SUFFIXES_TEXT}, got {verb.figure.name!r}.")
    experiment = parse(read_tables(verb.directory / run.CONFIG))
    run.set_up(experiment.train.threads, experiment.train.seed)
    task, model = run.build(experiment)
    places = verb.directory / (BEST if verb.best else CHECKPOINTS)
    if verb.checkpoint is not None:
        found = checkpoint.named(places, verb.checkpoint)
    elif (newest := checkpoint.newest(places, touch=False)) is not None:
        found = newest
    else:
        raise checkpoint.CheckpointError(f"{places}: there is no checkpoint that verifies.")
    checkpoint.restore(found, model, None)
    measured = {"step": found.step} | probe(task, model, experiment.train.seed)
    lines = _probe_lines(measured)
    if verb.figure is not None:
        _draw_probe(experiment, measured, verb.figure)
        lines.append(f"figure: {verb.figure}")
        measured["figure"] = str(verb.figure)
    _say(verb, measured, "\n".join(lines))
    return OK


def _draw_probe(experiment: Experiment, found: dict[str, Any], file: Path) -> None:
    from roann.lab.figures.spectra import probed
    from roann.lab.figures.style import save

    if not {"sigma", "sigma_max", "gradient_by_step"} & found.keys():
        raise checkpoint.CheckpointError(
            f"{file}: nothing to draw, the model at step {found['step']} cannot be measured."
        )
    deep = MODELS[experiment.model_name].kind == "depth"
    file.parent.mkdir(parents=True, exist_ok=True)
    save(probed(experiment.model_name, plain(found), deep=deep), file)


def _probe_lines(found: dict[str, Any]) -> list[str]:
    lines = [f"step {found['step']}"]
    over = f" over {found['maps']} maps" if "maps" in found else ""
    if "sigma" in found:
        low, high = found["sigma"][-1], found["sigma"][0]
        lines.append(f"log singular values{over}: {low:.4g} to {high:.4g}")
    if "sigma_max" in found:
        low, high = found["sigma_min"], found["sigma_max"]
        lines.append(f"extreme log singular values{over}: {low:.4g} and {high:.4g}")
    if "gradient_by_step" in found:
        first, last = found["gradient_by_step"][0], found["gradient_by_step"][-1]
        lines.append(f"gradient norm: {first:.4g} at the first state, {last:.4g} at the last")
    if "norm_W" in found:
        lines.append(f"norm of W: {found['norm_W']:.4g}")
    if "bound" in found:
        bound = found["bound"]
        width = " (too wide to be useful)" if bound["vacuous"] else ""
        lines.append(f"bound (log): {bound['lower']:.4g} to {bound['upper']:.4g}{width}")
    return lines


def _report(verb: verbs.Report) -> int:
    from roann.lab.report import write_report

    write_report(list(verb.directories), verb.out)
    _say(verb, {"report": str(verb.out)}, str(verb.out))
    return OK


def _data(verb: verbs.Data) -> int:
    from roann.lab.data import fetch_mnist
    from roann.lab.fsdd import fetch_fsdd

    fetch = {"mnist": fetch_mnist, "fsdd": fetch_fsdd}[verb.name]
    folder = fetch(verb.data_dir, verb.source)
    _say(verb, {"directory": str(folder)}, f"{verb.name} is in {folder}")
    return OK


def _demo(verb: verbs.Demo) -> int:
    from roann.lab.demo import demo

    demo(verb.out, verb.steps, verb.quiet)
    return OK


def _info(verb: verbs.Info) -> int:
    from roann.info import describe, text

    _say(verb, describe(), text())
    return OK


_ACTS: dict[type[verbs.Verb], Callable[[Any], int]] = {
    verbs.Demo: _demo,
    verbs.Run: _run,
    verbs.Resume: lambda verb: _execute(verb, verb.directory, verb.checkpoint),
    verbs.Sweep: _sweep,
    verbs.Search: _search,
    verbs.Probe: _probe,
    verbs.Report: _report,
    verbs.Data: _data,
    verbs.Info: _info,
}


def _say(verb: verbs.Result, value: dict[str, Any], text: str | None = None) -> None:
    """The result, on stdout."""
    if verb.json:
        print(json.dumps(plain(value), indent=1, allow_nan=False))
    else:
        shown = text if text is not None else "\n".join(f"{k}: {v}" for k, v in value.items())
        print(printable(shown))
    sys.stdout.flush()


def _number(value: object) -> str:
    return f"{value:.4g}" if is_number(value) else "-"
