"""The examples, those of the first pages too, run and print what the pages show."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from roann import RoaODE

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
# What a quick run prints, in order: names of the scores it compares.
PRINTS = {
    "irregular_sampling": ["isometric:", "euler:", "without time stamps:"],
    "deep_wrapped_network": ["plain:", "wrapped:"],
    "learned_rho": ["1e-05", "1e-03", "1e-02"],
}


@pytest.mark.parametrize("name", PRINTS)
def test_a_quick_run(name):
    """As a user runs it, warnings as errors."""
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py"), "--quick"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = iter(done.stdout.splitlines())
    for label in PRINTS[name]:
        line = next(line for line in lines if label in line)
        rest = line.partition(label)[2]
        assert re.search(r"\d\.\d{3}", rest), line
        assert "nan" not in rest


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTS)


NUMBER = re.compile(r"\d+\.\d+")


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_example_prints_what_its_page_shows(page):
    """Word for word; numbers may differ by rounding. At most twelve lines."""
    text = (ROOT / page).read_text(encoding="utf-8")
    code, shown = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL).groups()
    assert len(code.splitlines()) <= 12
    command = [sys.executable, "-W", "error", "-c", code]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == 0, done.stderr
    assert NUMBER.sub("x", done.stdout) == NUMBER.sub("x", shown)
    printed, promised = (list(map(float, NUMBER.findall(t))) for t in (done.stdout, shown))
    assert printed == pytest.approx(promised, rel=0.02)
    assert "The theorem holds" in shown


def load(name):
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.slow
def test_time_stamps_win():
    score = load("irregular_sampling")["score"]
    with_stamps, without = score(RoaODE, True, 200), score(RoaODE, False, 200)
    assert with_stamps < 0.2 < 0.35 < without


@pytest.mark.slow
def test_a_hundred_blocks_train_only_with_the_filter():
    example = load("deep_wrapped_network")
    accuracy = {w: example["train"](example["network"](100, w), 120) for w in (True, False)}
    assert accuracy[True][0] > 0.95
    assert accuracy[False][0] < 0.6
    assert accuracy[False][1] == 0  # the gradient of the first layer underflows


@pytest.mark.slow
def test_a_learned_alpha_finds_its_size():
    train = load("learned_rho")["train"]
    fixed, learned = train(1e-5, False, 500)[0], train(1e-5, True, 500)[0]
    assert learned < 0.05 < 0.15 < fixed


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of torch.export
def test_the_page_on_deployment_runs_and_prints_what_it_says(tmp_path, monkeypatch, capsys):
    """Every Python block, in order; every line that prints says what."""
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    promised = re.findall(r"print\(.*\)  # (.*)", code)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "deploy.md", "exec"), {"__name__": "deploy"})
    assert capsys.readouterr().out.splitlines() == promised
    assert len(promised) == code.count("print(") >= 5
    written = {"rnn.onnx", "padded.onnx", "step.onnx", "cell.onnx", "classifier.onnx", "rnn.pt2"}
    assert {path.name for path in tmp_path.iterdir()} == written
