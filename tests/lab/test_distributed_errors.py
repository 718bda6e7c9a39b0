"""One training in several processes: what is refused, and what goes wrong in one sentence."""

import signal

import pytest
import torch
from test_distributed import LONG, SMALL, file_of
from tiny_runs import experiment, has_checkpoint, until

from roann.lab import joining
from roann.lab.__main__ import main as command
from roann.lab.cli import main
from roann.lab.config import ConfigError
from roann.lab.distributed import Ranks
from roann.lab.models import build_model
from roann.lab.run import RESULT, build
from roann.lab.tasks.base import Task


def breaking(words: list[str]) -> int:
    """The command, with a task that breaks in rank 1 at its fifth batch."""
    batch = Task.batch

    def broken(self, seed, step, rank, world):
        if (rank, step) == (1, 5):
            raise ZeroDivisionError("no such number")
        return batch(self, seed, step, rank, world)

    Task.batch = broken
    return command(words)


def test_an_exception_of_any_rank_is_one_sentence_with_its_rank(tmp_path, group):
    file = file_of(tmp_path, **SMALL)
    words = ["run", str(file), "--out", str(tmp_path / "run"), "-q"]
    first, second = group(2).call(breaking, words).end(1, 1)
    assert second == "roann: rank 1: ZeroDivisionError: no such number\n"
    assert first.startswith("roann: rank 0: another process died")
    assert first.count("\n") == 1
    assert not (tmp_path / "run" / RESULT).exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "0"], "--processes must be from 1 to 1024, not 0."),
        (["--processes", "-1"], "--processes must be from 1 to 1024, not -1."),
        (["--processes", "2", "--max-restarts", "-1"], "--max-restarts must be from 0"),
        (["--processes", "2", "--timeout", "0"], "--timeout must be a number of seconds above 0"),
        (["--timeout", "nan"], "--timeout must be a number of seconds above 0"),
        (["--timeout", "inf"], "--timeout must be a number of seconds above 0"),
        (["--max-restarts", "-1"], "--max-restarts must be from 0 to 1000000, not -1."),
    ],
)
def test_bad_numbers_are_refused(tmp_path, capsys, words, message):
    file = file_of(tmp_path, **SMALL)
    assert main(["run", str(file), "--out", str(tmp_path / "run"), *words]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("rank", "size", "message"),
    [
        ("0", "0", "WORLD_SIZE must be a number from 1 to 4096, not '0'."),
        ("0", "two", "WORLD_SIZE must be a number from 1 to 4096, not 'two'."),
        ("2", "2", "RANK must be a number from 0 to 1, not '2'."),
        ("1", "2", "MASTER_ADDR is not set; start the processes with torchrun."),
    ],
)
def test_a_bad_place_is_refused(tmp_path, capsys, monkeypatch, rank, size, message):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    assert main(["run", str(file_of(tmp_path, **SMALL)), "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err == f"roann: {message}\n"


def test_processes_and_torchrun_exclude_each_other(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    assert main(["run", str(file_of(tmp_path, **SMALL)), "--processes", "2"]) == 2
    assert "torchrun has started this process; leave the flag out." in capsys.readouterr().err


@pytest.mark.parametrize("size", [2, 3])
def test_an_unequal_split_is_refused_by_all_in_one_sentence(tmp_path, group, size):
    """Of five examples; three processes divide six, as another test does."""
    file = file_of(tmp_path, batch_size=5, **SMALL)
    printed = group(size).start("run", file, "--out", tmp_path / "run").end(*[2] * size)
    assert printed == [
        f"roann: [task] batch_size: {size} processes cannot share 5 examples equally; "
        f"use a multiple of {size}.\n",
        *[""] * (size - 1),
    ]


def test_a_directory_that_is_not_shared_is_noticed(tmp_path, group):
    """Rank 0 comes back on another machine, where the run directory is not."""
    ranks = group(2)
    words = "run", file_of(tmp_path, **LONG), "--out", tmp_path / "run", "-q"
    ranks.start(*words)
    until(lambda: has_checkpoint(tmp_path / "run"))
    ranks.processes[0].kill()
    ranks.end(-signal.SIGKILL, 1)
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    first, _ = ranks.start(*words).end(2, 2)
    assert first == (
        f"roann: {tmp_path / 'run'}: rank 0 has moved to a machine that does not have this "
        "directory; put it on a file system that all machines share.\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["bn-lstm", "indrnn"])
def test_models_that_couple_examples_are_refused(name):
    task, _ = build(experiment("adding"))
    config = {"name": name, "hidden_size": 4} | ({"max_length": 12} if name == "bn-lstm" else {})
    made = experiment("adding", config)
    model = build_model(made.model_name, made.model, task, 0)
    with pytest.raises(ConfigError, match="normalizes with statistics of the batch"):
        Ranks(0, 2).check(task, model)
    Ranks(0, 1).check(task, model)


def test_the_loss_of_a_process_is_told_from_a_mistake():
    lost = RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer")
    assert joining._is_loss(lost)
    assert joining._is_loss(torch.distributed.DistNetworkError("no"))
    assert not joining._is_loss(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not joining._is_loss(ZeroDivisionError("gloo"))
