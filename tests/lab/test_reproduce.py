"""`roann reproduce` from nothing to pages, in tiny form: real runs, real processes."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tiny_runs import commanded, ran, until

from roann.lab import records
from roann.lab.cli import main
from roann.lab.config import to_toml
from roann.lab.report import ReportError, load_run
from roann.lab.reproduce import handover
from roann.lab.reproduce.collect import LINES, collect, note_source, read_record, thinned
from roann.lab.reproduce.pages import BEGIN, END, write_pages, write_report

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
    """A checkout of its own, with tiny experiments and a README."""
    monkeypatch.chdir(tmp_path)
    write_experiments(TINY)
    Path("README.md").write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    return tmp_path


def write_experiments(files):
    Path("experiments").mkdir(exist_ok=True)
    for name, tables in files.items():
        Path("experiments", f"{name}.toml").write_text(to_toml(tables))


def files_of(folder):
    paths = (path for path in Path(folder).rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in sorted(paths)}


def reproduce(*words):
    return main(["reproduce", *words, "--scale", "full"])


def test_a_figure_from_nothing_and_again_and_without_its_runs(place, capsys):
    assert reproduce("rho", "pages", "--jobs", "2") == 0
    made = files_of("results")
    assert sum(path.endswith(".jsonl") for path in made) == 8
    page = Path("docs/reproduction.md").read_bytes()
    readme = Path("README.md").read_text()
    assert readme.startswith(f"before\n{BEGIN}\n")
    assert readme.endswith(f"{END}\nafter\n")
    assert "old" not in readme

    # Nothing is run twice.
    runs = files_of("runs")
    assert reproduce("rho", "pages") == 0
    assert files_of("runs") == runs
    assert files_of("results") == made

    # What was deleted comes back, byte for byte.
    shutil.rmtree("results")
    assert reproduce("rho") == 0
    assert files_of("results") == made

    # Pages need the records alone, and are those of the full scale.
    shutil.rmtree("runs")
    Path("docs/reproduction.md").unlink()
    Path("results/report.html").unlink()
    assert main(["reproduce", "pages"]) == 0
    assert files_of("results") == made
    assert Path("docs/reproduction.md").read_bytes() == page
    assert Path("README.md").read_text() == readme


def test_the_committed_pages_are_those_of_the_committed_records(tmp_path):
    root = Path(__file__).parents[2]
    shutil.copy(root / "README.md", tmp_path)
    page, readme = write_pages(root / "results", tmp_path / "page.md", tmp_path / "README.md")
    assert page.read_text() == (root / "docs/reproduction.md").read_text()
    assert readme.read_text() == (root / "README.md").read_text()


def test_quick_leaves_the_committed_places_alone(place):
    tiny = {"train": {"length": 1, "eval_every": 1}, "sweep": {'"model.rho"': [0.5]}}
    write_experiments({name: TINY[name] | tiny for name in TINY})
    before = Path("README.md").read_bytes()
    assert main(["reproduce", "rho", "--only", "rho-adding"]) == 0
    assert {path.name for path in Path("runs").iterdir()} == {"quick"}
    assert "A quick look" in Path("runs/quick/results/report.html").read_text()
    assert not Path("results").exists()
    assert not Path("docs").exists()
    assert Path("README.md").read_bytes() == before


def test_what_would_do_nothing_is_said(place, capsys):
    assert main(["reproduce", "rho", "pages"]) == 2
    assert "leave out `pages`, or say --scale full" in capsys.readouterr().err
    assert reproduce("rho", "--only", "rho-addig", "--dry-run") == 2
    assert "--only rho-addig matches no run of rho" in capsys.readouterr().err
    assert main(["reproduce", "collect"]) == 0
    assert "no records in results yet" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_dry_run_lists_and_does_nothing(place, capsys):
    assert reproduce("rho", "--dry-run") == 0
    listed = capsys.readouterr().out.split()
    assert listed[0] == "rho/rho-adding-rho-0.5-s0"
    assert len(listed) == 8
    assert not Path("runs").exists()


def test_ctrl_c_is_130_and_the_next_call_goes_on(place):
    long = {"train": {"length": 2000, "eval_every": 500, "log_every": 1}}
    write_experiments({"rho-adding": TINY["rho-adding"] | long})
    words = ("reproduce", "rho", "--scale", "full", "--only", "adding-rho-0.5-s0")
    process = commanded(*words)
    folder = Path("runs/full/rho/rho-adding-rho-0.5-s0")
    until(lambda: (folder / "metrics.jsonl").exists() and (folder / "run.log").exists())
    until(lambda: (folder / "metrics.jsonl").stat().st_size > 200)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    assert process.exitcode == 130
    assert not (folder / "result.json").exists()
    assert main(words) == 0
    assert load_run(folder).steps == 2000
    steps = [r["step"] for r in load_run(folder).records if r["kind"] == "train"]
    assert steps == list(range(1, 2001))  # it went on, and nothing is there twice


@pytest.fixture
def stopped(place):
    """A run that was stopped between two checkpoints, the words that make it, all its records."""
    plan = {"length": 60, "eval_every": 5, "log_every": 1, "checkpoint_every": 20}
    write_experiments({"rho-adding": TINY["rho-adding"] | {"train": plan}})
    words = ("rho", "--only", "adding-rho-0.5-s0")
    folder = Path("runs/full/rho/rho-adding-rho-0.5-s0")
    assert reproduce(*words) == 0
    whole = (folder / "metrics.jsonl").read_bytes().splitlines()
    (folder / "result.json").unlink()
    for path in (folder / "checkpoints").glob("ckpt-60"):
        shutil.rmtree(path)
    (folder / "metrics.jsonl").write_bytes(b"\n".join(whole[:-9]) + b"\n")
    shutil.rmtree("results")
    return folder, words, [json.loads(line) for line in whole]


def untimed(lines):
    return [{k: v for k, v in line.items() if k != "seconds"} for line in lines]


def test_a_run_that_is_collected_before_its_end_goes_on_where_only_the_results_are(stopped):
    folder, words, whole = stopped
    assert reproduce("collect") == 0
    kept = Path("results/unfinished/rho", folder.name)
    assert [path.name for path in (kept / "checkpoints").iterdir()] == ["ckpt-40"]
    assert len(list((kept / "best").iterdir())) == 1
    assert reproduce("collect") == 0  # again, over what is there

    shutil.rmtree("runs")
    assert reproduce(*words) == 0
    assert untimed(load_run(folder).records) == untimed(whole)
    assert "resumed at step 40" in (folder / "run.log").read_text()
    assert not kept.exists()
    assert read_record(Path("results/rho", f"{folder.name}.jsonl")).status == "finished"


def test_a_run_directory_that_is_there_goes_before_what_was_kept(stopped):
    folder, words, whole = stopped
    assert reproduce("collect") == 0
    (Path("results/unfinished/rho", folder.name) / "metrics.jsonl").write_text("damaged")
    assert reproduce(*words) == 0
    assert untimed(load_run(folder).records) == untimed(whole)


def test_a_run_that_goes_on_elsewhere_says_so_in_its_record_and_on_the_page(stopped):
    folder, words, _ = stopped
    env = json.loads((folder / "env.json").read_text())
    (folder / "env.json").write_text(json.dumps(env | {"cpu": "Another", "cores": 64}))
    assert reproduce("pages", *words) == 0
    (line,) = [r for r in load_run(folder).records if r.get("event") == "moved"]
    assert line["step"] == 40
    assert line["to"] == {"cpu": env["cpu"], "cores": env["cores"]}
    words = f"- `{folder.name}` went on from step 40 with cpu {env['cpu']}, cores {env['cores']}"
    assert words in Path("docs/reproduction.md").read_text()


def test_a_record_that_has_gone_further_is_left_alone_by_a_run_under_way(stopped, capsys):
    folder, _, whole = stopped
    assert reproduce("collect") == 0
    further = Path("results/rho", f"{folder.name}.jsonl").read_bytes()
    lines = [json.dumps(line) for line in whole if line["step"] <= 30]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert reproduce("collect") == 0
    assert Path("results/rho", f"{folder.name}.jsonl").read_bytes() == further
    assert "is left alone: it has gone further" in capsys.readouterr().err


def test_a_record_of_a_run_that_ended_is_left_alone_whatever_its_settings(stopped):
    """A run begun anew, with settings that are new, has nothing to say until it ends."""
    folder, words, _ = stopped
    shutil.copytree(folder, "begun")
    assert reproduce(*words) == 0
    ended = Path("results/rho", f"{folder.name}.jsonl").read_bytes()
    shutil.rmtree(folder)
    shutil.move("begun", folder)
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("checkpoint_every = 20", "checkpoint_every = 21"))
    assert reproduce("collect") == 0
    assert Path("results/rho", f"{folder.name}.jsonl").read_bytes() == ended


def test_what_was_kept_is_never_replaced_by_less(stopped):
    folder, words, whole = stopped
    assert reproduce("collect") == 0
    kept = files_of("results/unfinished")
    shutil.rmtree(folder / "checkpoints" / "ckpt-40")
    assert reproduce("collect") == 0
    assert files_of("results/unfinished") == kept
    shutil.rmtree(folder / "checkpoints")  # begun anew, and no checkpoint yet
    assert reproduce("collect") == 0
    assert files_of("results/unfinished") == kept
    assert reproduce(*words) == 0
    assert "resumed at step 40" in (folder / "run.log").read_text()
    assert untimed(load_run(folder).records) == untimed(whole)


def test_a_checkpoint_that_goes_while_it_is_copied_is_not_missed(stopped, monkeypatch):
    """A run under way replaces old checkpoints: the copy begins again with what there is now."""
    folder, _, _ = stopped
    copytree, calls = shutil.copytree, []

    def going(source, target):
        calls.append(Path(source).name)
        if len(calls) == 1:
            Path(source).rename(Path(source).with_name("ckpt-45"))
        return copytree(source, target)

    monkeypatch.setattr(handover.shutil, "copytree", going)
    handover.keep(folder, Path("results"))
    assert calls[:2] == ["ckpt-40", "ckpt-45"]
    kept = Path("results/unfinished/rho", folder.name, "checkpoints")
    assert [path.name for path in kept.iterdir()] == ["ckpt-45"]


def test_collect_takes_what_there_is(place):
    assert reproduce("rho", "--only", "rho-adding-rho-1-s0") == 0
    folder = Path("runs/full/rho/rho-adding-rho-1-s0")
    (folder / "result.json").unlink()  # as if it were still running
    shutil.rmtree("results")
    assert reproduce("collect") == 0
    record = read_record(Path("results/rho/rho-adding-rho-1-s0.jsonl"))
    assert record.status == "unfinished"
    assert record.steps == 8


def test_runs_without_their_data_are_left_out_and_said(place, monkeypatch, capsys):
    monkeypatch.setenv("ROANN_DATA", str(place))
    mnist = {
        "task": {"name": "psmnist"},
        "model": {"name": "roa-rnn"},
        "train": {"unit": "epoch", "length": 1},
    }
    write_experiments({f"psmnist-{N}": mnist | {"model": {"name": "roa-rnn", "hidden_size": N}}
                       for N in (178, 256, 512)})  # fmt: skip
    assert reproduce("table1", "fig4") == 75
    err = capsys.readouterr().err
    assert "7 runs are left out" in err
    assert "Fig. 4 is left out" in err


def test_a_record_says_what_its_run_said(tmp_path):
    folder = ran(tmp_path / "run", "double-moon", length=300, log_every=1, probe_at=(0, 30, 300))
    note_source(folder)
    path = collect(folder, tmp_path / "results")
    run, record = load_run(folder), read_record(path)
    assert (record.name, record.config, record.text) == (run.name, run.config, run.text)
    assert (record.result, record.seed) == (run.result, run.seed)
    assert set(run.env) < set(record.env) | {"commit"}
    trained = [line for line in record.records if line["kind"] == "train"]
    assert 100 <= len(trained) <= LINES
    assert trained[-1]["step"] == 300
    goal = run.facts["primary"], run.facts["better"]
    for part in ("final", "best"):
        ours = records.summary(record.records, *goal)[part]["eval"]
        assert ours == pytest.approx(run.result[part]["eval"], rel=1e-6)
    probes = [line for line in record.records if line["kind"] == "probe"]
    assert [probe["step"] for probe in probes] == [0, 30, 300]
    assert ["surface" in probe for probe in probes] == [False, False, True]
    assert path.stat().st_size < 100_000
    before = path.stat().st_mtime_ns
    collect(folder, tmp_path / "results")
    assert path.stat().st_mtime_ns == before


def test_a_record_names_every_commit_its_run_was_made_with(tmp_path, monkeypatch):
    for commit in ("aaa", "bbb", "bbb", None, "aaa with changes"):
        now = {} if commit is None else {"commit": commit}
        monkeypatch.setattr(sys.modules[note_source.__module__], "source", lambda now=now: now)
        note_source(tmp_path)
    text = json.loads((tmp_path / "source.json").read_bytes())
    assert text == {"commit": "aaa, then bbb, then aaa with changes"}


def test_what_was_kept_of_another_config_is_not_taken_up(stopped, capsys):
    folder, words, whole = stopped
    assert reproduce("collect") == 0
    shutil.rmtree("runs")
    kept = Path("results/unfinished/rho", folder.name, "config.toml")
    kept.write_text(kept.read_text().replace("length = 60", "length = 61"))
    assert reproduce(*words) == 0
    assert "is of another config; the run begins anew" in capsys.readouterr().err
    assert untimed(load_run(folder).records) == untimed(whole)


def test_thinning_keeps_every_evaluation_and_event():
    lines = [{"kind": "train", "step": k, "loss": 1 / (k + 1)} for k in range(1000)]
    lines += [{"kind": "eval", "step": k, "set": "eval", "mse": 1 / 3} for k in range(1000)]
    lines += [{"kind": "event", "step": 1000, "event": "diverged"}]
    kept = thinned(lines)
    assert sum(line["kind"] == "eval" for line in kept) == 1000
    assert sum(line["kind"] == "train" for line in kept) == 200
    assert kept[-1] == lines[-1]


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"kind":"train","step":1}\n')
    with pytest.raises(ReportError, match=r"a\.jsonl: not the record of a run"):
        read_record(path)


def test_a_run_that_measured_nothing_has_no_record(tmp_path):
    folder = ran(tmp_path / "run", "adding", length=2)
    (folder / "result.json").unlink()
    (folder / "metrics.jsonl").write_text("")
    assert collect(folder, tmp_path / "results") is None


def test_a_readme_without_marks_is_left_alone(tmp_path, caplog):
    readme = tmp_path / "README.md"
    readme.write_text("no marks")
    written = write_pages(tmp_path / "results", tmp_path / "docs" / "page.md", readme)
    assert written == [tmp_path / "docs" / "page.md"]
    assert readme.read_text() == "no marks"
    assert BEGIN in caplog.text
    assert "not run" in written[0].read_text()
    assert write_report(tmp_path / "results", "full") is None


def test_the_league_is_probed_outside_its_wall_time(place, monkeypatch):
    league = {
        "task": {"name": "adding", "length": 6, "batch_size": 4},
        "model": {"name": "roa-rnn"},
        "train": {"length": 20, "eval_every": 10},
    }
    copying = league | {"task": {"name": "copying", "lag": 3, "symbols": 2, "batch_size": 4}}
    write_experiments(
        {
            "league-adding-200": league,
            "league-adding-1000": league,
            "league-copying-100": copying,
            "league-psmnist-784": league,
        }
    )
    assert reproduce("league", "--only", "adding-200-gru") == 0
    found = {}
    for path in Path("results/league").glob("*.jsonl"):
        lines = path.read_text().splitlines()
        found[path.stem] = [p["step"] for p in map(json.loads, lines) if p["kind"] == "probe"]
    assert found == {"league-adding-200-gru-s0": [0, 20], "league-adding-200-gru-s1": []}
