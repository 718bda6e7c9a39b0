"""Real faults: a full disk, damaged bytes, two writers, signals, numbers that are none."""

import errno
import json
import os
import shutil
import signal
import subprocess

import pytest
import tiny_runs
import torch
from tiny_runs import assert_same, commanded, has_checkpoint, launched, made, ran, until

from roann.lab import checkpoint
from roann.lab.checkpoint import BusyError
from roann.lab.cli import main
from roann.lab.config import to_toml
from roann.lab.progress import Progress
from roann.lab.run import METRICS, RESULT, execute, result_of
from roann.lab.run_context import BEST, CHECKPOINTS
from roann.lab.stop import Stop, UnfinishedRun

LONG = {"length": 100_000, "checkpoint_every": 20, "eval_every": 100_000}


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 600 kB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(place)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a file system cannot be mounted here: {error}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(path) -> None:
    """Use up the last byte of a disk."""
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 1024):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_a_full_disk_is_waited_out(tmp_path, small_disk, caplog):
    """The disk fills up at step 10 and has room again at step 40; nothing is lost or changed."""
    filler = small_disk / "filler"

    class Filling(Progress):
        def step(self, step: int, loss: float) -> None:
            if step == 10:
                fill(filler)
            if step == 40:
                filler.unlink()

    plan = {"length": 60, "checkpoint_every": 5, "log_every": 1, "eval_every": 7}
    whole = ran(tmp_path / "whole", "copying", **plan)
    folder = made(small_disk / "run", "copying", **plan)
    result = execute(folder, Stop(), Filling)
    assert result["status"] == "finished"
    warnings = [r.getMessage() for r in caplog.records if "no checkpoint could be written" in r.msg]
    assert len(warnings) == 6  # at steps 15, 20, 25, 30, 35, 40
    assert all("No space left on device" in text for text in warnings)
    assert not list((folder / CHECKPOINTS).glob("*.tmp-*"))
    assert_same(whole, folder)


def test_a_disk_that_stays_full_is_said_and_costs_only_the_end(tmp_path, small_disk, capsys):
    """The result cannot be written: exit 75, the old checkpoint stays, and later it is resumed."""
    whole = ran(tmp_path / "whole", "adding", length=30)
    folder = made(small_disk / "run", "adding", length=30)

    class Filling(Progress):
        def step(self, step: int, loss: float) -> None:
            if step == 10:
                fill(small_disk / "filler")

    with pytest.raises(UnfinishedRun, match="No space left"):
        execute(folder, Stop(), Filling)
    assert not (folder / RESULT).exists()
    assert main(["resume", str(folder)]) == 75
    message = capsys.readouterr().err
    assert "No space left on device" in message
    assert "Traceback" not in message
    (small_disk / "filler").unlink()
    assert main(["resume", str(folder)]) == 0
    assert_same(whole, folder)


def test_a_run_has_ended_when_its_last_checkpoint_is_on_disk(tmp_path, small_disk, capsys):
    """The disk is full from step 59 of 60 on, with room for a result but not for a checkpoint."""
    plan = {"length": 60, "checkpoint_every": 5, "eval_every": 7, "log_every": 1000}
    model = {"name": "lstm", "hidden_size": 24}  # 34 kB a checkpoint
    whole = ran(tmp_path / "whole", "adding", model, **plan)
    folder = made(small_disk / "run", "adding", model, **plan)
    (small_disk / "room").write_bytes(b"0" * 16_384)

    class Filling(Progress):
        def step(self, step: int, loss: float) -> None:
            if step == 59:
                fill(small_disk / "filler")
                (small_disk / "room").unlink()

    with pytest.raises(UnfinishedRun, match=r"the run has not ended: the last checkpoint could"):
        execute(folder, Stop(), Filling)
    assert not (folder / RESULT).exists()
    assert tiny_runs.world(folder)[0] == 55
    fill(small_disk / "filler-2")
    assert main(["resume", str(folder)]) == 75  # as long as it is full
    message = capsys.readouterr().err.splitlines()[-1]
    assert "No space left on device" in message
    assert message.endswith(f"continue with: roann resume {folder}")
    assert not (folder / RESULT).exists()
    for name in ("filler", "filler-2"):
        (small_disk / name).unlink()
    assert main(["resume", str(folder)]) == 0
    assert_same(whole, folder)


