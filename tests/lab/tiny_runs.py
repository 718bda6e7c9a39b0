"""Runs of every task that take a second, and what the tests compare in them."""

import multiprocessing
import time
from pathlib import Path
from typing import Any

import torch
from test_tasks_mnist import DIRECTORY

from roann.lab import checkpoint, records
from roann.lab.cli import main
from roann.lab.config import Experiment, parse
from roann.lab.engines.process import PRELOAD, work
from roann.lab.run import BEST, CHECKPOINTS, METRICS, Stop, execute, prepare

MNIST = {"batch_size": 20, "eval_batch_size": 10_000, "data_dir": str(DIRECTORY)}
TASKS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "double-moon": ({"points": 40, "batch_size": 8}, {"name": "roa-fnn", "layers": 6}),
    "copying": (
        {"lag": 8, "symbols": 3, "batch_size": 4},
        {"name": "roa-rnn", "hidden_size": 6, "filter": "permutation"},
    ),
    "adding": ({"length": 12, "batch_size": 4}, {"name": "lstm", "hidden_size": 4}),
    "psmnist": (MNIST, {"name": "roa-rnn", "hidden_size": 3}),
    "smnist": (MNIST, {"name": "vanilla-rnn", "hidden_size": 3}),
}

# A server with torch imported: processes of their own, that can be killed, in a few milliseconds.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([*PRELOAD, "roann.lab.perform"])


def experiment(task: str, model: dict[str, Any] | None = None, **train: Any) -> Experiment:
    settings, default = TASKS[task]
    plan = {"lr": 0.01, "length": 30, "eval_every": 7, "log_every": 2, "checkpoint_every": 3}
    tables = {"task": {"name": task} | settings, "model": model or default, "train": plan | train}
    return parse(tables)


def made(folder: Path, task: str, model: dict[str, Any] | None = None, **train: Any) -> Path:
    """A run directory, not yet run."""
    prepare(folder, experiment(task, model, **train))
    return folder


def ran(folder: Path, task: str, model: dict[str, Any] | None = None, **train: Any) -> Path:
    """A run directory after the run."""
    execute(made(folder, task, model, **train), Stop())
    return folder


def launched(folder: Path) -> Any:
    """A process that executes the run of a directory, as a sweep would."""
    process = CONTEXT.Process(target=work, args=(folder,))
    process.start()
    return process


def commanded(*args: str) -> Any:
    """A process that is the command `roann`."""
    process = CONTEXT.Process(target=_command, args=(args,))
    process.start()
    return process


def _command(args: tuple[str, ...]) -> None:
    raise SystemExit(main(args))


def until(what: Any, seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)


def has_checkpoint(folder: Path) -> bool:
    return bool(checkpoint.committed(folder / CHECKPOINTS))


def lines(folder: Path) -> list[dict[str, Any]]:
    """The records but for the wall time."""
    found = records.read(folder / METRICS)
    return [{k: v for k, v in line.items() if k != "seconds"} for line in found]


def world(folder: Path, place: str = CHECKPOINTS) -> tuple[int, dict[str, torch.Tensor]]:
    """Step and tensors of the newest checkpoint."""
    found = checkpoint.newest(folder / place, touch=False)
    assert found is not None
    return found.step, found.tensors


def available() -> list[str]:
    """The tasks that can be run here: those of MNIST need its files."""
    return [task for task in TASKS if DIRECTORY is not None or not task.endswith("mnist")]


def assert_same(one: Path, other: Path) -> None:
    """Equal to the last bit: every record, every weight, all of the optimiser's state."""
    assert lines(one) == lines(other)
    assert_same_tensors(one, other)


def assert_same_tensors(one: Path, other: Path) -> None:
    """Equal to the last bit: every weight, all of the optimiser's state, of last and best."""
    for place in (CHECKPOINTS, BEST):
        (step, tensors), (other_step, other_tensors) = world(one, place), world(other, place)
        assert step == other_step
        assert tensors.keys() == other_tensors.keys()
        for name, tensor in tensors.items():
            bits, other_bits = tensor.contiguous(), other_tensors[name].contiguous()
            assert bits.numpy().tobytes() == other_bits.numpy().tobytes(), name
