"""kill -9 at any moment, on every task; resumed, nothing is lost, doubled or changed by a bit."""

import dataclasses
import os
import random
import signal
import time

import pytest
import tiny_runs
from tiny_runs import TASKS, assert_same, launched, made, ran, until

from roann.lab import checkpoint
from roann.lab.config import ConfigError
from roann.lab.models import MODELS
from roann.lab.progress import Progress
from roann.lab.run import CHECKPOINTS, RESULT, InterruptedRun, Stop, execute

KILLS = 2


def killed_and_resumed(folder, rng: random.Random, kills: int) -> int:
    """Run a directory in processes that are killed at random moments; how often it was hit."""
    hits = 0
    for _ in range(kills):
        seen = checkpoint.committed(folder / CHECKPOINTS)
        process = launched(folder)
        # From the moment it makes headway, within the next dozen steps and checkpoints.
        until(
            lambda p=process, s=seen: (
                not p.is_alive() or checkpoint.committed(folder / CHECKPOINTS) != s
            )
        )
        time.sleep(rng.random() * 0.03)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        hits += process.exitcode == -signal.SIGKILL
        if (folder / RESULT).exists():
            break
    last = launched(folder)
    last.join()
    assert last.exitcode == 0
    return hits


@pytest.mark.parametrize("task", TASKS)
def test_kill_dash_nine_costs_nothing(tmp_path, task):
    if task.endswith("mnist") and tiny_runs.DIRECTORY is None:
        pytest.skip("MNIST is not here: run `roann data mnist` or set ROANN_DATA")
    long = {"length": 12, "eval_every": 12} if task.endswith("mnist") else {"length": 80}
    whole = ran(tmp_path / "whole", task, checkpoint_every=1, **long)
    broken = made(tmp_path / "broken", task, checkpoint_every=1, **long)
    assert killed_and_resumed(broken, random.Random(task), KILLS) > 0
    assert_same(whole, broken)


@pytest.mark.parametrize("name", ["sgd", "nag", "rmsprop", "adagrad"])
def test_every_optimiser_resumes(tmp_path, name):
    plan = {"optimizer": name, "length": 60, "checkpoint_every": 1, "schedule": ((30, 0.1),)}
    whole = ran(tmp_path / "whole", "double-moon", **plan)
    broken = made(tmp_path / "broken", "double-moon", **plan)
    assert killed_and_resumed(broken, random.Random(name), 1) > 0
    assert_same(whole, broken)


class Interrupting(Progress):
    """Asks the run to stop after the step it is told."""

    stop: Stop
    at = -1

    def step(self, step: int, loss: float) -> None:
        if step == self.at:
            self.stop.number = signal.SIGTERM


def interrupted(folder, at: int) -> None:
    stop = Stop()
    watch = type("Once", (Interrupting,), {"stop": stop, "at": at})
    with pytest.raises(InterruptedRun):
        execute(folder, stop, watch)


def test_interrupted_after_any_step_it_goes_on_as_if_nothing_had_been(tmp_path):
    """Evaluations every 3 steps, probes at 0, 4, 6: before, after and between all of them."""
    plan = {"length": 8, "eval_every": 3, "probe_at": (0, 4, 6), "checkpoint_every": 0}
    whole = ran(tmp_path / "whole", "copying", **plan)
    for at in range(1, 8):
        broken = made(tmp_path / f"at-{at}", "copying", **plan)
        interrupted(broken, at)
        step, _ = tiny_runs.world(broken)
        assert step == at
        execute(broken, Stop())
        assert_same(whole, broken)


@pytest.mark.parametrize("model", MODELS)
def test_every_system_resumes_bit_by_bit(tmp_path, model):
    """With its buffers, its running statistics and its complex weights."""
    row = MODELS[model]
    settings = {f.name: getattr(row.small, f.name) for f in dataclasses.fields(row.small)}
    chosen = {"name": model} | {k: v for k, v in settings.items() if v is not None}
    task = "double-moon" if row.kind == "depth" else "adding"
    plan = {"length": 5, "eval_every": 2, "checkpoint_every": 0}
    whole = ran(tmp_path / "whole", task, chosen, **plan)
    broken = made(tmp_path / "broken", task, chosen, **plan)
    interrupted(broken, 3)
    execute(broken, Stop())
    assert_same(whole, broken)


def test_interrupted_within_an_evaluation_it_evaluates_again(tmp_path):
    """A stop noticed between two batches of an evaluation leaves no half of it in the records."""

    class Late(Stop):
        """Asked to stop at step 6, notices only in the evaluation that follows."""

        polls = 0

        def poll(self) -> None:
            self.polls += 1
            if self.polls == 7:  # steps 0 … 5 paused six times; the seventh look is inside
                self.number = signal.SIGTERM
            super().poll()

    plan = {"length": 9, "eval_every": 6, "checkpoint_every": 0}
    whole = ran(tmp_path / "whole", "adding", **plan)
    broken = made(tmp_path / "broken", "adding", **plan)
    with pytest.raises(InterruptedRun):
        execute(broken, Late())
    assert tiny_runs.world(broken)[0] == 6
    assert [line for line in tiny_runs.lines(broken) if line["kind"] == "eval"] == []
    execute(broken, Stop())
    assert_same(whole, broken)


def test_the_stop_rule_counts_across_a_resume(tmp_path):
    plan = {"length": 40, "eval_every": 2, "stop_score": 1e9, "stop_evals": 5}
    whole = ran(tmp_path / "whole", "adding", **plan)
    assert tiny_runs.world(whole)[0] == 10
    broken = made(tmp_path / "broken", "adding", **plan)
    interrupted(broken, 7)
    execute(broken, Stop())
    assert_same(whole, broken)


def test_training_time_adds_up(tmp_path):
    folder = made(tmp_path / "run", "adding", length=10)
    interrupted(folder, 5)
    before = checkpoint.newest(folder / CHECKPOINTS).state["seconds"]
    result = execute(folder, Stop())
    assert result["seconds"] >= before > 0


def test_an_older_checkpoint_can_be_named_and_later_ones_are_kept_aside(tmp_path, caplog):
    whole = ran(tmp_path / "whole", "double-moon", length=12)
    broken = made(tmp_path / "broken", "double-moon", length=12)
    interrupted(broken, 8)
    steps = [checkpoint.step_of(p) for p in checkpoint.committed(broken / CHECKPOINTS)]
    assert steps == [8, 6]
    execute(broken, Stop(), step=6)
    assert "ckpt-8 is later than the one you named" in caplog.text
    assert (broken / CHECKPOINTS / "aside-0-ckpt-8").is_dir()
    assert_same(whole, broken)


def test_a_config_edited_under_a_checkpoint_is_refused(tmp_path):
    folder = made(tmp_path / "run", "adding", length=10)
    interrupted(folder, 5)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("lr = 0.01", "lr = 0.02"))
    with pytest.raises(ConfigError, match="made with another config"):
        execute(folder, Stop())
