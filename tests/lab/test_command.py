"""The command as it is installed: without the lab's packages, in a narrow encoding."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_cli import TINY

from roann.lab.__main__ import main

ROOT = Path(__file__).parents[2]
LAB = ("numpy", "matplotlib", "tyro", "pydantic", "annotated_types", "rich", "jinja2")
BLOCKED = """
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Blocked())
from roann.lab.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def without(names: tuple[str, ...], *words: str) -> "subprocess.CompletedProcess[str]":
    program = [sys.executable, "-c", BLOCKED.format(names=names), *words]
    return subprocess.run(program, capture_output=True, text=True)


def test_the_script_is_the_module_that_imports_nothing_of_the_lab():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"roann": "roann.lab.__main__:main"}
    code = f"import sys, roann.lab.__main__; print([m for m in {LAB!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout.replace("'", '"'))) <= {"numpy"}  # torch imports it


@pytest.mark.parametrize("words", [[], ["--help"], ["run", "a.toml"], ["demo"]], ids=str)
def test_without_the_lab_one_sentence_says_so(words):
    done = without(LAB, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "roann: the command needs the extra 'lab' (No module named 'tyro'); "
        "install it with: python -m pip install 'roann[lab]'\n"
    )


def test_a_package_that_one_verb_needs_is_named_when_it_is_missed(tmp_path):
    done = without(("jinja2",), "report", str(tmp_path))
    assert done.returncode == 2
    assert "(No module named 'jinja2')" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_bug_of_ours_is_not_taken_for_a_missing_package(monkeypatch):
    def broken(words):
        raise ImportError("cannot import name 'x'", name="roann.lab.run")

    monkeypatch.setattr("roann.lab.cli.main", broken)
    with pytest.raises(ImportError, match="cannot import name"):
        main(["info"])


def test_a_report_of_nothing_is_a_mistake(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (["report"], ["report", "."], ["report", "--out", "page.html"]):
        assert main(words) == 2
        assert "run director" in capsys.readouterr().err
    assert os.listdir() == []


VERBS = [
    (["--help"], 0), (["run", "--help"], 0), (["run", "tinyü.toml", "--help"], 0),
    (["sweep", "--help"], 0), (["probe", "--help"], 0), (["demo", "--help"], 0),
    (["data", "--help"], 0), (["info"], 0), (["run", "tinyü.toml", "--print-config"], 0),
    (["run", "tinyü.toml", "--out", "rün"], 0), (["resume", "rün"], 0), (["probe", "rün"], 0),
    (["report", "rün", "--out", "ρ.html"], 0), (["run", "ü.toml"], 2), (["fly-ρ"], 2),
    (["run", "tinyü.toml", "--model.filter", "ρ"], 2), (["data", "mnist", "--source", "ρ"], 4),
    (["sweep", "tinyü.toml", "--grid", "model.filter=ρ"], 2),
    (["sweep", "tinyü.toml", "--seeds", "0", "1", "--jobs", "2", "--root", "alle-ü"], 0),
]  # fmt: skip


def test_an_encoding_that_lacks_a_character_costs_no_traceback(tmp_path):
    (tmp_path / "tinyü.toml").write_text(TINY)
    program = (
        "import sys, json\n"
        "from roann.lab.__main__ import main\n"
        "if __name__ == '__main__':\n"
        "    codes = [main(words) for words in json.loads(sys.argv[1])]\n"
        "    print('codes', *codes)\n"
    )
    (tmp_path / "verbs.py").write_text(program)
    env = dict(os.environ, PYTHONIOENCODING="ascii", ROANN_DATA=str(tmp_path / "none"))
    done = subprocess.run(
        [sys.executable, "verbs.py", json.dumps([words for words, _ in VERBS])],
        cwd=tmp_path, env=env, capture_output=True,
    )  # fmt: skip
    err = done.stderr.decode("ascii")
    assert "Traceback (most recent" not in err
    assert done.returncode == 0, err
    codes = done.stdout.decode("ascii").splitlines()[-1].split()[1:]
    assert codes == [str(code) for _, code in VERBS]
    assert (tmp_path / "ρ.html").read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    assert "r\\xfcn: finished after 6 steps" in err