def test_the_best_checkpoint_waits_for_room(tmp_path, small_disk):
    """It is made at step 7 on a full disk, none later is better, and it is there at the end."""
    plan = {"length": 30, "eval_every": 7, "checkpoint_every": 5, "schedule": ((7, 1e3),)}
    whole = ran(tmp_path / "whole", "adding", **plan)
    assert tiny_runs.world(whole, BEST)[0] == 7

    class Filling(Progress):
        def step(self, step: int, loss: float) -> None:
            if step == 6:
                fill(small_disk / "filler")
            if step == 20:
                (small_disk / "filler").unlink()

    folder = made(small_disk / "run", "adding", **plan)
    execute(folder, Stop(), Filling)
    assert_same(whole, folder)


def test_a_sweep_on_a_full_disk_can_be_started_again(small_disk, tmp_path, capsys):
    file = tmp_path / "tiny.toml"
    file.write_text(to_toml(tiny_runs.experiment("adding", length=6).tables()))
    words = ["sweep", str(file), "--seeds", "0", "1", "--root", str(small_disk / "runs"), "-q"]
    fill(small_disk / "filler")
    assert main(words) == 75
    assert "Traceback" not in capsys.readouterr().err
    (small_disk / "filler").unlink()
    assert main(words) == 0
    assert capsys.readouterr().out.count("finished") == 2


