"""Start, resume and finish a run: the only module that knows both its task and its model.

A run directory describes itself: `config.toml` (resolved), `metrics.jsonl`, `checkpoints/`,
`best/` (the checkpoint of the best evaluation, with a copy), `env.json`, `result.json` (only once
the run has ended, which is when its last checkpoint is on disk) and `run.log`. Lines of
`metrics.jsonl` that were damaged on disk are moved to `metrics.damaged.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch

from roann import __version__
from roann.info import processor
from roann.kernels import native
from roann.lab import checkpoint, files, records
from roann.lab.config import ConfigError, Experiment, parse, read_tables, to_toml
from roann.lab.distributed import ALONE, Ranks
from roann.lab.models import Model, build_model
from roann.lab.models.base import count_parameters
from roann.lab.probe import probe
from roann.lab.progress import Progress, counted, logging_to_file
from roann.lab.run_context import BEST, BEST_COPY, CHECKPOINTS, RunContext
from roann.lab.stop import InterruptedRun, Stop, UnfinishedRun
from roann.lab.tasks import TASKS, Task
from roann.lab.train import DivergedError, State, epoch, make_optimizer, train, unit_steps

CONFIG, METRICS, ENVIRONMENT, RESULT, LOG = (
    "config.toml", "metrics.jsonl", "env.json", "result.json", "run.log",
)  # fmt: skip
_FILES = (METRICS, ENVIRONMENT, RESULT, LOG, records.DAMAGED, checkpoint.LOCK)
_FOLDERS = (CHECKPOINTS, BEST, BEST_COPY)
_log = logging.getLogger(__name__)


def build(experiment: Experiment) -> tuple[Task, Model]:
    """The task and the model of an experiment, where they meet."""
    device = experiment.train.device
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError('[train] device: this torch sees no CUDA device; use device = "cpu".')
    task = TASKS[experiment.task_name].build(experiment.task, device=device)
    try:
        model = build_model(experiment.model_name, experiment.model, task, experiment.train.seed)
        unit_steps(experiment.train, task)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"[model] {error}.") from None
    return task, model.to(device)


def prepare(folder: Path, experiment: Experiment) -> None:
    """Create a run directory, or check that it belongs to this experiment."""
    if (folder / CONFIG).exists():
        if not is_of(folder, experiment):
            raise ConfigError(f"{folder} holds a run of another config; choose another directory.")
        return
    (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    files.replace_file(folder / CONFIG, to_toml(experiment.tables()).encode())


def is_of(folder: Path, experiment: Experiment) -> bool:
    """Whether a run directory is that of this experiment."""
    return parse(read_tables(folder / CONFIG)).digest() == experiment.digest()


def result_of(folder: Path) -> dict[str, Any] | None:
    """What the run ended with, or None if it has not ended."""
    try:
        result = files.read_object(folder / RESULT)
        _check_result(result)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise checkpoint.CheckpointError(
            f"{folder / RESULT} is damaged ({error}); delete it, then resume the run."
        ) from None
    return result


def _check_result(result: dict[str, Any]) -> None:
    """Raise a ValueError unless this has what readers of a result ask for."""
    texts = all(isinstance(result.get(key), str) for key in ("cause", "primary"))
    numbers = all(records.is_number(result.get(key)) for key in ("steps", "seconds"))
    tables: list[Any] = [result.get(key) for key in ("trivial", "final", "best", "selected")]
    if result.get("status") not in ("finished", "diverged") or not (texts and numbers):
        raise ValueError("it has no status, steps, seconds, cause or primary score")
    if not all(isinstance(table, dict) for table in tables):
        raise ValueError("it has no trivial, final, best or selected scores")
    trivial, *scores = tables
    if not records.is_number(trivial.get(result["primary"])):
        raise ValueError("it has no trivial score")
    sets = [scored for table in scores for scored in table.values()]
    if not all(isinstance(scored, dict) for scored in sets) or scores[1].keys() - scores[0].keys():
        raise ValueError("its scores are not those of evaluation sets")


def execute(
    folder: Path,
    stop: Stop,
    watch: type[Progress] = Progress,
    step: int | None = None,
    ranks: Ranks = ALONE,
) -> dict[str, Any]:
    """Start or resume the run of a directory and bring it to its end; returns its result.

    With `step`, resume from the checkpoint of that step, not from the newest; later ones are set
    aside. Of several processes, the first alone needs the directory.
    """
    result = chosen = tables = None
    with ExitStack() as held:
        with ranks.together():
            if ranks.leads:
                _open(folder, held)
                chosen = None if step is None else checkpoint.named(folder / CHECKPOINTS, step)
                result = result_of(folder)
                tables = read_tables(folder / CONFIG) if result is None else None
                if result is not None:
                    _check_ended(folder)
                    _log.info("%s: nothing to do, the run has %s.", folder, result["status"])
        if (found := ranks.share(result)) is not None:
            return dict(found)
        tables = ranks.share(tables)
        with ranks.together():
            experiment = parse(tables or {})
            if ranks.leads:
                held.enter_context(logging_to_file(folder / LOG))
        return _conduct(folder, experiment, stop, watch, chosen, ranks)


def _open(folder: Path, held: ExitStack) -> None:
    """Check a run directory and be its only writer."""
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} is not a run directory: it has no {CONFIG}.")
    files.check_own([folder / name for name in _FILES], [folder / name for name in _FOLDERS])
    held.enter_context(checkpoint.sole_writer(folder))


def _check_ended(folder: Path) -> None:
    """Say which checkpoints of a run that has ended are damaged; the best one has a copy."""
    for path in checkpoint.committed(folder / CHECKPOINTS)[:1]:
        try:
            checkpoint.load(path)
        except checkpoint.CheckpointError as error:
            _log.warning("%s To make it again, delete %s and resume the run.", error, RESULT)
    if checkpoint.committed(folder / BEST):
        checkpoint.mend(folder / BEST, folder / BEST_COPY)


def _conduct(
    folder: Path,
    experiment: Experiment,
    stop: Stop,
    watch: type[Progress],
    chosen: checkpoint.Checkpoint | None,
    ranks: Ranks,
) -> dict[str, Any]:
    plan = experiment.train
    environment = set_up(plan.threads, plan.seed) | {"processes": ranks.world}
    state, offset, digest, moved = State(), 0, "", {}
    lines = records.Sink()
    with ranks.together():
        task, model = build(experiment)
        ranks.check(task, model)
        optimizer = make_optimizer(model, plan)
        last = plan.length * unit_steps(plan, task)
        if ranks.leads:
            state, offset = _restore(folder, model, optimizer, chosen, last)
            moved = _note_environment(folder, environment)
            records.set_damaged_aside(folder / METRICS, offset)
            lines = records.Records(folder / METRICS, offset)
            digest = _file_digest(folder)
    state = _spread(state, model, optimizer, ranks)
    shown = watch if ranks.leads else Progress
    progress = shown(folder.name, last, task.primary, task.trivial[task.primary])
    context = RunContext(folder, plan, digest, model, optimizer, lines, stop, progress, ranks)
    facts = _facts(experiment, task, model)
    if offset == 0:
        lines.write("event", 0, None, 0.0, {"event": "start"} | facts)
    if moved:
        event = {"event": "moved", "to": moved}
        lines.write("event", state.step, epoch(task, state.step), state.seconds, event)
    try:
        status, cause = _train(task, state, context)
        ending = {"status": status, "steps": state.step, "seconds": round(state.seconds, 3)}
        ending |= {"cause": cause} | facts
        with ranks.together():
            try:
                result = _end(folder, lines, task, ending) if ranks.leads else {}
            except OSError as error:
                raise UnfinishedRun(folder, RESULT, error) from error
    finally:
        progress.close()
        lines.close()
    _log.info("%s: %s after %s: %s.", folder.name, status, counted(state.step, "step"), cause)
    return dict(ranks.share(result))


def _spread(state: State, model: Model, optimizer: torch.optim.Optimizer, ranks: Ranks) -> State:
    """Give every process what rank 0 starts from: state, weights, filters, moments, generator."""
    if ranks.world == 1:
        return state
    tensors = ranks.send(checkpoint.pack(model, optimizer) if ranks.leads else {})
    if not ranks.leads:
        checkpoint.unpack(tensors, model, optimizer)
    ranks.verify(model, f"before step {state.step + 1}")
    return State(**ranks.share(asdict(state)))


def _end(folder: Path, lines: records.Sink, task: Task, ending: dict[str, Any]) -> dict[str, Any]:
    """Write the last records and the result; an OSError means that the run has not ended."""
    records.set_damaged_aside(folder / METRICS, lines.sync())
    measured = records.read(folder / METRICS, strict=False)
    result = ending | records.summary(measured, task.primary, task.better)
    files.replace_file(folder / RESULT, _json(result))
    return result


def _train(task: Task, state: State, context: RunContext) -> tuple[str, str]:
    """Train until the run finishes, diverges or stops; the last checkpoint is the last good one."""
    model, plan = context.model, context.plan
    measure = partial(probe, task, model, plan.seed)
    try:
        train(task, model, context.optimizer, plan, state, context, measure, context.ranks)
        context.finish(state)
    except InterruptedRun as interruption:
        with suppress(DivergedError):  # the resumed run will notice, and say so
            context.save(state)
        _log.warning(
            "%s at step %d; continue with: roann resume %s",
            interruption,
            state.step,
            context.folder,
        )
        raise
    except DivergedError as error:
        # The checkpoint first: a resumed run diverges again and writes the event again.
        with suppress(DivergedError):
            context.finish(state)
        epochs = epoch(task, state.step)
        event = {"event": "diverged", "cause": str(error)}
        context.records.write("event", state.step, epochs, state.seconds, event)
        return "diverged", str(error)
    if plan.stop_score is not None and state.good_evals >= plan.stop_evals:
        return "finished", f"{task.primary} reached {plan.stop_score:g}"
    if plan.max_seconds is not None and state.step < plan.length * unit_steps(plan, task):
        return "finished", f"trained for {plan.max_seconds:g} seconds"
    return "finished", "all steps done"


def _restore(
    folder: Path,
    model: Model,
    optimizer: torch.optim.Optimizer,
    chosen: checkpoint.Checkpoint | None,
    last: int,
) -> tuple[State, int]:
    """Load the chosen or newest checkpoint; returns its state and its offset in the records."""
    places = folder / CHECKPOINTS
    for place in _FOLDERS:
        checkpoint.clean(folder / place)
    if chosen is not None:
        for path in checkpoint.committed(places):
            if checkpoint.step_of(path) > chosen.step:
                checkpoint.set_aside(path, f"{path.name} is later than the one you named.")
    written = (folder / METRICS).stat().st_size if (folder / METRICS).exists() else 0
    while (found := chosen or checkpoint.newest(places)) is not None:
        try:
            state, offset, digest = _state_of(found)
            if state.step > last:
                raise ValueError(f"it is of step {state.step}, but the run ends at {last}")
            if offset > written:
                raise ValueError(f"{METRICS} has {written} bytes, {offset} when it was made")
        except (TypeError, ValueError) as error:
            if chosen is not None:
                raise checkpoint.CheckpointError(f"{found.path}: {error}.") from None
            checkpoint.set_aside(found.path, f"{found.path}: {error}.")
            continue
        if digest != _file_digest(folder):
            raise ConfigError(f"{found.path} was made with another {CONFIG} than {folder} has now.")
        checkpoint.restore(found, model, optimizer)
        _log.info("%s: resumed at step %d.", folder.name, found.step)
        if state.best is not None and not checkpoint.mend(folder / BEST, folder / BEST_COPY):
            lost = "the checkpoint of the best evaluation is lost"
            _log.warning("%s: %s; the next evaluation is kept in its place.", folder.name, lost)
            state.best = None
        return state, offset
    return State(), 0


def _state_of(found: checkpoint.Checkpoint) -> tuple[State, int, str]:
    """The state of a checkpoint, its place in the records and the digest of its config."""
    values = dict(found.state)
    offset, digest = values.pop("records", None), values.pop("config", None)
    state = State(**values)
    state.check()
    if state.step != found.step:
        raise ValueError(f"it is named {found.path.name}, but holds step {state.step}")
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        raise ValueError(f"its records are not a number of bytes: {offset!r}")
    return state, offset, str(digest)


def set_up(threads: int, seed: int) -> dict[str, Any]:
    """Make torch reproducible and fast in this process; returns the environment of the run.

    Vanishing gradients become denormal numbers, which slow a CPU tenfold: they are flushed to zero.
    """
    flushed = torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    torch.manual_seed(seed)  # for models that draw while they train; batches and weights do not
    return {
        "roann": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "flush_denormal": flushed,
        "native_kernel": native.isa() if native.available() else None,
    }


def _note_environment(folder: Path, environment: dict[str, Any]) -> dict[str, Any]:
    """Write the environment of a new run; for a resumed one, return what has changed since."""
    path = folder / ENVIRONMENT
    try:
        first = files.read_object(path)
    except (OSError, ValueError) as error:
        if not isinstance(error, FileNotFoundError):
            _log.warning("%s is damaged (%s); it is written again, as of now.", path, error)
        first = environment
        files.replace_file(path, _json(environment))
    first = {"processes": 1} | first  # of a version that knew one only
    moved = {key: value for key, value in environment.items() if first.get(key) != value}
    if moved:
        what = ", ".join(moved)
        _log.warning(
            "%s: the run began with another %s; the last bits may differ.", folder.name, what
        )
    return moved


def _facts(experiment: Experiment, task: Task, model: Model) -> dict[str, Any]:
    """What a report needs to know about a run."""
    return {
        "task": experiment.task_name,
        "model": experiment.model_name,
        "seed": experiment.train.seed,
        "primary": task.primary,
        "better": task.better,
        "trivial": dict(task.trivial),
        "parameters": count_parameters(model),
        "effective_parameters": model.effective_parameters(),
    }


def _file_digest(folder: Path) -> str:
    """Hash of the config file as written: fields that a later version adds do not change it."""
    return hashlib.sha256((folder / CONFIG).read_bytes()).hexdigest()


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
