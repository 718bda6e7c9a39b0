"""The guides: pages that cannot differ from their scripts, and scripts that run."""

import importlib.util
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ranks import Group

ROOT = Path(__file__).parent.parent
PAGES = ROOT / "docs" / "guides"

spec = importlib.util.spec_from_file_location("write_guides", ROOT / "docs" / "write_guides.py")
write_guides = importlib.util.module_from_spec(spec)
spec.loader.exec_module(write_guides)

NAMES = write_guides.names()
NEEDED = ("matplotlib", "onnxruntime", "pytorch_lightning", "roann.estimators")
SPLIT = ("processes", "with_lightning")  # these also run in two processes
PICTURE = re.compile(r"!\[[^\]]+\]\((\w+\.svg)\)")


def page(name):
    return (PAGES / f"{name}.md").read_text(encoding="utf-8")


def need(name):
    """Skip where an extra that the script imports is not installed."""
    for module in NEEDED:
        if re.search(rf"^(from|import) {module}\b", page(name), re.MULTILINE):
            pytest.importorskip(module)


def test_there_are_twelve_and_the_index_has_them_all():
    index = page("index")
    listed = re.findall(r"^\d+\. \[.*?\]\((\w+)\.md\)", index, re.MULTILINE)
    assert sorted(listed) == NAMES
    assert len(NAMES) == 12
    toctree = index.partition(":hidden:")[2].split("```")[0].split()
    assert toctree == [*listed, "when_not"]
    assert {path.stem for path in PAGES.glob("*.md")} == {*NAMES, "index", "when_not"}


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_that_of_the_script(name):
    """Text and code are the script's; only what is printed comes from a full run."""
    assert write_guides.page(name, write_guides.shown(name)) == page(name)
    assert len(re.findall(r"^# ", page(name).split("```python")[0], re.MULTILINE)) == 1
    assert 'QUICK = "--quick" in sys.argv  # ' in page(name)


def test_a_change_of_code_is_noticed(monkeypatch):
    cells = write_guides.cells("deep")
    changed = [cell._replace(code=cell.code.replace("0.1", "0.2")) for cell in cells]
    monkeypatch.setattr(write_guides, "cells", lambda name: changed)
    with pytest.raises(SystemExit, match=r"run docs/write_guides\.py deep"):
        write_guides.shown("deep")


def test_pictures_are_small_and_all_are_shown():
    shown = [picture for name in NAMES for picture in PICTURE.findall(page(name))]
    assert sorted(shown) == sorted(path.name for path in PAGES.glob("*.svg"))
    assert all(PICTURE.search(page(name)) for name in NAMES)
    assert max((PAGES / picture).stat().st_size for picture in shown) < 60_000


def labels(printed):
    """The words before the first number of each line, which do not depend on the settings."""
    return [" ".join(re.match(r"[^\d:\[]*", line).group().split()) for line in printed]


@pytest.mark.parametrize("name", NAMES)
def test_a_quick_run(name, tmp_path):
    """As a user runs it, warnings as errors: it prints the page's lines and draws its pictures."""
    need(name)
    command = [sys.executable, "-W", "error"]
    # Of torch.export, and of Lightning's use of torch.
    own = ["-W", "ignore::FutureWarning"] if name in ("deploy", "with_lightning") else []
    command += own
    command += [str(ROOT / "examples" / f"{name}.py"), "--quick"]
    env = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=250
    )
    assert done.returncode == 0, done.stderr
    promised = "".join(write_guides.shown(name)).splitlines()
    assert labels(done.stdout.splitlines()) == labels(promised)
    assert "nan" not in done.stdout
    if name in ("deploy", "gradients"):
        assert "False" not in done.stdout
    assert set(PICTURE.findall(page(name))) == {path.name for path in tmp_path.glob("*.svg")}


@pytest.mark.parametrize(
    "name", ["processes", pytest.param("with_lightning", marks=pytest.mark.slow)]
)
def test_two_processes_print_what_one_does(name, tmp_path, monkeypatch):
    """The first of them: losses of the same updates, to four digits."""
    need(name)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    printed = {}
    for size in (1, 2):
        group = Group(size, tmp_path)
        first, *_ = group.call(quick, name, str(tmp_path), size).end()
        printed[size] = [line for line in first.splitlines() if " loss " in line]
    assert len(printed[1]) == 2
    assert printed[1] == printed[2]


def quick(name, folder, size):
    """A guide in one rank; alone, it is not told that there are ranks."""
    os.chdir(folder)
    if size == 1:
        for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
            del os.environ[variable]
    sys.argv = [f"{name}.py", "--quick"]
    torch.set_num_threads(1)
    runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")


def full(name, tmp_path, monkeypatch):
    """The names that a script has defined at its end."""
    need(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(sys, "argv", [name])
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


@pytest.mark.slow
def test_the_first_sequence_is_learned(tmp_path, monkeypatch):
    found = full("first_sequence", tmp_path, monkeypatch)
    assert found["error"] < 0.02 < 0.15 < found["guess"]


@pytest.mark.slow
def test_series_with_gaps_are_classified(tmp_path, monkeypatch):
    found = full("classify", tmp_path, monkeypatch)
    X, y, half = found["X"], found["y"], found["half"]
    assert found["model"].score(X[half:], y[half:]) > 0.95
    assert found["holed"].score(found["gaps"][half:], y[half:]) > 0.9


@pytest.mark.slow
def test_known_inputs_help_a_forecast(tmp_path, monkeypatch):
    errors = full("forecast", tmp_path, monkeypatch)["errors"]
    assert errors["with"] < 0.6 * errors["without"]


@pytest.mark.slow
def test_time_stamps_win(tmp_path, monkeypatch):
    scores = full("irregular", tmp_path, monkeypatch)["scores"]
    assert scores["RoaODE"] < 0.2 < 0.35 < scores["no time stamps"]


@pytest.mark.slow
def test_a_hundred_blocks_train_only_with_the_filter(tmp_path, monkeypatch):
    results = full("wrap", tmp_path, monkeypatch)["results"]
    assert results["wrapped"][0] > 0.95
    assert results["plain"][0] < 0.6
    assert results["plain"][1][0] == 0  # the gradient of the first layer underflows


@pytest.mark.slow
def test_ten_thousand_layers_train_only_with_the_filter(tmp_path, monkeypatch):
    curves = full("deep", tmp_path, monkeypatch)["curves"]
    ours, plain = (sum(curve[-20:]) / 20 for curve in curves.values())
    assert ours < 0.4 < 0.9 < plain


@pytest.mark.slow
def test_a_symbol_is_remembered_where_an_lstm_forgets(tmp_path, monkeypatch):
    curves = full("from_lstm", tmp_path, monkeypatch)["curves"]
    last = {name: sum(curve[-20:]) / 20 for name, curve in curves.items()}
    assert last.pop("WithRoa, 0.03") < 0.3 < min(last.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", SPLIT)
def test_the_first_input_is_recalled(name, tmp_path, monkeypatch):
    found = full(name, tmp_path, monkeypatch)
    losses = found["losses"] if name == "processes" else found["model"].losses
    assert sum(losses[-20:]) / 20 < 0.03 < 1 / 12  # the variance of what is recalled
