"""The examples, those of the first pages too, run and print what the pages show."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
# What a quick run prints, in order: names of the scores it compares.
PRINTS = {
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
    """Guides begin with the mark of a cell; tests/test_guides.py runs them."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in EXAMPLES.glob("*.py")}
    assert {name for name, text in texts.items() if not text.startswith("# %%\n")} == set(PRINTS)


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
def test_a_learned_alpha_finds_its_size():
    train = load("learned_rho")["train"]
    fixed, learned = train(1e-5, False, 500)[0], train(1e-5, True, 500)[0]
    assert learned < 0.05 < 0.15 < fixed
