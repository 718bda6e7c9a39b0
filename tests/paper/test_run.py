"""`python -m paper` from nothing to tables, in tiny form: real runs, real processes."""

import importlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import until

from paper import ROOT
from paper.__main__ import main
from paper.collect import read_record
from roann.lab.config import to_toml
from roann.lab.report import load_run

# The grid of ρ with two values on each of two tiny tasks: eight runs.
TINY = {
    "rho-adding": {
        "task": {"name": "adding", "length": 6, "batch_size": 4},
        "model": {"name": "roa-rnn", "hidden_size": 4},
        "train": {"length": 8, "eval_every": 2, "probe_at": [0, 8], "log_every": 1},
        "sweep": {'"model.rho"': [0.5, 1.0]},
    },
    "rho-copying": {
        "task": {"name": "copying", "lag": 3, "symbols": 2, "batch_size": 4},
        "model": {"name": "roa-rnn", "hidden_size": 4},
        "train": {"length": 8, "eval_every": 4},
        "sweep": {'"model.rho"': [0.5, 1.0]},
    },
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A checkout of its own, with tiny experiments."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.import_module("paper.__main__"), "ROOT", tmp_path)
    write_experiments(TINY)
    return tmp_path


def write_experiments(files):
    Path("experiments").mkdir(exist_ok=True)
    for name, tables in files.items():
        Path("experiments", f"{name}.toml").write_text(to_toml(tables))


def files_of(folder):
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in sorted(paths)}


def full(*words):
    return main(["run", *words, "--scale", "full"])


def test_a_figure_from_nothing_and_again_and_without_its_records(place):
    assert full("rho", "--jobs", "2") == 0
    made = files_of("results")
    assert len(made) == 8
    # Nothing is run twice.
    runs = files_of("runs")
    assert full("rho") == 0
    assert files_of("runs") == runs
    assert files_of("results") == made
    # Records that were deleted come back, byte for byte.
    shutil.rmtree("results")
    assert main(["collect"]) == 0
    assert files_of("results") == made


def test_quick_leaves_the_records_alone_and_prints_its_tables(place, capsys):
    tiny = {"train": {"length": 1, "eval_every": 1}, "sweep": {'"model.rho"': [0.5]}}
    write_experiments({name: TINY[name] | tiny for name in TINY})
    assert main(["run", "rho", "--only", "rho-adding"]) == 0
    assert {path.name for path in Path("runs").iterdir()} == {"quick"}
    assert not Path("results").exists()
    assert "| `rho-adding-rho-0.5` |" in capsys.readouterr().out


def test_mistakes_are_said_in_a_line(place, capsys):
    assert full("rho", "--only", "rho-addig") == 2
    assert "--only rho-addig matches no run" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["run", "fig9"])
    assert "invalid choice: 'fig9' (choose from" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_dry_run_lists_and_does_nothing(place, capsys):
    assert full("rho", "--dry-run") == 0
    listed = capsys.readouterr().out.split()
    assert listed[0] == "rho/rho-adding-rho-0.5-s0"
    assert len(listed) == 8
    assert not Path("runs").exists()


def test_ctrl_c_is_130_and_the_next_call_continues(place):
    long = {"train": {"length": 3000, "eval_every": 500, "log_every": 1}}
    write_experiments({"rho-adding": TINY["rho-adding"] | long})
    words = ("rho", "--scale", "full", "--only", "adding-rho-0.5-s0")
    program = f"""import sys; sys.path.insert(0, {str(ROOT)!r})
import importlib, pathlib
command = importlib.import_module("paper.__main__")
command.ROOT = pathlib.Path.cwd()
sys.exit(command.main(sys.argv[1:]))"""
    process = subprocess.Popen([sys.executable, "-c", program, "run", *words])
    folder = Path("runs/full/rho/rho-adding-rho-0.5-s0")
    until(lambda: (folder / "metrics.jsonl").exists() and (folder / "run.log").exists())
    until(lambda: (folder / "metrics.jsonl").stat().st_size > 200)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert not (folder / "result.json").exists()
    assert main(["run", *words]) == 0
    steps = [r["step"] for r in load_run(folder).records if r["kind"] == "train"]
    assert steps == list(range(1, 3001))  # it continued, and nothing is there twice


