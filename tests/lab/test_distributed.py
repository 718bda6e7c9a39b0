"""One training in several processes: the same batches, the same numbers, whatever dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from ranks import Group
from tiny_runs import assert_same, experiment, has_checkpoint, lines, until, world

from roann.lab.checkpoint import committed, step_of
from roann.lab.cli import main
from roann.lab.config import Train, parse, to_toml
from roann.lab.distributed import Ranks
from roann.lab.run import CHECKPOINTS, LOG, RESULT, build
from roann.lab.run_context import RunContext
from roann.lab.stop import InterruptedRun, Stop
from roann.lab.train import State

SMALL = {"length": 12, "eval_every": 4, "checkpoint_every": 3, "log_every": 1}
LONG = {"length": 100_000, "checkpoint_every": 20, "eval_every": 100_000, "log_every": 20}
# Long enough to be hit in the middle: some seconds.
KILLED = {"length": 800, "eval_every": 300, "checkpoint_every": 50, "log_every": 100}
LOST = "roann: rank 0: another process died or was silent for 30 s; checkpoints are kept.\n"
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
    """The same training to rounding: records but for a change of processes, weights, moments."""
    twins = [line for line in lines(other) if line.get("event") != "moved"]
    for line, twin in zip(lines(one), twins, strict=True):
        assert line.keys() == twin.keys()
        for key, value in line.items():
            same = pytest.approx(value, rel=2e-4) if isinstance(value, float) else value
            assert twin[key] == same, key
    (step, tensors), (twin_step, twins) = world(one), world(other)
    assert (step, tensors.keys()) == (twin_step, twins.keys())
    for name in tensors.keys() - {"generator"}:  # models without dropout do not look at it
        torch.testing.assert_close(tensors[name], twins[name], rtol=2e-4, atol=2e-6)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A run in two processes that nothing disturbed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    file = file_of(folder, **KILLED)
    Group(2, folder).start("run", file, "--out", folder / "run", "-q").end()
    return folder / "run"


def test_two_and_three_processes_train_as_one(tmp_path, group):
    file = file_of(tmp_path, **SMALL)
    assert main(["run", str(file), "--out", str(tmp_path / "1"), "-q"]) == 0
    for size in (2, 3):
        run = tmp_path / str(size)
        first, *others = group(size).start("run", file, "--out", run).end()
        assert first.count("finished after 12 steps") == 2  # the log, and the result
        assert others == [""] * (size - 1)  # one process speaks
        assert_close(tmp_path / "1", run)
        # Scores of the same weights, before the first step, are the same to the last bit.
        assert evaluated(run)[0] == evaluated(tmp_path / "1")[0]
        assert not list(run.glob("**/*.tmp-*"))
        assert json.loads((run / "env.json").read_text())["processes"] == size
    moved = shutil.copytree(tmp_path / "1", tmp_path / "moved")  # from one process to two
    (moved / RESULT).unlink()
    group(2).start("resume", moved, "--checkpoint", 9, "-q").end()
    assert [e["to"] for e in lines(moved) if e.get("event") == "moved"] == [{"processes": 2}]
    assert_close(tmp_path / "1", moved)


def evaluated(folder: Path) -> list[dict]:
    return [line for line in lines(folder) if line["kind"] == "eval"]


@pytest.mark.slow
def test_torchrun_trains_as_two_processes(tmp_path, group):
    """To the last bit; and so does the command again."""
    file = file_of(tmp_path, **SMALL)
    group(2).start("run", file, "--out", tmp_path / "2", "-q").end()
    for name in ("torchrun", "again"):
        launcher = [*TORCHRUN, "--standalone", "--nproc-per-node", "2"]
        out, _ = ended(started("run", file, "--out", tmp_path / name, launcher=launcher))
        assert out.count("finished after 12 steps") == 1
        assert_same(tmp_path / "2", tmp_path / name)


def test_sigterm_to_one_rank_stops_all(tmp_path, group):
    """Of three, with dropout: each ends with 75; resumed, they have the bits of a whole run."""
    model = {"name": "unicornn", "hidden_size": 6, "layers": 3, "dropout": 0.5}
    plan = SMALL | {"length": 90, "log_every": 30, "eval_every": 45, "checkpoint_every": 20}
    tables = experiment("adding", model, **plan).tables()
    tables["task"]["batch_size"] = 6
    file = tmp_path / "dropout.toml"
    file.write_text(to_toml(parse(tables).tables()))
    group(3).start("run", file, "--out", tmp_path / "whole", "-q").end()
    ranks = group(3).start("run", file, "--out", tmp_path / "run", "-q")
    until(lambda: has_checkpoint(tmp_path / "run"))
    ranks.processes[2].terminate()
    first, *others = ranks.end(75, 75, 75)
    step = world(tmp_path / "run")[0]
    assert f"SIGTERM at step {step}; continue with: roann resume {tmp_path / 'run'}\n" in first
    assert first.count("\n") == 2  # this, and the name of the signal
    assert others == ["", ""]
    assert 20 <= step < 90
    group(3).start("resume", tmp_path / "run", "-q").end()
    assert_same(tmp_path / "whole", tmp_path / "run")


def test_masks_of_dropout_follow_from_seed_step_and_rank():
    task, _ = build(experiment("adding"))
    drawn = []
    for rank, step in ((0, 5), (1, 5), (0, 6), (0, 5)):
        Ranks(rank, 2).batch(task, 0, step)
        drawn.append(torch.nn.functional.dropout(torch.ones(64), 0.5).tolist())
    assert drawn[0] == drawn[3]
    assert drawn[0] not in drawn[1:3]


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """Two processes, of which one gets SIGTERM; then one: the curve is that of one process."""
    plan = SMALL | {"length": 1000, "checkpoint_every": 40, "log_every": 10, "eval_every": 500}
    file = file_of(tmp_path, **plan)
    assert main(["run", str(file), "--out", str(tmp_path / "one"), "-q"]) == 0
    process = started("run", file, "--out", tmp_path / "two", "--processes", 2)
    until(lambda: has_checkpoint(tmp_path / "two"))
    os.kill(ranks_of(process)[1], signal.SIGTERM)
    _, err = ended(process, 75)
    assert err.count("continue with: roann resume") == 1
    assert "Traceback" not in err
    step = world(tmp_path / "two")[0]
    assert 0 < step < 1000
    assert main(["resume", str(tmp_path / "two"), "-q"]) == 0
    moved = [line for line in lines(tmp_path / "two") if line.get("event") == "moved"]
    assert moved == [{"kind": "event", "step": step, "epoch": None, "event": "moved",
                      "to": {"processes": 1}}]  # fmt: skip
    steps = [line["step"] for line in lines(tmp_path / "two") if line["kind"] == "train"]
    assert steps == list(range(10, 1001, 10))
    for one, two in zip(*([r for r in lines(tmp_path / name) if r["kind"] == "eval"]
                          for name in ("one", "two")), strict=True):  # fmt: skip
        assert two["cross_entropy"] == pytest.approx(one["cross_entropy"], rel=1e-3)


class Interrupted(Ranks):
    """One of two processes: it gets SIGTERM while it agrees with the other, which has not."""

    def most(self, *values: int) -> list[int]:
        os.kill(os.getpid(), signal.SIGTERM)
        return list(values)


def test_a_signal_that_comes_while_processes_agree_is_heard_the_next_time():
    stop, none = Stop(), None
    context = RunContext(none, Train(), "", none, none, none, stop, none, Interrupted(world=2))
    with stop.listening():
        context.pause(State())  # all go on together
        with pytest.raises(InterruptedRun, match="SIGTERM"):
            context.pause(State())


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
    ranks = group(2)
    for killed in (0, 1):
        before = newest(tmp_path / "run")
        ranks.start(*words)
        until(lambda before=before: newest(tmp_path / "run") > before)
        ranks.processes[killed].kill()
        assert ranks.end(*((-signal.SIGKILL, 1) if killed == 0 else (1, -signal.SIGKILL))) == [
            "" if killed == 0 else LOST, ""
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


def launched_and_killed(tmp_path: Path, restarts: int) -> subprocess.Popen:
    """A run by `--processes 2` of which rank 1 was killed."""
    process = started("run", file_of(tmp_path, **KILLED), "--out", tmp_path / "run",
                      "--processes", 2, "--max-restarts", restarts, "-q")  # fmt: skip
    until(lambda: has_checkpoint(tmp_path / "run"), 120)
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    return process


@pytest.mark.slow
def test_the_launcher_starts_killed_ranks_again_and_ctrl_c_stops_them(tmp_path, group, undisturbed):
    process = launched_and_killed(tmp_path, restarts=1)
    before = newest(tmp_path / "run")
    until(lambda: newest(tmp_path / "run") > before + KILLED["checkpoint_every"], 120)
    workers = ranks_of(process)
    assert len(workers) == 2
    process.send_signal(signal.SIGINT)
    _, err = ended(process, 130)
    assert "Traceback" not in err
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    stopped = f"SIGINT at step {newest(tmp_path / 'run')}; continue with"  # and a checkpoint there
    assert stopped in (tmp_path / "run" / LOG).read_text()
    group(2).start("resume", tmp_path / "run", "-q").end()
    assert_same(undisturbed, tmp_path / "run")


@pytest.mark.slow
def test_the_launcher_says_when_all_restarts_are_used_up(tmp_path, group, undisturbed):
    _, err = ended(launched_and_killed(tmp_path, restarts=0), 75)
    assert err.endswith("rank 1 was killed by SIGKILL; --max-restarts 0 is used up.\n")
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
