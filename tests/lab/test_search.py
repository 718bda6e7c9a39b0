"""Searches: trials are runs; what is stopped or killed goes on."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import tiny_runs
from tiny_runs import commanded, experiment, has_checkpoint, until

from roann.lab.cli import main
from roann.lab.config import ConfigError, to_toml
from roann.lab.run import Stop, result_of
from roann.lab.search import journal_of, run_search, space

optuna = pytest.importorskip("optuna", reason="the extra [search] is not installed")

LOCAL = {"engine": "local"}


def base(**train):
    return experiment("adding", {"name": "roa-rnn", "hidden_size": 4, "rho": 0.5}, **train)


def test_by_default_rho_width_and_learning_rate_are_varied():
    assert space({}, base(lr=0.02)) == {
        "model.hidden_size": {"low": 2, "high": 8, "log": True},
        "model.rho": {"low": 0.05, "high": 5.0, "log": True},
        "train.lr": {"low": 0.002, "high": 0.2, "log": True},
    }
    assert set(space({}, experiment("adding"))) == {"model.hidden_size", "train.lr"}  # LSTM
    assert set(space({}, experiment("double-moon"))) == {"model.width", "model.rho", "train.lr"}


def test_a_file_names_fields_in_either_form():
    lr = {"low": 0.1, "high": 0.2}
    for table in (
        {"train.lr": lr, "model.rho": [0.1, 1]},
        {"train": {"lr": lr}, "model.rho": [0.1, 1]},
    ):
        assert space(table, base()) == {"train.lr": lr, "model.rho": [0.1, 1]}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("train.lr", 0.1, "low = …, high = …"),
        ("train.lr", [], "low = …, high = …"),
        ("train.lr", {"low": 0.1}, "low below high"),
        ("train.lr", {"low": 0.2, "high": 0.1}, "low below high"),
        ("train.lr", {"low": 0.0, "high": 0.1, "log": True}, "above 0"),
        ("train.lr", {"low": 0.1, "high": 0.2, "step": 1}, "low below high"),
        ("train.lr", {"low": -1.0, "high": 0.1}, r"\[train\] lr"),
        ("train.lrr", [0.1], "did you mean 'lr'"),
        ("lr", [0.1], "write TABLE.FIELD"),
        ("model.rho", [[1]], "numbers or text"),
        ("model.hidden_size", {"low": 1, "high": 10**6}, "hidden_size"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_space_is_named(field, value, words):
    with pytest.raises(ConfigError, match=words):
        space({field: value}, base())


def written(folder, **train):
    file = folder / "x.toml"
    file.write_text(to_toml(base(**train).tables()))
    return ["search", str(file), "--root", str(folder / "runs"), "--jobs", "2"]


def test_a_search_by_command_goes_on_where_it_ended(tmp_path, capsys):
    words = [*written(tmp_path, length=14), "-q", "--json", "--trials"]
    assert main([*words, "3"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert [row["state"] for row in first["trials"]] == ["complete"] * 3
    assert first["score"] == "mse"
    assert first["best"] == min(first["trials"], key=lambda row: row["score"])
    for row in first["trials"]:
        folder = tmp_path / "runs" / os.path.basename(row["directory"])
        result = result_of(folder)
        assert row["score"] == result["best"]["eval"]["mse"]
        assert f"lr = {row['values']['train.lr']!r}" in (folder / "config.toml").read_text()
    assert main([*words, "5"]) == 0
    more = json.loads(capsys.readouterr().out)
    assert more["trials"][:3] == first["trials"]
    assert len({row["directory"] for row in more["trials"]}) == 5  # nothing is drawn twice
    assert main([*words, "5"]) == 0
    assert json.loads(capsys.readouterr().out) == more
    assert main([*words[:-2], "--trials", "5"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["trial", "state", "mse"]
    assert shown[-2] == "best:"
    assert shown[-1] == shown[1 + more["best"]["trial"]]


def test_what_is_missing_or_wrong_is_said(tmp_path, capsys, monkeypatch):
    words = written(tmp_path)
    assert main([*words, "--trials", "0"]) == 2
    assert "--trials must be from 1 to" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("roann: roann search needs the extra 'search' (")
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on_with_the_same_trials(tmp_path):
    plan = {"length": 400, "checkpoint_every": 5, "eval_every": 400}
    words = [*written(tmp_path, **plan), "-q", "--trials", "3"]
    runs = tmp_path / "runs"
    driver = commanded(*words)
    until(lambda: sum(has_checkpoint(f) for f in runs.glob("x-*")) == 2, 120)
    os.kill(driver.pid, signal.SIGKILL)
    driver.join()
    begun = {folder.name for folder in runs.glob("x-*")}
    (journal,) = runs.glob("search-x-*.journal")
    with open(journal, "ab") as file:
        file.write(b'{"op_code": 5, "wor')  # it was killed within a line
    (runs / f"{journal.name}.lock").symlink_to(journal)  # and held Optuna's lock
    until(lambda: _ends(words) == 0, 120)  # orphans may still write
    folders = list(runs.glob("x-*"))
    assert begun < {folder.name for folder in folders}
    assert len(folders) == 3
    for folder in folders:
        assert result_of(folder)["status"] == "finished"
        assert (folder / "run.log").read_text().count("finished after") == 1
    assert any("resumed at" in (folder / "run.log").read_text() for folder in folders)


def _ends(words) -> int:
    process = commanded(*words)
    process.join()
    return process.exitcode


@pytest.mark.slow
def test_ctrl_c_leaves_trials_that_go_on(tmp_path):
    words = [*written(tmp_path, length=1000, checkpoint_every=100), "-q", "--trials", "2"]
    runs = tmp_path / "runs"
    driver = commanded(*words)
    until(lambda: sum(has_checkpoint(f) for f in runs.glob("x-*")) == 2, 120)
    os.kill(driver.pid, signal.SIGINT)
    driver.join()
    assert driver.exitcode == 130
    steps = {folder: tiny_runs.world(folder)[0] for folder in runs.glob("x-*")}
    assert not any(result_of(folder) for folder in steps)
    assert _ends(words) == 0
    for folder, step in steps.items():
        assert f"resumed at step {step}" in (folder / "run.log").read_text()
        assert result_of(folder)["steps"] == 1000


def test_a_trial_that_is_worse_than_the_others_is_pruned(tmp_path):
    """Five that learn, then one whose learning rate is nothing, and which would not end."""
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    plan = base(length=100, eval_every=10, log_every=100, checkpoint_every=0)
    over = {"train.lr": [0.01, 1e-9], "train.seed": list(range(5)), "train.length": [100, 10**8]}
    stem = tmp_path / "runs" / "x"
    stem.parent.mkdir()
    storage = JournalStorage(JournalFileBackend(str(journal_of(plan, over, stem))))
    study = optuna.create_study(storage=storage, study_name="roann")
    for seed in range(5):
        study.enqueue_trial({"train.lr": 0.01, "train.seed": seed, "train.length": 100})
    study.enqueue_trial({"train.lr": 1e-9, "train.seed": 0, "train.length": 10**8})
    found = run_search(plan, over, stem, 6, LOCAL, Stop(), quiet=True)
    assert [row["state"] for row in found.trials] == ["complete"] * 5 + ["pruned"]
    assert result_of(Path(found.trials[5]["directory"])) is None
    assert found.best["values"]["train.lr"] == 0.01
