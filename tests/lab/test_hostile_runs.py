"""Run directories from elsewhere: links, other shapes of JSON, flipped bits; never a traceback."""

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

import pytest
import tiny_runs
import torch
from safetensors.torch import load_file, save_file
from test_resume import interrupted
from tiny_runs import assert_same, assert_same_tensors, made, ran

from roann.lab import checkpoint, records
from roann.lab.cli import main
from roann.lab.run import (
    BEST,
    CHECKPOINTS,
    ENVIRONMENT,
    LOG,
    METRICS,
    RESULT,
    Stop,
    execute,
    result_of,
)
from roann.lab.train import State

PLAN = {"length": 12, "probe_at": (0,)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return ran(tmp_path_factory.mktemp("whole") / "run", "adding", **PLAN)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that was interrupted at step 8; copy it before use."""
    folder = made(tmp_path_factory.mktemp("stopped") / "run", "adding", **PLAN)
    interrupted(folder, 8)
    return folder


@pytest.fixture
def folder(stopped, tmp_path):
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def newest(folder: Path, place: str = CHECKPOINTS) -> Path:
    return checkpoint.committed(folder / place)[0]


def flipped(data: bytes, place: int, bit: int) -> bytes:
    bad = bytearray(data)
    bad[place] ^= 1 << bit
    return bytes(bad)


# Links


@pytest.mark.parametrize(
    "name", [METRICS, ENVIRONMENT, RESULT, LOG, ".lock", records.DAMAGED, "kinds"]
)
@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_file_that_is_a_link_is_never_written_through(folder, tmp_path, name, link, capsys):
    if name == "kinds":
        name = METRICS  # also while it is as long as the checkpoint says
        shutil.copy(folder / METRICS, tmp_path / "victim")
    else:
        (tmp_path / "victim").write_bytes(b"precious\n")
    before = (tmp_path / "victim").read_bytes()
    (folder / name).unlink(missing_ok=True)
    link(tmp_path / "victim", folder / name)
    assert main(["resume", str(folder)]) == 4
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"{folder / name} is a link" in err
    assert (tmp_path / "victim").read_bytes() == before


@pytest.mark.parametrize("place", [CHECKPOINTS, BEST, "best/copy"])
def test_a_folder_that_is_a_link_is_never_written_to(folder, tmp_path, place, capsys):
    victim = tmp_path / "victim"
    shutil.move(folder / place, victim)
    (victim / "ckpt-1.tmp-5").mkdir()
    (folder / place).symlink_to(victim)
    before = sorted(os.listdir(victim))
    assert main(["resume", str(folder)]) == 4
    assert "is a link; a run writes to its own files only" in capsys.readouterr().err
    assert sorted(os.listdir(victim)) == before


@pytest.mark.parametrize("name", [METRICS, ENVIRONMENT, RESULT, LOG, ".lock"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir], ids=["pipe", "directory"])
def test_what_is_no_plain_file_is_named(folder, name, make, capsys):
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    assert main(["resume", str(folder)]) == 4
    assert f"{folder / name} is not a plain file" in capsys.readouterr().err


def test_a_checkpoint_that_is_a_link_or_a_file_is_set_aside(folder, whole, tmp_path, capsys):
    """Also at the step where the run ends: the last checkpoint is a real one."""
    shutil.copytree(newest(folder), tmp_path / "victim")
    (folder / CHECKPOINTS / "ckpt-12").symlink_to(tmp_path / "victim")
    (folder / CHECKPOINTS / "ckpt-11").write_bytes(b"")
    (folder / CHECKPOINTS / "ckpt-9.tmp-7").symlink_to(tmp_path / "victim")
    assert main(["resume", str(folder)]) == 0
    assert capsys.readouterr().err.count("does not verify") == 2
    assert sorted(os.listdir(tmp_path / "victim")) == sorted(os.listdir(newest(whole)))
    assert not (folder / CHECKPOINTS / "ckpt-12").is_symlink()
    assert not (folder / CHECKPOINTS / "ckpt-9.tmp-7").is_symlink()
    assert_same(whole, folder)


def test_a_link_at_a_temporary_name_is_not_followed(tmp_path):
    """A run's process number can be guessed."""
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / f".file.tmp-{os.getpid()}").symlink_to(tmp_path / "victim")
    checkpoint.replace_file(tmp_path / "file", b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert (tmp_path / "file").read_bytes() == b"new"
    (tmp_path / "else").mkdir()
    (tmp_path / f"ckpt-1.tmp-{os.getpid()}").symlink_to(tmp_path / "else")
    checkpoint.save(tmp_path, 1, {"x": torch.zeros(1)}, {})
    assert os.listdir(tmp_path / "else") == []
    assert checkpoint.load(tmp_path / "ckpt-1").step == 1


# Shapes

SHAPES = [
    b"", b"[]", b"{}", b"3", b"null", b'"x"', b"true", b'{"a":1}', b"\xff\xfe", b"NaN", b"1e999",
    b"[" * 100_000, b'{"a":' * 50_000, b"9" * 5000, b'{"status":"finished"}', b'{"status":[]}',
    b'["tensors.safetensors","state.json"]', b'{"tensors.safetensors":3,"state.json":null}',
]  # fmt: skip
VERBS = (["probe", "RUN"], ["report", "RUN", "--out", "PAGE"], ["resume", "RUN"])


def answered(folder: Path, tmp_path: Path, capsys) -> None:
    """Every verb answers with a documented exit code, and where it refuses, in one sentence."""
    for verb in VERBS:
        names = {"RUN": str(folder), "PAGE": str(tmp_path / "page.html")}
        code = main([names.get(word, word) for word in verb])
        err = capsys.readouterr().err
        assert code in (0, 2, 4), (verb, code, err)
        if code:
            last = err.strip().splitlines()[-1]
            assert last.startswith("roann: ")
            assert len(last) < 1000


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: repr(s[:20]))
@pytest.mark.parametrize("name", [METRICS, ENVIRONMENT, RESULT, "config.toml", "manifest.json"])
def test_files_of_another_shape_are_answered_in_words(folder, tmp_path, name, shape, capsys):
    (newest(folder) if name == "manifest.json" else folder).joinpath(name).write_bytes(shape)
    answered(folder, tmp_path, capsys)