@pytest.fixture
def stopped(place):
    """A run that was stopped between two checkpoints, and all its records."""
    settings = {"length": 60, "eval_every": 5, "log_every": 1, "checkpoint_every": 20}
    write_experiments({"rho-adding": TINY["rho-adding"] | {"train": settings}})
    words = ("rho", "--only", "adding-rho-0.5-s0")
    folder = Path("runs/full/rho/rho-adding-rho-0.5-s0").resolve()
    assert full(*words) == 0
    whole = (folder / "metrics.jsonl").read_bytes().splitlines()
    (folder / "result.json").unlink()
    shutil.rmtree(folder / "checkpoints" / "ckpt-60")
    (folder / "metrics.jsonl").write_bytes(b"\n".join(whole[:-9]) + b"\n")
    shutil.rmtree("results")
    return folder, words, [json.loads(line) for line in whole]


def untimed(lines):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def test_a_run_copied_to_its_place_continues(stopped):
    folder, words, whole = stopped
    shutil.move(folder, "kept")
    shutil.rmtree("runs")
    shutil.copytree("kept", folder)
    assert full(*words) == 0
    assert untimed(load_run(folder).records) == untimed(whole)
    assert "resumed at step 40" in (folder / "run.log").read_text()
    assert read_record(Path("results/rho", f"{folder.name}.jsonl")).status == "finished"


def test_a_record_with_more_steps_is_kept(stopped, capsys):
    folder, _, whole = stopped
    assert main(["collect"]) == 0
    record = Path("results/rho", f"{folder.name}.jsonl")
    further = record.read_bytes()
    lines = [json.dumps(line) for line in whole if line["step"] <= 30]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert main(["collect"]) == 0
    assert record.read_bytes() == further
    assert "is kept: it has more steps" in capsys.readouterr().err


def test_runs_without_their_data_are_left_out_and_said(place, monkeypatch, capsys):
    monkeypatch.setenv("ROANN_DATA", str(place))
    mnist = {"task": {"name": "psmnist"}, "train": {"unit": "epoch", "length": 1}}
    write_experiments({f"psmnist-{N}": mnist | {"model": {"name": "roa-rnn", "hidden_size": N}}
                       for N in (178, 256, 512)})  # fmt: skip
    assert full("table1") == 75
    assert "7 runs are left out" in capsys.readouterr().err


def test_the_league_is_probed_outside_its_wall_time(place):
    league = {
        "task": {"name": "adding", "length": 6, "batch_size": 4},
        "model": {"name": "roa-rnn"},
        "train": {"length": 20, "eval_every": 10},
    }
    copying = league | {"task": {"name": "copying", "lag": 3, "symbols": 2, "batch_size": 4}}
    names = ("league-adding-200", "league-adding-1000", "league-psmnist-784")
    write_experiments(dict.fromkeys(names, league) | {"league-copying-100": copying})
    assert full("league", "--only", "adding-200-gru") == 0
    found = {}
    for path in Path("results/league").glob("*.jsonl"):
        lines = map(json.loads, path.read_text().splitlines())
        found[path.stem] = [p["step"] for p in lines if p["kind"] == "probe"]
    assert found == {"league-adding-200-gru-s0": [0, 20], "league-adding-200-gru-s1": []}


def test_a_record_of_a_run_that_ended_is_kept_whatever_an_unfinished_one_says(stopped):
    folder, words, _ = stopped
    shutil.copytree(folder, "begun")
    assert full(*words) == 0
    record = Path("results/rho", f"{folder.name}.jsonl")
    ended = record.read_bytes()
    shutil.rmtree(folder)
    shutil.move("begun", folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("checkpoint_every = 20", "checkpoint_every = 21"))
    assert main(["collect"]) == 0
    assert record.read_bytes() == ended


def test_a_run_that_moves_says_so_in_its_record(stopped):
    folder, words, _ = stopped
    env = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(json.dumps(env | {"cpu": "Another", "cores": 64}))
    assert full(*words) == 0
    record = read_record(Path("results/rho", f"{folder.name}.jsonl"))
    (line,) = [r for r in record.records if r.get("event") == "moved"]
    assert (line["step"], line["to"]) == (40, {"cpu": env["cpu"], "cores": env["cores"]})
