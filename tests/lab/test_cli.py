"""The command: exit codes, results on stdout, words on stderr, and never a traceback."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roann.lab import verbs
from roann.lab.checkpoint import BusyError, CheckpointError
from roann.lab.cli import main
from roann.lab.config import ConfigError, parse, read_tables, read_text
from roann.lab.data import DataError
from roann.lab.exits import LabError
from roann.lab.files import RunFileError
from roann.lab.progress import Bar, Lines, Progress, watcher
from roann.lab.report import ReportError
from roann.lab.stop import InterruptedRun, UnfinishedRun

EXPERIMENTS = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))
TINY = """
[task]
name = "adding"
length = 12
batch_size = 4
[model]
name = "roa-rnn"
hidden_size = 4
[train]
length = 6
eval_every = 3
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return str(path)


def test_help_names_every_verb(capsys):
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for verb in ("demo", "run", "resume", "sweep", "search", "probe", "report", "data", "info"):
        assert re.search(rf"• {verb}\b", shown), verb
    for gone in ("reproduce", "bench"):  # they need a checkout: python -m paper, -m benchmarks
        assert gone not in shown
        assert main([gone]) == 2


HEAVY = {"torch", "numpy", "pydantic", "matplotlib", "rich", "jinja2", "roann.lab.models"}