def forged(folder: Path, name: str, data: bytes) -> None:
    """Replace a file of the newest checkpoint, and make its manifest agree."""
    path = newest(folder)
    (path / name).write_bytes(data)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: repr(s[:20]))
def test_a_forged_state_is_set_aside_and_an_older_one_serves(folder, whole, shape, capsys):
    forged(folder, "state.json", shape)
    assert main(["resume", str(folder)]) == 0
    assert "It is kept as aside-0-ckpt-8; an older one is used" in capsys.readouterr().err
    assert_same(whole, folder)


WRONG = [
    ("step", -1), ("step", 7), ("step", True), ("step", "8"), ("measured", None), ("measured", 1.5),
    ("seconds", "x"), ("seconds", -1), ("good_evals", []), ("best", {}), ("best", "x"),
    ("records", None), ("records", -5), ("records", 1e300), ("records", 10**30), ("more", 1),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), WRONG, ids=str)
def test_a_forged_value_of_the_state_is_set_aside(folder, whole, key, value, capsys):
    state = json.loads((newest(folder) / "state.json").read_text())
    forged(folder, "state.json", json.dumps(state | {key: value}).encode())
    assert main(["resume", str(folder)]) == 0
    assert "aside-0-ckpt-8" in capsys.readouterr().err
    assert_same(whole, folder)
    assert main(["resume", str(folder), "--checkpoint", "12"]) == 0


def test_every_field_of_the_state_is_checked():
    good = {"step": 3, "measured": 3, "seconds": 0.5, "good_evals": 0, "best": None}
    State(**good).check()
    for key in good:
        with pytest.raises(ValueError, match=f"its {key} must be"):
            State(**(good | {key: "x"})).check()


def test_a_checkpoint_beyond_the_end_of_the_run_is_not_its_end(folder, whole):
    far = folder / CHECKPOINTS / "ckpt-99"
    shutil.copytree(newest(folder), far)
    state = json.loads((far / "state.json").read_text())
    forged(folder, "state.json", json.dumps(state | {"step": 99}).encode())
    assert execute(folder, Stop())["steps"] == 12
    assert_same(whole, folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {**t, "optimizer.0.exp_avg": torch.zeros(1, 2, 3)},
        lambda t: {**t, "optimizer.0.step": torch.zeros(3)},
        lambda t: {**t, "optimizer.99.step": torch.tensor(1.0)},
        lambda t: {**t, "optimizer.-1.step": torch.tensor(1.0)},
        lambda t: {**t, "optimizer.x.step": torch.tensor(1.0)},
        lambda t: {**t, "optimizer.7": torch.tensor(1.0)},
        lambda t: {**t, "generator": torch.zeros(3)},
        lambda t: {**t, "model.extra": torch.zeros(3)},
        lambda t: {k: v for k, v in t.items() if k != "generator"},
        lambda t: {k: v for k, v in t.items() if not k.endswith("exp_avg")},
        lambda t: {},
    ],
)
def test_tensors_that_do_not_fit_are_named(folder, tmp_path, change, capsys):
    save_file(change(load_file(newest(folder) / "tensors.safetensors")), tmp_path / "forged")
    forged(folder, "tensors.safetensors", (tmp_path / "forged").read_bytes())
    assert main(["resume", str(folder)]) == 4
    err = capsys.readouterr().err
    assert "ckpt-8 was made by another version of the program" in err
    assert "Traceback" not in err
    assert main(["probe", str(folder)]) in (0, 4)


def test_an_environment_of_another_shape_is_written_again(folder, whole, caplog):
    (folder / ENVIRONMENT).write_bytes(b"[]")
    execute(folder, Stop())
    assert "env.json is damaged" in caplog.text
    assert json.loads((folder / ENVIRONMENT).read_text())["torch"] == torch.__version__
    assert_same(whole, folder)


# Records


