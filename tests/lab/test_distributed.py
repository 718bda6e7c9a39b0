"""One training in several processes: the same batches, the same numbers, whatever dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from ranks import Group
from tiny_runs import assert_same, experiment, has_checkpoint, lines, until, world

from roann.lab import distributed
from roann.lab.__main__ import main as command
from roann.lab.checkpoint import committed, step_of
from roann.lab.cli import main
from roann.lab.config import ConfigError, parse, to_toml
from roann.lab.distributed import Ranks
from roann.lab.models import build_model
from roann.lab.run import CHECKPOINTS, RESULT, build
from roann.lab.tasks.base import Task

SMALL = {"length": 12, "eval_every": 4, "checkpoint_every": 3, "log_every": 1}
LONG = {"length": 100_000, "checkpoint_every": 20, "eval_every": 100_000, "log_every": 20}
# Long enough to be hit in the middle: some seconds.
KILLED = {"length": 800, "eval_every": 300, "checkpoint_every": 50, "log_every": 100}
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
STARTED: list[subprocess.Popen] = []
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]


def file_of(folder: Path, task: str = "copying", batch_size: int = 6, **train) -> Path:
    tables = experiment(task, **train).tables()
    tables["task"] |= {"batch_size": batch_size, "eval_batches": 4}
    file = folder / f"{task}.toml"
    file.write_text(to_toml(parse(tables).tables()))
    return file


def started(*words: object, launcher: list[str] | None = None) -> subprocess.Popen:
    command = [*(launcher or [sys.executable]), "-m", "roann", *map(str, words)]
    process = subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    STARTED.append(process)
    return process


@pytest.fixture(autouse=True)
def nothing_left():
    """End what a test that failed has left."""
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            for pid in [*ranks_of(process), process.pid]:
                os.kill(pid, signal.SIGKILL)
            process.communicate()


@pytest.fixture
def group(tmp_path):
    """Makes groups of ranks that the test itself starts, as torchrun would."""
    made = []

    def make(world: int) -> Group:
        made.append(Group(world, tmp_path))
        return made[-1]

    yield make
    for one in made:
        one.close()


def ended(process: subprocess.Popen, code: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == code, err
    return out, err


def ranks_of(process: subprocess.Popen) -> list[int]:
    """The processes that a launcher has started, in the order of their ranks."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if int((path / "stat").read_text().rsplit(")", 1)[1].split()[1]) == process.pid:
                words = (path / "environ").read_bytes().split(b"\0")
                found.update({w: int(path.name) for w in words if w.startswith(b"RANK=")})
        except OSError:  # it has ended
            continue
    return [found[word] for word in sorted(found)]


def assert_close(one: Path, other: Path) -> None:
    """The same training to rounding: records, weights, moments."""
    assert len(lines(one)) == len(lines(other))
    for line, twin in zip(lines(one), lines(other), strict=True):
        assert line.keys() == twin.keys()
        for key, value in line.items():
            same = pytest.approx(value, rel=2e-4) if isinstance(value, float) else value
            assert twin[key] == same, key
    (step, tensors), (twin_step, twins) = world(one), world(other)
    assert (step, tensors.keys()) == (twin_step, twins.keys())
    for name, tensor in tensors.items():
        torch.testing.assert_close(tensor, twins[name], rtol=2e-4, atol=2e-6)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run in two processes that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    file = file_of(folder, **KILLED)
    Group(2, folder).start("run", file, "--out", folder / "run", "-q").end()
    return folder / "run"


def test_two_and_three_processes_train_as_one(tmp_path, group):
    """And torchrun's two have the same bits as two that are started in another way."""
    file = file_of(tmp_path, **SMALL)
    process = started("run", file, "--out", tmp_path / "torchrun",
                      launcher=[*TORCHRUN, "--standalone", "--nproc-per-node", "2"])  # fmt: skip
    assert main(["run", str(file), "--out", str(tmp_path / "1"), "-q"]) == 0
    for size in (2, 3):
        run = tmp_path / str(size)
        first, *others = group(size).start("run", file, "--out", run).end()
        assert first.count("finished after 12 steps") == 2  # the log, and the result
        assert others == [""] * (size - 1)  # one process speaks
        assert_close(tmp_path / "1", run)
        assert not list(run.glob("**/*.tmp-*"))
        assert json.loads((run / "env.json").read_text())["processes"] == size
    out, _ = ended(process)
    assert out.count("finished after 12 steps") == 1
    assert_same(tmp_path / "2", tmp_path / "torchrun")