@pytest.mark.parametrize("damage", ["flip", "truncate", "delete"])
def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(tmp_path, damage, caplog):
    whole = ran(tmp_path / "whole", "copying", length=12)
    folder = made(tmp_path / "run", "copying", length=12)
    process = launched(folder)
    process.join()
    (folder / RESULT).unlink()
    bad = folder / CHECKPOINTS / "ckpt-12" / "tensors.safetensors"
    data = bytearray(bad.read_bytes())
    data[len(data) // 2] ^= 4
    if damage == "flip":
        bad.write_bytes(data)
    elif damage == "truncate":
        os.truncate(bad, len(data) - 1)
    else:
        bad.unlink()
    execute(folder, Stop())
    assert "does not verify" in caplog.text
    assert (folder / CHECKPOINTS / "aside-0-ckpt-12").is_dir()
    assert_same(whole, folder)


def test_a_damaged_checkpoint_the_user_named_is_an_error(tmp_path, capsys):
    folder = ran(tmp_path / "run", "copying", length=12)
    bad = folder / CHECKPOINTS / "ckpt-9" / "state.json"
    bad.write_bytes(bad.read_bytes()[:-3])
    for verb in ("resume", "probe"):
        assert main([verb, str(folder), "--checkpoint", "9"]) == 4
        message = capsys.readouterr().err
        assert "ckpt-9" in message
        assert "does not verify" in message
        assert "Traceback" not in message
    assert bad.exists()
    assert main(["resume", str(folder), "--checkpoint", "5"]) == 4
    assert "there are: 12, 9" in capsys.readouterr().err


def test_records_that_were_lost_are_made_again(tmp_path, caplog):
    """metrics.jsonl shorter than the newest checkpoint says: an older one serves."""
    whole = ran(tmp_path / "whole", "adding", length=12)
    folder = made(tmp_path / "run", "adding", length=12)
    execute(folder, Stop())
    (folder / RESULT).unlink()
    older = checkpoint.load(folder / CHECKPOINTS / "ckpt-9").state["records"]
    os.truncate(folder / METRICS, older)
    execute(folder, Stop())
    assert "when it was made" in caplog.text
    assert_same(whole, folder)


def test_all_checkpoints_lost_means_from_the_start(tmp_path):
    whole = ran(tmp_path / "whole", "adding", length=12)
    folder = ran(tmp_path / "run", "adding", length=12)
    (folder / RESULT).unlink()
    for path in checkpoint.committed(folder / CHECKPOINTS):
        shutil.rmtree(path)
    execute(folder, Stop())
    assert_same(whole, folder)


def test_a_damaged_result_is_named_with_its_cure(tmp_path, capsys):
    folder = ran(tmp_path / "run", "adding", length=3)
    (folder / RESULT).write_text("{")
    assert main(["resume", str(folder)]) == 4
    assert "delete it, then resume" in capsys.readouterr().err


def test_two_writers(tmp_path, capsys):
    folder = made(tmp_path / "run", "adding", **LONG)
    process = launched(folder)
    until(lambda: has_checkpoint(folder))
    with pytest.raises(BusyError, match="another process"):
        execute(folder, Stop())
    assert main(["resume", str(folder)]) == 2
    assert "another process is writing to this run" in capsys.readouterr().err
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    assert result_of(folder) is None


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_signals_end_a_run_that_can_be_resumed(tmp_path, number, code):
    folder = made(tmp_path / "run", "adding", **LONG)
    process = commanded("resume", str(folder), "-q")
    until(lambda: has_checkpoint(folder))
    os.kill(process.pid, number)
    process.join()
    assert process.exitcode == code
    # The checkpoint is of the step at which it stopped: not one step is lost.
    last = max(line["step"] for line in tiny_runs.lines(folder) if line["kind"] == "train")
    assert tiny_runs.world(folder)[0] in (last, last + 1)
    assert "continue with: roann resume" in (folder / "run.log").read_text()


def test_divergence_is_a_result(tmp_path, capsys):
    """SGD with a learning rate of a billion: the numbers end by themselves."""
    file = tmp_path / "wild.toml"
    file.write_text(
        '[task]\nname = "adding"\nlength = 12\n[model]\nname = "roa-rnn"\nhidden_size = 4\n'
        '[train]\noptimizer = "sgd"\nlr = 1e9\nlog_every = 1\n'
    )
    folder = tmp_path / "run"
    assert main(["run", str(file), "--out", str(folder), "--json"]) == 3
    result = json.loads(capsys.readouterr().out)
    assert result["status"] == "diverged"
    steps = result["steps"]
    assert 0 < steps < 100
    assert f"update {steps + 1} " in result["cause"]
    event = tiny_runs.lines(folder)[-1]
    assert (event["kind"], event["event"], event["step"]) == ("event", "diverged", steps)
    # Every loss on record is a number: the step that was none was not taken.
    losses = [line["loss"] for line in tiny_runs.lines(folder) if line["kind"] == "train"]
    assert len(losses) == steps
    assert None not in losses
    last = checkpoint.newest(folder / CHECKPOINTS)
    assert last is None or all(
        bool(torch.isfinite(t).all()) for n, t in last.tensors.items() if n.startswith("model.")
    )
    assert main(["resume", str(folder)]) == 3
    assert "nothing to do, the run has diverged" in capsys.readouterr().err


def test_the_last_good_state_of_a_diverged_run_is_kept(tmp_path):
    """The rate jumps to a billion at step 6: the checkpoint is of finite weights just before."""
    plan = {"optimizer": "sgd", "schedule": ((6, 1e9),), "length": 50, "checkpoint_every": 0}
    folder = ran(tmp_path / "run", "adding", {"name": "roa-rnn", "hidden_size": 4}, **plan)
    result = result_of(folder)
    assert result is not None
    assert result["status"] == "diverged"
    step, tensors = tiny_runs.world(folder)
    assert 6 <= step <= result["steps"]
    assert all(bool(torch.isfinite(t).all()) for t in tensors.values())