def test_help_imports_nothing_heavy():
    """Beyond what the front door itself imports: this is why help is instant."""
    program = (
        "import sys, roann; before = set(sys.modules)\n"
        "from roann.lab.cli import main\n"
        "from roann.lab.verbs import VERBS\n"
        "codes = [main([*verb, '--help']) for verb in ([], *([name] for name in VERBS))]\n"
        "print('\\n'.join(['new', *map(str, codes), *sorted(set(sys.modules) - before)]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    new = done.stdout.rpartition("\nnew\n")[2].split()
    assert new[:10] == ["0"] * 10, done.stderr
    assert not new[10].isdigit()
    assert not HEAVY & set(new)


def test_help_with_a_file_lists_the_fields_of_its_task_and_model(file, capsys):
    assert main(["run", file, "--help"]) == 0
    shown = capsys.readouterr().out
    for flag in ("--task.length", "--task.markers", "--model.rho", "--train.lr", "--seed"):
        assert flag in shown
    assert re.search(r"--task.length INT[^(]*\(default: 12\)", shown)


def test_flags_win_over_the_file_and_the_file_over_defaults(file, capsys):
    words = ["--train.lr", "0.25", "--seed", "3", "--model.filter", "haar", "--task.length", "20"]
    assert main(["run", file, *words, "--train.schedule", "2", "0.5", "--print-config"]) == 0
    experiment = parse(read_text(capsys.readouterr().out))
    assert (experiment.train.lr, experiment.train.seed) == (0.25, 3)
    assert experiment.train.schedule == ((2, 0.5),)
    assert (experiment.model.filter, experiment.model.hidden_size) == ("haar", 4)
    assert (experiment.task.length, experiment.task.batch_size) == (20, 4)
    assert experiment.train.log_every == 10
    # Flags may come before the file, too.
    assert main(["run", *words[:2], file, "--print-config"]) == 0
    assert parse(read_text(capsys.readouterr().out)).train.lr == 0.25
    assert os.listdir() == ["tiny.toml"]


def test_run_then_run_again_then_probe(file, capsys):
    assert main(["run", file, "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["status"] == "finished"
    assert result["final"]["eval"]["step"] == 6
    assert "finished after 6 steps" in err
    folder = Path(result["directory"])
    assert folder.parent == Path("runs")
    assert re.fullmatch(r"tiny-s0-[0-9a-f]{10}", folder.name)
    assert parse(read_tables(folder / "config.toml")) == parse(read_text(TINY))

    assert main(["run", file]) == 0
    out, err = capsys.readouterr()
    assert "nothing to do, the run has finished" in err
    assert out.startswith(f"{folder}: finished after 6 steps")
    assert re.search(r"eval mse: \S+, best \S+ at step \d+ \(trivial 0.1667\)", out)

    assert main(["probe", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["step"], found["maps"], len(found["sigma"])) == (6, 12, 4)
    assert found["bound"]["lower"] <= found["sigma"][-1] <= found["sigma"][0]
    assert main(["probe", str(folder)]) == 0
    assert "log singular values over 12 maps" in capsys.readouterr().out


def test_quiet_leaves_only_the_result(file, capsys):
    assert main(["run", file, "-q", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["status"] == "finished"
    assert err == ""


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.stem)
def test_every_experiment_of_the_paper_is_ready_to_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = main(["run", str(path), "--dry-run", "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert code == 4 if "missing" in plan else (code == 0 and plan["steps"] > 0)
    assert main(["sweep", str(path), "--dry-run", "--json"]) == 0
    folders = json.loads(capsys.readouterr().out)["directories"]
    assert len(folders) == len(set(folders)) >= 1
    assert not os.listdir()


def test_data_that_are_missing_fail_a_dry_run_as_they_would_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ROANN_DATA", str(tmp_path))
    file = next(path for path in EXPERIMENTS if path.stem == "psmnist-178")
    assert main(["run", str(file), "--dry-run"]) == 4
    assert "name it in the environment variable ROANN_DATA" in capsys.readouterr().out


def test_there_is_an_experiment_for_every_curve_family():
    names = {path.stem for path in EXPERIMENTS}
    assert {f"copying-{lag}" for lag in (400, 2000, 10000)} <= names
    assert {f"adding-{length}" for length in (200, 1000, 5000)} <= names
    assert {f"psmnist-{size}" for size in (178, 256, 512)} <= names
    assert {f"double-moon-roa-50000-{name}" for name in ("sgd", "nag", "adam")} <= names
    assert {"double-moon-shallow", "double-moon-roa-50"} <= names
    assert {f"ablation-{task}" for task in ("copying", "adding", "psmnist")} <= names


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["run", "FILE", "--train.lr", "nan"], 2, "[train] lr must be a finite number"),
        (["run", "FILE", "--train.lr", "-1"], 2, "[train] lr should be greater than 0"),
        (["run", "FILE", "--model.hidden-size", "99999999"], 2, "hidden_size"),
        (["run", "FILE", "--train.lrr", "1"], 2, "--train.lr"),
        (["run", "FILE", "--train.lr"], 2, "--train.lr"),
        (["run", "FILE", "--train.unit", "epoch"], 2, 'use unit = "iteration"'),
        (["run", "FILE", "--train.device", "cuda"], 2, "CUDA"),
        (["run", "absent.toml"], 2, "absent.toml: cannot be read: No such file"),
        (["run"], 2, "PATH"),
        (["run", "FILE\x1b[2J"], 2, "control character"),
        (["fly"], 2, "fly"),
        ([], 2, "demo"),
        (["resume", "absent"], 2, "absent is not a run directory"),
        (["resume", "."], 2, "is not a run directory"),
        (["probe", "absent"], 2, "config.toml: cannot be read"),
        (["report", "absent"], 2, "absent"),
        (["data", "imagenet"], 2, "mnist"),
        (["data", "mnist", "--data-dir", "here", "--source", "nowhere"], 4, "nowhere"),
        (["sweep", "FILE", "--grid", "train.lr"], 2, "write FIELD=VALUE"),
        (["sweep", "FILE", "--jobs", "0"], 2, "--jobs must be from 1"),
    ],
)
def test_a_mistake_is_answered_in_words(file, words, code, says, capsys):
    words = [word.replace("FILE", file) for word in words]
    if "cuda" in words and cli_sees_cuda():
        pytest.skip("there is a CUDA device")
    assert main(words) == code
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""
    assert "Traceback" not in err
    assert "\x1b" not in err


def cli_sees_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def test_a_task_and_a_model_that_do_not_fit_are_told_apart(tmp_path, capsys):
    path = tmp_path / "odd.toml"
    path.write_text('[task]\nname = "double-moon"\n[model]\nname = "lstm"\n')
    assert main(["run", str(path), "--dry-run"]) == 2
    assert "feed-forward" in capsys.readouterr().err


def test_a_directory_of_another_run_is_not_touched(file, capsys):
    assert main(["run", file, "--out", "here"]) == 0
    before = Path("here/config.toml").read_text()
    assert main(["run", file, "--out", "here", "--seed", "1"]) == 2
    assert "holds a run of another config" in capsys.readouterr().err
    assert Path("here/config.toml").read_text() == before


def test_a_sweep_by_command(file, capsys):
    words = ["sweep", file, "--grid", "model.rho=0.5,2", "--seeds", "0", "--train.length", "2"]
    assert main([*words, "--root", "all", "--jobs", "2", "-q", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert list(runs.values()) == ["finished", "finished"]
    assert [Path(r).name.rpartition("-s0-")[0] for r in runs] == ["tiny-rho-0.5", "tiny-rho-2"]
    assert main([*words, "--root", "all", "-q"]) == 0
    assert re.search(r"finished  all/tiny-rho-0.5\S+  best eval mse \d", capsys.readouterr().out)
    assert main(["report", "all", "--out", "."]) == 2
    assert "roann: . is a directory; name the file to write" in capsys.readouterr().err
    assert main(["report", "all", "--out", "page.html"]) == 0
    assert capsys.readouterr().out == "page.html\n"
    assert "tiny-rho-0.5" in Path("page.html").read_text()


def test_mnist_is_fetched_by_command(tmp_path, capsys):
    if tiny_runs.DIRECTORY is None:
        pytest.skip("MNIST is not here: run `roann data mnist` or set ROANN_DATA")
    words = ["data", "mnist", "--data-dir", str(tmp_path), "--source", str(tiny_runs.DIRECTORY)]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"directory": str(tmp_path)}


def test_info_as_json_and_as_text(capsys):
    assert main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"roann", "python", "torch", "threads", "kernel"} <= set(found)
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert [line.split(maxsplit=1) for line in shown.splitlines()] == [
        [name, value] for name, value in found.items()
    ]
    module = subprocess.run([sys.executable, "-m", "roann.info"], capture_output=True, text=True)
    assert [line.split()[0] for line in module.stdout.splitlines()] == list(found)


@pytest.mark.parametrize("verb", verbs.VERBS)
def test_every_verb_has_one_parser(verb, file, capsys):
    """Help in the same form, the common flags, and the same answer to a flag that is not known."""
    assert main([verb, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: roann {verb} [-h]")
    assert re.search(r"-q, --quiet +Print warnings and the result only", shown)
    assert re.search(r"-v, --verbose", shown)
    needed = {
        "run": file,
        "sweep": file,
        "search": file,
        "resume": ".",
        "probe": ".",
        "data": "mnist",
    }
    assert main([verb, *filter(None, [needed.get(verb)]), "--flap"]) == 2
    assert "--flap" in capsys.readouterr().err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(data=st.binary(max_size=200))
def test_random_files_are_answered_in_words(tmp_path, data, capsys):
    path = tmp_path / "fuzz.toml"
    path.write_bytes(data)
    assert main(["run", str(path), "--dry-run"]) == 2
    assert "Traceback" not in capsys.readouterr().err


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(words=st.lists(st.text(max_size=12), max_size=4))
def test_random_words_are_answered_in_words(tmp_path, monkeypatch, words, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


class OutsideError(LabError):
    code = 9


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("why"), 2), (BusyError("why"), 2), (ReportError("why"), 2),
        (RunFileError("why"), 4), (CheckpointError("why"), 4), (DataError("why"), 4),
        (UnfinishedRun(Path("run"), "why", OSError(28, "full")), 75),
        (InterruptedRun(signal.SIGTERM), 75), (InterruptedRun(signal.SIGINT), 130),
        (OutsideError("why"), 9),
    ],
    ids=repr,
)  # fmt: skip
def test_an_error_carries_its_exit_code(error, code, monkeypatch, capsys):
    def fail(args):
        raise error

    monkeypatch.setattr(verbs, "read", fail)
    assert main(["run"]) == code
    assert capsys.readouterr().err == f"roann: {error}\n"
    with pytest.raises(type(error)):
        main(["run", "-v"])


def test_a_bug_of_ours_is_not_hidden(file, monkeypatch):
    def broken(words):
        raise ZeroDivisionError

    monkeypatch.setattr(verbs, "read", broken)
    with pytest.raises(ZeroDivisionError):
        main(["run", file])


def test_progress_suits_whoever_reads_it(monkeypatch):
    assert watcher(quiet=True) is Progress
    assert watcher(quiet=False) is Lines  # pytest is no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert watcher(quiet=False) is Bar


@pytest.mark.parametrize("columns", [60, 160])
def test_a_terminal_gets_a_live_bar_without_colour_if_so_wanted(file, columns):
    """On a real pseudo-terminal, in a process of its own."""
    environment = dict(os.environ, TERM="xterm-256color", COLUMNS=f"{columns}", NO_COLOR="1")
    leader, follower = pty.openpty()
    program = "import sys; from roann.lab.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["run", file, "--out", "bar", "--train.length", "40"]
    with subprocess.Popen(
        [sys.executable, "-c", program, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=follower,
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                chunk = os.read(leader, 4096)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
        out = process.stdout.read()
    os.close(leader)
    assert process.returncode == 0
    assert b"finished after 40 steps" in out
    assert b"\x1b" not in out
    text = shown.decode()
    assert ("trivial 0.1667" in text) == (columns > 60)
    assert re.search(r"\d+/40, \S+ left", text)  # it goes last, where there is little room
    assert "\x1b[" in text  # it moves
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", text)  # it has no colour