def test_sigterm_to_one_rank_stops_all(tmp_path, group):
    """Of three: each ends with 75, and resumed in three they have the bits of a whole run."""
    plan = SMALL | {"length": 300, "log_every": 50, "eval_every": 100, "checkpoint_every": 50}
    file = file_of(tmp_path, **plan)
    group(3).start("run", file, "--out", tmp_path / "whole", "-q").end()
    ranks = group(3).start("run", file, "--out", tmp_path / "run", "-q")
    until(lambda: has_checkpoint(tmp_path / "run"))
    ranks.processes[2].terminate()
    first, *others = ranks.end(75, 75, 75)
    step = world(tmp_path / "run")[0]
    assert f"SIGTERM at step {step}; go on with: roann resume {tmp_path / 'run'}\n" in first
    assert first.count("\n") == 2  # this, and the name of the signal
    assert others == ["", ""]
    assert 50 <= step < 300
    group(3).start("resume", tmp_path / "run", "-q").end()
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """Two processes, of which one gets SIGTERM; then one: the curve is that of one process."""
    plan = SMALL | {"length": 400, "checkpoint_every": 20, "log_every": 10, "eval_every": 50}
    file = file_of(tmp_path, **plan)
    assert main(["run", str(file), "--out", str(tmp_path / "one"), "-q"]) == 0
    process = started("run", file, "--out", tmp_path / "two", "--processes", 2)
    until(lambda: has_checkpoint(tmp_path / "two"))
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    _, err = ended(process, 75)
    assert err.count("go on with: roann resume") == 1
    assert "Traceback" not in err
    step = world(tmp_path / "two")[0]
    assert 0 < step < 400
    assert main(["resume", str(tmp_path / "two"), "-q"]) == 0
    moved = [line for line in lines(tmp_path / "two") if line.get("event") == "moved"]
    assert moved == [{"kind": "event", "step": step, "epoch": None, "event": "moved",
                      "to": {"processes": 1}}]  # fmt: skip
    steps = [line["step"] for line in lines(tmp_path / "two") if line["kind"] == "train"]
    assert steps == list(range(10, 401, 10))
    for one, two in zip(*([r for r in lines(tmp_path / name) if r["kind"] == "eval"]
                          for name in ("one", "two")), strict=True):  # fmt: skip
        assert two["cross_entropy"] == pytest.approx(one["cross_entropy"], rel=1e-3)


def test_ctrl_c_stops_all_processes(tmp_path):
    process = started("run", file_of(tmp_path, **LONG), "--out", tmp_path / "run",
                      "--processes", 2)  # fmt: skip
    until(lambda: has_checkpoint(tmp_path / "run"))
    workers = ranks_of(process)
    assert len(workers) == 2
    process.send_signal(signal.SIGINT)
    ended(process, 130)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    last = max(line["step"] for line in lines(tmp_path / "run") if line["kind"] == "train")
    assert 0 <= world(tmp_path / "run")[0] - last < 20  # a checkpoint of where it stopped


def disturbed(file: Path, folder: Path, number: int, kills: int, *words: object) -> None:
    """Send a signal to a rank again and again; the run must end as if nothing had happened.

    In turns: in the middle of training, and at any moment from the start of a process on.
    """
    process = started("run", file, "--out", folder, "--processes", 2, "--max-restarts",
                      kills, "-q", *words)  # fmt: skip
    random = torch.Generator().manual_seed(kills)
    known: set[int] = set()
    for hit in range(kills):
        until(lambda: len(set(ranks_of(process)) - known) == 2, 120)
        workers = ranks_of(process)
        known.update(workers)
        before = newest(folder)
        if hit % 2:
            time.sleep(float(torch.rand((), generator=random)) * 2.5)
        else:
            until(lambda before=before: newest(folder) > before, 120)
        assert process.poll() is None, "the run was over before it was hit"
        os.kill(workers[int(torch.randint(2, (), generator=random))], number)
    ended(process)


