"""Sweeps: every cell once, whatever is killed in between."""

import os
import signal
import subprocess
import sys

import pytest
import tiny_runs
from tiny_runs import CONTEXT, experiment, has_checkpoint, lines, until

from roann.lab.checkpoint import sole_writer
from roann.lab.config import RUN_ID, ConfigError, to_toml
from roann.lab.run import Stop, prepare, result_of
from roann.lab.sweep import axes, expand, last_step, run_all


def test_axes_come_from_the_file_the_grid_and_the_seeds():
    table = {"model": {"rho": [1.0]}, "train.lr": [0.1, 0.2]}
    found = axes(table, ["train.lr=1e-3, 5", "model.filter=qr,haar", "train.warmup=[0, 50]"], [3])
    assert found == {
        "model.rho": [1.0],
        "train.lr": [1e-3, 5],
        "model.filter": ["qr", "haar"],
        "train.warmup": [0, 50],
        "train.seed": [3],
    }
    assert axes({}, ["train.schedule=[[[1, 0.5]], []]"], []) == {"train.schedule": [[[1, 0.5]], []]}


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        ("lr=0.1", "write TABLE.FIELD"),
        ("train.lr", "write FIELD=VALUE"),
        ("train.lrr=0.1", "did you mean 'lr'"),
        ("train.lr=fast", "valid number"),
        ("train.lr=[]", "list of values"),
        ("train.lr=nan", "finite"),
        ("model.filter=qqr", "qr"),
        ("x.y=1", "write TABLE.FIELD"),
    ],
)
def test_a_mistake_in_a_grid_is_named(tmp_path, grid, words):
    base = experiment("copying")
    with pytest.raises(ConfigError, match=words):
        expand(base, axes({}, [grid], []), tmp_path, "x")


def test_a_grid_cannot_be_larger_than_a_disk(tmp_path):
    with pytest.raises(ConfigError, match="at most"):
        expand(experiment("adding"), {"train.seed": list(range(10_001))}, tmp_path, "x")


def test_cells_are_named_by_what_varies_and_are_the_same_every_time(tmp_path):
    over = {"model.filter": ["qr", "haar"], "model.rho": [0.5, 2], "train.seed": [0, 1, 2]}
    cells = expand(experiment("copying"), over, tmp_path, "Copy ing")
    assert len(cells) == 12
    assert list(cells) == list(expand(experiment("copying"), over, tmp_path, "Copy ing"))
    names = [folder.name for folder in cells]
    assert all(RUN_ID.fullmatch(name) for name in names)
    assert names[0].startswith("copy-ing-filter-qr-rho-0.5-s0-")
    assert [c.train.seed for c in cells.values()] == [0, 1, 2] * 4
    assert not list(tmp_path.iterdir())


def seeds(folder, **plan):
    return expand(experiment("adding", **plan), {"train.seed": [0, 1, 2]}, folder, "x")


def _sweep(folder, plan) -> None:
    run_all(seeds(folder, **plan), 2, Stop(), quiet=True)


def test_a_sweep_that_is_killed_and_started_again_loses_and_repeats_nothing(tmp_path):
    plan = {"length": 120, "checkpoint_every": 5, "eval_every": 50}
    cells = seeds(tmp_path, **plan)
    parent = CONTEXT.Process(target=_sweep, args=(tmp_path, plan))
    parent.start()
    until(lambda: any(has_checkpoint(folder) for folder in cells))
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    assert not all(result_of(folder) for folder in cells)

    def free(folder) -> bool:
        try:
            with sole_writer(folder):
                return True
        except Exception:
            return False

    # The orphans notice, commit a checkpoint and leave.
    until(lambda: all(free(folder) for folder in cells if folder.exists()))
    assert any(result_of(folder) is None for folder in cells)
    assert run_all(cells, 2, Stop(), quiet=True) == dict.fromkeys(cells, "finished")
    for seed, folder in enumerate(cells):
        whole = tiny_runs.ran(tmp_path / f"whole-{seed}", "adding", seed=seed, **plan)
        tiny_runs.assert_same(whole, folder)
        assert (folder / "run.log").read_text().count("finished after") == 1
        assert last_step(folder) == 120
    before = {folder: (folder / "result.json").stat().st_mtime_ns for folder in cells}
    assert run_all(cells, 2, Stop(), quiet=True) == dict.fromkeys(cells, "finished")
    assert {folder: (folder / "result.json").stat().st_mtime_ns for folder in cells} == before


def test_ctrl_c_while_the_server_of_processes_loads_ends_in_words(tmp_path):
    """A terminal sends it to the whole group of processes."""
    file = tmp_path / "tiny.toml"
    file.write_text(to_toml(experiment("adding", length=5000).tables()))
    program = "import sys; from roann.lab.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["sweep", str(file), "--seeds", "0", "1", "--root", str(tmp_path / "runs")]
    handled = signal.signal(signal.SIGINT, signal.default_int_handler)  # children inherit "ignore"
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        signal.signal(signal.SIGINT, handled)
        first = process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        rest = process.stderr.read()
    assert first == "roann: 2 runs, 2 to do.\n"
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert "the same command goes on" in rest


def test_a_run_in_another_process_is_left_to_it(tmp_path):
    cells = expand(experiment("adding", length=3), {"train.seed": [0, 1]}, tmp_path, "x")
    first, second = cells
    prepare(first, cells[first])
    with sole_writer(first):
        assert run_all(cells, 1, Stop(), quiet=True) == {first: "busy", second: "finished"}
    assert not (first / "metrics.jsonl").exists()
    assert len(lines(second)) > 0


def test_a_run_that_cannot_be_built_fails_alone_and_says_why(tmp_path):
    """A sequence model on a feed-forward task is only noticed where they meet."""
    good = expand(experiment("adding", length=3), {"train.seed": [0]}, tmp_path, "x")
    bad = experiment("double-moon", {"name": "lstm"})
    (folder,) = expand(bad, {"train.seed": [0]}, tmp_path, "y")
    table = run_all({folder: bad} | good, 1, Stop(), quiet=True)
    assert list(table.values()) == ["failed", "finished"]
    assert "feed-forward" in (folder / "run.log").read_text()


def test_jobs_are_counted(tmp_path):
    with pytest.raises(ConfigError, match="--jobs must be from 1"):
        run_all({}, 0, Stop())