def test_the_flip_that_ended_every_resume_is_moved_aside(folder, whole, caplog):
    """'kind' becomes 'jind': one bit."""
    data = (folder / METRICS).read_bytes()
    place = data.index(b"kind", data.index(b"\n"))
    (folder / METRICS).write_bytes(flipped(data, place, 0))
    line = data[data.index(b"\n") + 1 :].split(b"\n")[0].replace(b'"kind"', b'"jind"')
    result = execute(folder, Stop())
    assert result["status"] == "finished"
    assert "line 2 is damaged (it has no kind" in caplog.text
    assert (folder / records.DAMAGED).read_bytes() == line + b"\n"
    rest = tiny_runs.lines(whole)
    assert tiny_runs.lines(folder) == [rest[0], *rest[2:]]
    assert_same_tensors(whole, folder)


def test_any_flipped_bit_of_the_records_lets_the_run_end_well(stopped, tmp_path):
    """Every bit of one line, and the line feed: it is a record still, or it is moved aside."""
    state = checkpoint.load(newest(stopped)).state
    data = (stopped / METRICS).read_bytes()[: state["records"]]
    lines = data.split(b"\n")
    start = data.index(b'{"kind":"eval"')
    end = data.index(b"\n", start) + 1
    number = data[:start].count(b"\n")
    path, aside = tmp_path / METRICS, tmp_path / records.DAMAGED
    moved = 0
    for place in range(start, end):
        for bit in range(8):
            path.write_bytes(flipped(data, place, bit))
            aside.unlink(missing_ok=True)
            count = records.set_damaged_aside(path, len(data))
            found = records.read(path)
            assert path.stat().st_size == len(data)
            assert path.read_bytes().endswith(b"\n")
            for record in found:
                records.check(record)
            records.summary(found, "mse", "lower")
            assert records.set_damaged_aside(path, len(data)) == 0
            kept = aside.read_bytes().count(b"\n") if count else 0
            moved += count > 0
            lost = 2 if place == end - 1 and number < len(lines) - 2 else 1
            assert len(found) == len(lines) - 1 - (lost if count else 0)
            assert kept >= bool(count)
    assert moved > 0.4 * 8 * (end - start)


@pytest.mark.parametrize("seed", range(6))
def test_a_flipped_bit_in_the_records_of_a_run_does_not_change_it(folder, whole, seed):
    rng = random.Random(seed)
    data = (folder / METRICS).read_bytes()
    (folder / METRICS).write_bytes(flipped(data, rng.randrange(len(data)), rng.randrange(8)))
    assert execute(folder, Stop())["status"] == "finished"
    assert_same_tensors(whole, folder)
    assert main(["resume", str(folder)]) == 0


def test_a_place_in_the_middle_of_a_line_is_mended(tmp_path):
    path = tmp_path / METRICS
    written = records.Records(path)
    for step in range(3):
        written.write("event", step, None, 0.0, {"event": "x"})
    size = written.sync() - 5
    written.close()
    assert records.set_damaged_aside(path, size) == 1
    again = records.Records(path, size)
    again.write("event", 9, None, 0.0, {"event": "x"})
    again.sync()
    again.close()
    assert [line["step"] for line in records.read(path)] == [0, 1, 9]


# The best checkpoint


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_best_checkpoint_is_written_again(folder, whole, name, caplog):
    bad = newest(folder, BEST) / name
    good = bad.read_bytes()
    bad.write_bytes(flipped(good, len(good) // 2, 3))
    execute(folder, Stop())
    assert "does not verify" in caplog.text
    assert "best/copy/ckpt-7 replaces it" in caplog.text
    assert_same(whole, folder)


def test_a_damaged_copy_of_the_best_checkpoint_is_written_again(folder, whole, caplog):
    (newest(folder, "best/copy") / "state.json").unlink()
    execute(folder, Stop())
    assert "best/ckpt-7 replaces it" in caplog.text
    assert_same(whole, folder)
    assert_same_tensors_of_copy(folder)


def assert_same_tensors_of_copy(folder: Path) -> None:
    step, tensors = tiny_runs.world(folder, BEST)
    other_step, others = tiny_runs.world(folder, "best/copy")
    assert step == other_step
    assert all(torch.equal(tensors[name], others[name]) for name in tensors)


def test_a_damaged_best_checkpoint_of_a_run_that_has_ended_is_written_again(whole, tmp_path):
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    (newest(folder, BEST) / "tensors.safetensors").write_bytes(b"")
    assert main(["resume", str(folder)]) == 0
    assert_same(whole, folder)


def test_a_best_checkpoint_lost_with_its_copy_is_said(folder, caplog):
    shutil.rmtree(folder / BEST)
    execute(folder, Stop())
    assert "the checkpoint of the best evaluation is lost" in caplog.text
    assert tiny_runs.world(folder, BEST)[0] == 12  # the evaluation after that


def test_a_damaged_last_checkpoint_of_a_run_that_has_ended_is_said(whole, tmp_path, caplog):
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    (newest(folder) / "tensors.safetensors").write_bytes(b"")
    assert execute(folder, Stop()) == result_of(whole)
    assert "To make it again, delete result.json and resume the run" in caplog.text
    (folder / RESULT).unlink()
    execute(folder, Stop())
    assert_same(whole, folder)