def newest(folder: Path) -> int:
    return max((step_of(path) for path in committed(folder / CHECKPOINTS)), default=0)


def test_killed_ranks_cost_nothing_but_time(tmp_path, group, undisturbed):
    """In the middle of training, where the other notices; and at the start, where an agent ends it.

    Each time, both are started again.
    """
    words = "run", file_of(tmp_path, **KILLED), "--out", tmp_path / "run", "-q"
    lost = "roann: rank 0: another process died or was silent for 30 s; checkpoints are kept.\n"
    ranks = group(2)
    for killed in (0, 1):
        before = newest(tmp_path / "run")
        ranks.start(*words)
        until(lambda before=before: newest(tmp_path / "run") > before)
        ranks.processes[killed].kill()
        assert ranks.end(*((-signal.SIGKILL, 1) if killed == 0 else (1, -signal.SIGKILL))) == [
            "" if killed == 0 else lost, ""
        ]  # fmt: skip
        for delay in (0.02, 0.2):
            ranks.start(*words)
            time.sleep(delay)
            ranks.processes[killed].kill()
            ranks.processes[killed].join()
            ranks.processes[1 - killed].terminate()
            ranks.processes[1 - killed].join(10)  # far less than any timeout
            assert ranks.processes[1 - killed].exitcode in (1, 75, -signal.SIGTERM)
    ranks.start(*words).end()
    assert_same(undisturbed, tmp_path / "run")


def test_the_launcher_starts_killed_ranks_again(tmp_path, group, undisturbed):
    """As often as it is allowed to."""
    process = started("run", file_of(tmp_path, **KILLED), "--out", tmp_path / "run",
                      "--processes", 2, "--max-restarts", 1, "-q")  # fmt: skip
    workers: list[int] = []
    for killed in (1, 0):
        before = newest(tmp_path / "run")
        until(lambda before=before: newest(tmp_path / "run") > before, 120)
        assert not set(workers) & set(ranks_of(process))
        workers = ranks_of(process)
        os.kill(workers[killed], signal.SIGKILL)
    _, err = ended(process, 75)
    assert err.endswith("rank 0 was killed by SIGKILL; it was the last of 2 tries.\n")
    assert "Traceback" not in err
    group(2).start("resume", tmp_path / "run", "-q").end()
    assert_same(undisturbed, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_fifty_kills(tmp_path):
    plan = KILLED | {"length": 10_000, "log_every": 1000, "eval_every": 2000}
    file = file_of(tmp_path, **plan)
    ended(started("run", file, "--out", tmp_path / "whole", "--processes", 2, "-q"))
    disturbed(file, tmp_path / "run", signal.SIGKILL, 50)
    assert_same(tmp_path / "whole", tmp_path / "run")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_process_that_is_stopped_is_given_up(tmp_path, undisturbed):
    file = file_of(tmp_path, **KILLED)
    disturbed(file, tmp_path / "run", signal.SIGSTOP, 2, "--timeout", 8)
    assert_same(undisturbed, tmp_path / "run")


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


@pytest.mark.parametrize("name", ["bn-lstm", "indrnn"])
def test_models_that_couple_examples_are_refused(name):
    task, _ = build(experiment("adding"))
    config = {"name": name, "hidden_size": 4} | ({"max_length": 12} if name == "bn-lstm" else {})
    made = experiment("adding", config)
    model = build_model(made.model_name, made.model, task, 0)
    with pytest.raises(ConfigError, match="statistics of the batch or random masks"):
        Ranks(0, 2).check(task, model)
    Ranks(0, 1).check(task, model)


def test_the_loss_of_a_process_is_told_from_a_mistake():
    lost = RuntimeError("[../gloo/transport/tcp/pair.cc:538] Connection closed by peer")
    assert distributed._is_loss(lost)
    assert distributed._is_loss(torch.distributed.DistNetworkError("no"))
    assert not distributed._is_loss(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not distributed._is_loss(ZeroDivisionError("gloo"))
