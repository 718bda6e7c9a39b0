"""The conductor: the only place where a task and a model meet, and the keeper of a run directory.

A run directory describes itself: `config.toml` (resolved), `metrics.jsonl`, `checkpoints/`,
`best/` (the checkpoint of the best evaluation), `env.json`, `result.json` (only once the run has
ended) and `run.log`.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from roann import __version__
from roann.kernels import native
from roann.lab import checkpoint, records
from roann.lab.config import ConfigError, Experiment, Train, parse, read_tables, to_toml
from roann.lab.models import Model, build_model
from roann.lab.models.base import count_parameters
from roann.lab.probe import probe
from roann.lab.progress import Progress, log_to_file
from roann.lab.tasks import TASKS, Task
from roann.lab.train import DivergedError, State, epoch, make_optimizer, train, unit_steps

CONFIG, METRICS, CHECKPOINTS, BEST = "config.toml", "metrics.jsonl", "checkpoints", "best"
ENVIRONMENT, RESULT, LOG = "env.json", "result.json", "run.log"
_log = logging.getLogger(__name__)


class InterruptedRun(Exception):  # noqa: N818 - not an error: the run can be resumed
    """The run was asked to stop, and did.

    Args:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Stop:
    """Notes SIGINT and SIGTERM; the handlers set a flag only, the loop looks at it.

    Args:
        orphaned: stop also when this says that whoever wanted the run has died; asked now and then.
    """

    def __init__(self, orphaned: Callable[[], bool] | None = None) -> None:
        self.number = 0
        self._orphaned = orphaned
        self._ask = 0.0

    def poll(self) -> None:
        """Raise `InterruptedRun` if the run must stop."""
        if self._orphaned is not None and time.monotonic() >= self._ask:
            self._ask = time.monotonic() + 0.5
            if self._orphaned():
                self.number = signal.SIGTERM
        if self.number:
            raise InterruptedRun(self.number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = number

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Have the handlers in place."""
        signals = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._note) for number in signals}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Desk:
    """Where the loop of one run leaves its work; see `roann.lab.train.Desk`."""

    def __init__(
        self,
        folder: Path,
        experiment: Experiment,
        model: Model,
        optimizer: torch.optim.Optimizer,
        lines: records.Records,
        stop: Stop,
        progress: Progress,
    ) -> None:
        self.folder = folder
        self.plan = experiment.train
        self.digest = _file_digest(folder)
        self.model = model
        self.optimizer = optimizer
        self.records = lines
        self.progress = progress
        self.poll = stop.poll
        self._tried = time.monotonic()

    def pause(self, state: State) -> None:
        self.poll()
        every = self.plan.checkpoint_every
        if (every and state.step and state.step % every == 0) or (
            time.monotonic() - self._tried >= self.plan.checkpoint_seconds
        ):
            self.save(state)

    def show(self, state: State, loss: float) -> None:
        self.progress.step(state.step, loss)

    def show_scores(self, scores: dict[str, dict[str, float]]) -> None:
        self.progress.scores(scores)

    def save(self, state: State) -> None:
        """Commit a checkpoint. A full disk costs a warning: the next one is tried in its time."""
        self._tried = time.monotonic()
        for name, parameter in self.model.named_parameters():
            if not bool(torch.isfinite(parameter).all()):
                raise DivergedError(f"update {state.step} made {name} non-finite")
        self._commit(CHECKPOINTS, state)

    def keep(self, state: State) -> None:
        self._commit(BEST, state)

    def _commit(self, place: str, state: State) -> None:
        try:
            extra = {"records": self.records.sync(), "config": self.digest}
            tensors = checkpoint.pack(self.model, self.optimizer)
            checkpoint.save(self.folder / place, state.step, tensors, asdict(state) | extra)
        except OSError as error:
            _log.warning(
                "step %d: no checkpoint could be written (%s); training goes on, and the next one "
                "is tried in its time.", state.step, error.strerror,
            )  # fmt: skip


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
    """Make a run directory, or see that it is the one of this experiment."""
    if (folder / CONFIG).exists():
        if not is_of(folder, experiment):
            raise ConfigError(f"{folder} holds a run of another config; choose another directory.")
        return
    (folder / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
    checkpoint.replace_file(folder / CONFIG, to_toml(experiment.tables()).encode())


def is_of(folder: Path, experiment: Experiment) -> bool:
    """Whether a run directory is that of this experiment."""
    return parse(read_tables(folder / CONFIG)).digest() == experiment.digest()


def result_of(folder: Path) -> dict[str, Any] | None:
    """What the run ended with, or None if it has not ended."""
    try:
        result: dict[str, Any] = json.loads((folder / RESULT).read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise checkpoint.CheckpointError(
            f"{folder / RESULT} is damaged ({error}); delete it, then resume the run."
        ) from None
    return result


def execute(
    folder: Path, stop: Stop, watch: type[Progress] = Progress, step: int | None = None
) -> dict[str, Any]:
    """Start or resume the run of a directory and bring it to its end; returns its result.

    Args:
        folder: a run directory, see `prepare`.
        stop: who may interrupt it.
        watch: how to show progress.
        step: resume from the checkpoint of this step, not from the newest; later ones are set
            aside.
    """
    if not (folder / CONFIG).is_file():
        raise ConfigError(f"{folder} is not a run directory: it has no {CONFIG}.")
    with checkpoint.sole_writer(folder):
        chosen = None if step is None else checkpoint.named(folder / CHECKPOINTS, step)
        if (result := result_of(folder)) is not None:
            _log.info("%s: nothing to do, the run has %s.", folder, result["status"])
            return result
        experiment = parse(read_tables(folder / CONFIG))
        log = log_to_file(folder / LOG)
        try:
            return _conduct(folder, experiment, stop, watch, chosen)
        finally:
            logging.getLogger("roann").removeHandler(log)
            log.close()


def _conduct(
    folder: Path,
    experiment: Experiment,
    stop: Stop,
    watch: type[Progress],
    chosen: checkpoint.Checkpoint | None,
) -> dict[str, Any]:
    plan = experiment.train
    environment = set_up(plan.threads, plan.seed)
    task, model = build(experiment)
    optimizer = make_optimizer(model, plan)
    state, offset = _restore(folder, model, optimizer, chosen)
    moved = _note_environment(folder, environment)
    lines = records.Records(folder / METRICS, offset)
    last = plan.length * unit_steps(plan, task)
    progress = watch(folder.name, last, task.primary, task.trivial[task.primary])
    desk = _Desk(folder, experiment, model, optimizer, lines, stop, progress)
    facts = _facts(experiment, task, model)
    if offset == 0:
        lines.write("event", 0, None, 0.0, {"event": "start"} | facts)
    if moved:
        event = {"event": "moved", "to": moved}
        lines.write("event", state.step, epoch(task, state.step), state.seconds, event)
    try:
        status, cause = _train(task, model, optimizer, state, desk, plan)
        lines.sync()
    finally:
        progress.close()
        lines.close()
    measured = records.read(folder / METRICS, strict=False)
    scores = records.summary(measured, task.primary, task.better)
    ending = {"status": status, "steps": state.step, "seconds": round(state.seconds, 3)}
    result = ending | {"cause": cause} | facts | scores
    checkpoint.replace_file(folder / RESULT, _json(result))
    _log.info("%s: %s after %d steps: %s.", folder.name, status, state.step, cause)
    return result


def _train(
    task: Task,
    model: Model,
    optimizer: torch.optim.Optimizer,
    state: State,
    desk: _Desk,
    plan: Train,
) -> tuple[str, str]:
    """Train to the end, however it ends; the last checkpoint is of the last good state."""
    try:
        train(task, model, optimizer, plan, state, desk, lambda: probe(task, model, plan.seed))
        desk.save(state)
    except InterruptedRun as interruption:
        with suppress(DivergedError):  # the resumed run will notice, and say so
            desk.save(state)
        _log.warning(
            "%s at step %d; go on with: roann resume %s", interruption, state.step, desk.folder
        )
        raise
    except DivergedError as error:
        # The checkpoint first: a resumed run diverges again and writes the event again.
        with suppress(DivergedError):
            desk.save(state)
        epochs = epoch(task, state.step)
        event = {"event": "diverged", "cause": str(error)}
        desk.records.write("event", state.step, epochs, state.seconds, event)
        return "diverged", str(error)
    if state.good_evals >= plan.stop_evals:
        return "finished", f"{task.primary} reached {plan.stop_score:g}"
    if state.step < plan.length * unit_steps(plan, task):
        return "finished", f"trained for {plan.max_seconds:g} seconds"
    return "finished", "trained to its length"


def _restore(
    folder: Path,
    model: Model,
    optimizer: torch.optim.Optimizer,
    chosen: checkpoint.Checkpoint | None,
) -> tuple[State, int]:
    """Put the chosen or newest checkpoint back; returns its state and its place in the records."""
    places = folder / CHECKPOINTS
    checkpoint.clean(places)
    checkpoint.clean(folder / BEST)
    if chosen is not None:
        for path in checkpoint.committed(places):
            if checkpoint.step_of(path) > chosen.step:
                checkpoint.set_aside(path, f"{path.name} is later than the one you named.")
    written = (folder / METRICS).stat().st_size if (folder / METRICS).exists() else 0
    while (found := chosen or checkpoint.newest(places)) is not None:
        state = dict(found.state)
        offset, digest = state.pop("records", 0), state.pop("config", "")
        if digest != _file_digest(folder):
            raise ConfigError(f"{found.path} was made with another {CONFIG} than {folder} has now.")
        if offset <= written:
            try:
                checkpoint.unpack(found.tensors, model, optimizer)
                restored = State(**state)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise checkpoint.CheckpointError(
                    f"{found.path} was made by another version of the program: {error}"
                ) from None
            _log.info("%s: resumed at step %d.", folder.name, found.step)
            return restored, offset
        why = f"{found.path}: {METRICS} has {written} bytes, {offset} when it was made."
        if chosen is not None:
            raise checkpoint.CheckpointError(why)
        checkpoint.set_aside(found.path, why)
    return State(), 0


def set_up(threads: int, seed: int) -> dict[str, Any]:
    """Make torch repeatable and quick in this process; returns what a reader of results asks.

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
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads,
        "flush_denormal": flushed,
        "native_kernel": native.isa() if native.available() else None,
    }


def _cpu() -> str:
    """The model of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _note_environment(folder: Path, environment: dict[str, Any]) -> dict[str, Any]:
    """Write where a run begins; of one that goes on, what is not as it was there."""
    path = folder / ENVIRONMENT
    try:
        first = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        first = environment
        checkpoint.replace_file(path, _json(environment))
    moved = {key: value for key, value in environment.items() if first.get(key) != value}
    if moved:
        _log.warning(
            "%s: the run began with another %s; the last bits may differ.",
            folder.name,
            ", ".join(moved),
        )
    return moved


def _facts(experiment: Experiment, task: Task, model: Model) -> dict[str, Any]:
    """What a reader without torch must know of a run to draw it."""
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
    """Of the config as it was written: fields a later version adds do not change it."""
    return hashlib.sha256((folder / CONFIG).read_bytes()).hexdigest()


def _json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()
