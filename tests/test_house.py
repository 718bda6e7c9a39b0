"""The house rules that a machine can check: imports point down, files stay small."""

import ast
import doctest
import functools
import importlib
import inspect
import pkgutil
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import setuptools

import roann

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "roann"

# Who may import whom, room by room. A room may always import itself.
ALLOWED = {
    "_checks": set(),
    "ts": set(),
    "theorem": {"_checks"},
    "kernels": {"_checks", "theorem"},
    "filters": {"_checks", "kernels"},
    "functional": {"_checks", "kernels"},
    "nn": {"_checks", "theorem", "kernels", "filters", "functional"},
    "serialization": {"_checks", "filters", "nn"},
    "diagnostics": {"_checks", "theorem", "kernels", "filters", "functional", "nn"},
    "export": {"roann", "_checks", "kernels", "functional", "nn", "serialization"},
    "info": {"roann", "kernels"},
    "estimators": {"_checks", "kernels", "nn", "serialization", "diagnostics", "export", "ts"},
}
# The lab, from the ground up: a room imports only rooms that stand before it.
LAB = [
    "exits",
    "stop",
    "limits",
    "streams",
    "files",
    "progress",
    "records",
    "optimizers",
    "checkpoint",
    "data",
    "sound",
    "fsdd",
    "tasks",
    "models",
    "config",
    "distributed",
    "joining",
    "figures",
    "probe",
    "black_box",
    "train",
    "run_context",
    "run",
    "launch",
    "follow",
    "board",
    "engines",
    "sweep",
    "search",
    "report",
    "demo",
    "verbs",
    "perform",
    "cli",
    "__main__",
]


