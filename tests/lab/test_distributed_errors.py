"""One training in several processes: what is refused, and what goes wrong in one sentence."""

import os
import signal
from pathlib import Path

import pytest
import torch
from test_distributed import ENVIRONMENT, LONG, LOST, SMALL, ended, file_of, started
from tiny_runs import assert_same, experiment, has_checkpoint, until, world

from roann.lab import checkpoint, joining, run
from roann.lab.__main__ import main as command
from roann.lab.cli import main
from roann.lab.config import ConfigError, to_toml
from roann.lab.distributed import Ranks
from roann.lab.models import build_model
from roann.lab.run import RESULT, build, result_of
from roann.lab.run_context import RunContext
from roann.lab.tasks.base import Task


def break_batches() -> None:
    """Let a task break in rank 1 at its fifth batch."""
    batch = Task.batch

    def broken(self, seed, step, rank, world):
        if (rank, step) == (1, 5):
            raise ZeroDivisionError("no such number")
        return batch(self, seed, step, rank, world)

    Task.batch = broken


def breaking(words: list[str]) -> int:
    """The command, with such a task."""
    break_batches()
    return command(words)


def test_an_exception_of_any_rank_is_one_sentence_with_its_rank(tmp_path, group):
    file = file_of(tmp_path, **SMALL)
    words = ["run", str(file), "--out", str(tmp_path / "run"), "-q"]
    first, second = group(2).call(breaking, words).end(1, 1)
    assert second == "roann: rank 1: ZeroDivisionError: no such number\n"
    assert first == LOST
    assert not (tmp_path / "run" / RESULT).exists()


BROKEN = """
import os
if os.environ.get("RANK") == "1":
    from test_distributed_errors import break_batches
    break_batches()
"""


@pytest.mark.slow
def test_the_launcher_passes_on_what_a_rank_says(tmp_path, monkeypatch):
    """With `--processes`; Python imports `sitecustomize` at the start of every process."""
    (tmp_path / "sitecustomize.py").write_text(BROKEN)
    here = Path(__file__).parent
    path = [tmp_path, here, here.parent, *os.environ.get("PYTHONPATH", "").split(":")]
    monkeypatch.setitem(ENVIRONMENT, "PYTHONPATH", ":".join(map(str, path)))
    file = file_of(tmp_path, **SMALL)
    words = "run", file, "--out", tmp_path / "run", "--processes", 2, "--max-restarts", 0, "-q"
    out, err = ended(started(*words), 75)
    assert out == ""
    assert err.count("roann: rank 1: ZeroDivisionError: no such number\n") == 1
    assert "Traceback" not in err
    assert err.endswith(" failed with exit code 1; --max-restarts 0 is used up.\n")


def altered(words: list[str], where: str) -> int:
    """The command, with a filter of rank 1 that is not that of rank 0.

    Drawn so, which does not matter; or changed after it was sent, or at step 6.
    """
    draw, unpack, check = run.build, checkpoint.unpack, RunContext._check

    def drawn(experiment):
        task, model = draw(experiment)
        turn(model)
        return task, model

    def unpacked(tensors, model, optimizer):
        unpack(tensors, model, optimizer)
        turn(model)

    def checked(self, state):
        if state.step == 6:
            turn(self.model)
        check(self, state)

    def turn(model):
        held = next(buffer for name, buffer in model.named_buffers() if "filter" in name)
        held.copy_(held.roll(1))

    if os.environ["RANK"] == "1":
        room, name, change = {
            "drawn": (run, "build", drawn),
            "sent": (checkpoint, "unpack", unpacked),
            "later": (RunContext, "_check", checked),
        }[where]
        setattr(room, name, change)
    return command(words)


def test_a_rank_with_another_filter_is_refused_by_name(tmp_path, group):
    """At the start, and before a checkpoint: then the one before it has the bits of a whole run.

    Rank 0 sends its filter to all, so it does not matter what another rank has drawn.
    """
    file = file_of(tmp_path, **SMALL)
    words = ["run", str(file), "--out", str(tmp_path / "run"), "-q"]
    said = (
        "roann: {}, rank 1 has other weights or filters than rank 0; use machines of one kind. {}\n"
    )
    printed = group(2).call(altered, words, "sent").end(75, 75)
    assert printed == [said.format("before step 1", "Checkpoints are good."), ""]
    printed = group(2).call(altered, words, "later").end(75, 75)
    assert printed == [said.format("after step 6", "Checkpoints are good."), ""]
    assert world(tmp_path / "run")[0] == 3
    group(2).start(*words).end()
    group(2).call(altered, [*words[:3], str(tmp_path / "whole"), "-q"], "drawn").end()
    assert_same(tmp_path / "whole", tmp_path / "run")


def wild(folder: Path) -> Path:
    """A file whose learning rate is a billion."""
    plan = SMALL | {"optimizer": "sgd", "lr": 1e9, "length": 100}
    made = experiment("adding", {"name": "roa-rnn", "hidden_size": 4}, **plan)
    file = folder / "wild.toml"
    file.write_text(to_toml(made.tables()))
    return file


def test_two_processes_that_diverge_end_with_exit_code_3(tmp_path, group):
    """At the step of one process, with its cause; and the command again does nothing but say so."""
    file = wild(tmp_path)
    assert main(["run", str(file), "--out", str(tmp_path / "one"), "-q"]) == 3
    words = "run", file, "--out", tmp_path / "two", "-q"
    for _ in range(2):
        first, second = group(2).start(*words).end(3, 3)
        assert first.startswith(f"{tmp_path / 'two'}: diverged after ")
        assert second == ""
    one, two = result_of(tmp_path / "one"), result_of(tmp_path / "two")
    assert two["status"] == "diverged"
    assert (two["steps"], two["cause"]) == (one["steps"], one["cause"])


@pytest.mark.slow
def test_the_launcher_ends_with_the_exit_code_of_a_run_that_diverges(tmp_path):
    """And does not start it again."""
    words = "run", wild(tmp_path), "--out", tmp_path / "run", "--processes", 2
    out, err = ended(started(*words), 3)
    assert out.startswith(f"{tmp_path / 'run'}: diverged after ")
    assert err.count("diverged after") == 1
    assert "used up" not in err


@pytest.mark.parametrize(
    ("gpus", "nccl", "backend", "device"),
    [(0, True, "gloo", None), (2, False, "gloo", None), (2, True, "cpu:gloo,cuda:nccl", 1)],
)
def test_nccl_carries_tensors_of_gpus_where_there_are_any(monkeypatch, gpus, nccl, backend, device):
    """Rank 3 of a machine with two GPUs takes the second; numbers of the CPU go over gloo."""
    taken = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: nccl)
    assert joining._backend() == backend
    assert taken == ([] if device is None else [device])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "0"], "--processes must be from 1 to 1024, not 0."),
        (["--processes", "-1"], "--processes must be from 1 to 1024, not -1."),
        (
            ["--processes", "2", "--timeout", "0"],
            "--timeout must be a number of seconds above 0, not 0.0.",
        ),
        (["--timeout", "nan"], "--timeout must be a number of seconds above 0, not nan."),
        (["--timeout", "inf"], "--timeout must be a number of seconds above 0, not inf."),
        (["--max-restarts", "-1"], "--max-restarts must be from 0 to 1000000, not -1."),
    ],
)
def test_bad_numbers_are_refused(tmp_path, capsys, words, message):
    file = file_of(tmp_path, **SMALL)
    assert main(["run", str(file), "--out", str(tmp_path / "run"), *words]) == 2
    assert capsys.readouterr().err == f"roann: {message}\n"
    assert not (tmp_path / "run").exists()


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