def room_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def imported_rooms(path):
    """Rooms of the package that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module]
            if node.module == "roann":
                names = [f"roann.{a.name}" for a in node.names]
        for name in names:
            top, _, rest = name.partition(".")
            if top == "roann":
                room = rest.split(".")[0]
                yield room if room in ALLOWED or room == "lab" else "roann"


KNOWN = [p for p in SOURCE.rglob("*.py") if room_of(p) in ALLOWED]
LIBRARY = [p for p in KNOWN if room_of(p) != "estimators"]


@pytest.mark.parametrize("path", KNOWN, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path):
    room = room_of(path)
    wrong = set(imported_rooms(path)) - ALLOWED[room] - {room}
    assert not wrong, f"{room} may not import {wrong}"


@pytest.mark.parametrize(
    "path", sorted((SOURCE / "lab").rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE))
)
def test_the_lab_points_down(path):
    parts = path.relative_to(SOURCE / "lab").with_suffix("").parts
    if parts == ("__init__",):
        return
    room = LAB.index(parts[0])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("roann.lab"):
            rest = node.module.split(".")[2:]
            for name in rest[:1] or [a.name for a in node.names]:
                assert LAB.index(name) <= room, f"{parts[0]} may not import {name}"


def test_the_library_never_imports_the_lab_or_the_estimators():
    for path in LIBRARY:
        assert not {"lab", "estimators"} & set(imported_rooms(path))


def test_the_library_draws_nothing():
    for path in LIBRARY:
        names = [
            name
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None), *(a.name for a in node.names)]
            if name
        ]
        assert not [n for n in names if n.split(".")[0] == "matplotlib"], path.name


def test_every_room_is_known():
    rooms = {room_of(p) for p in SOURCE.rglob("*.py")}
    assert rooms <= set(ALLOWED) | {"__init__", "__main__", "lab"}


def test_import_needs_torch_and_safetensors_only():
    heavy = (
        "matplotlib tyro pydantic rich jinja2 onnx onnxruntime sklearn ray submitit optuna "
        "roann.lab roann.estimators"
    )
    code = f"import sys, roann; print([m for m in {heavy.split()!r} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


CODE = [path for top in (SOURCE, ROOT / "paper", ROOT / "benchmarks") for path in top.rglob("*.py")]


def test_files_and_functions_stay_small():
    lengths = {path: len(path.read_text().splitlines()) for path in CODE}
    assert not [path for path, length in lengths.items() if length > 400]
    assert statistics.median(lengths.values()) <= 130
    for path in CODE:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node
                length = node.end_lineno - first.lineno + 1
                assert length <= 60, f"{path.name}:{node.lineno} {node.name} has {length} lines"


# Lines of Python that a part may have. Raise a number only with a capability that is worth it.
LINES = {
    "src/roann/kernels": 2_470,
    "src/roann/filters": 1_200,
    "src/roann/nn": 3_340,
    "src/roann/diagnostics": 1_810,
    "src/roann/export": 600,
    "src/roann/estimators": 3_000,
    "src/roann/lab/models": 3_610,
    "src/roann/lab/engines": 1_150,
    "src/roann/lab": 12_600,
    "src/roann": 26_260,
    "paper": 1_105,
    "benchmarks/scale": 720,
    "benchmarks/real": 870,
    "benchmarks": 3_060,
}


@pytest.mark.parametrize("part", LINES)
def test_parts_keep_within_their_lines(part):
    found = sum(
        len(path.read_text().splitlines()) for path in CODE if path.is_relative_to(ROOT / part)
    )
    assert found <= LINES[part], f"{part} has {found} lines"


def test_imports_of_the_library_are_at_most_twelve_deep():
    """The longest chain of its modules in which each imports the next; a cycle would not end."""
    names = {
        ".".join(("roann", *path.relative_to(SOURCE).with_suffix("").parts)): path
        for path in LIBRARY
    }
    modules = {name.removesuffix(".__init__"): path for name, path in names.items()}

    @functools.cache
    def depth(name):
        below = set()
        for node in ast.walk(ast.parse(modules[name].read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{a.name}" for a in node.names} & modules.keys()
                below |= inner or {node.module} & modules.keys()
        return 1 + max(map(depth, below - {name}), default=0)

    assert max(map(depth, modules)) <= 12


def test_the_wheel_holds_the_library_and_the_lab_alone():
    """What setuptools packs: nothing of paper/ and benchmarks/, and no reproduction in the lab."""
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert setup["packages"]["find"] == {"where": ["src"]}
    packed = setuptools.find_packages(str(ROOT / "src"))
    assert {name.split(".")[0] for name in packed} == {"roann"}
    assert not {"roann.bench", "roann.lab.reproduce"} & set(packed)
    for path in SOURCE.rglob("*.py"):
        names = {a.name for n in ast.walk(ast.parse(path.read_text()))
                 if isinstance(n, ast.Import) for a in n.names}  # fmt: skip
        names |= {n.module or "" for n in ast.walk(ast.parse(path.read_text()))
                  if isinstance(n, ast.ImportFrom)}  # fmt: skip
        assert not {"paper", "benchmarks"} & {name.split(".")[0] for name in names}, path


def test_there_is_one_model_of_a_result():
    """One class for the runs of a setting, one for their goal, one for what a run scored."""
    names = [n.name for path in CODE for n in ast.walk(ast.parse(path.read_text()))
             if isinstance(n, ast.ClassDef)]  # fmt: skip
    for name in ("Arm", "Goal", "Outcome"):
        assert names.count(name) == 1, name
    assert not {"Reading", "Fall", "Claim"} & set(names)


def test_results_are_records_and_small():
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 12_000_000
    assert not [path for path in files if path.suffix == ".html"]
    assert {path.suffix for path in files} <= {".json", ".jsonl"}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def public(module):
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            yield value


MODULES = [
    m.name
    for m in pkgutil.walk_packages([str(SOURCE)], "roann.")
    if m.name.split(".")[1] in ALLOWED and not m.name.endswith("_native")
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    import torch

    if name.split(".")[1] == "estimators":
        pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")
    module = importlib.import_module(name)
    torch.manual_seed(0)
    found = doctest.testmod(module, extraglobs={"torch": torch, "roann": roann})
    assert found.failed == 0


def test_public_names_have_examples():
    """Every public class and function shows a runnable example."""
    rooms = (roann, roann.filters, roann.export)
    for value in {value for room in rooms for value in public(room)} - {roann.filters.Filter}:
        assert ">>>" in (value.__doc__ or ""), f"{value.__name__} has no example"
