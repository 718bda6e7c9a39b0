"""The package as it is shipped: one version, metadata, a binary wheel that needs no compiler."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import torch

import roann

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++")


def test_the_version_has_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert "version" not in PROJECT["project"]
    dynamic = PROJECT["tool"]["setuptools"]["dynamic"]
    assert dynamic["version"] == {"attr": "roann.__version__"}
    written = [
        p for p in (ROOT / "src").rglob("*.py") if re.search(r"^__version__ =", p.read_text(), re.M)
    ]
    assert [p.name for p in written] == ["__init__.py"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    to = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, ROOT / ".ci" / "wheel.py", to], check=True)
    (path,) = to.glob("*.whl")
    return path


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="manylinux")
def test_what_the_wheel_says_of_itself(wheel):
    version = re.escape(roann.__version__)
    name = rf"roann-{version}-cp311-abi3-manylinux_2_\d+_\w+(\.manylinux\w+)*\.whl"
    assert re.fullmatch(name, wheel.name), wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (metadata,) = (n for n in names if n.endswith(".dist-info/METADATA"))
        said = message_from_bytes(archive.read(metadata))
    assert said["Version"] == roann.__version__
    assert {line.split(",")[0] for line in said.get_all("Project-URL")} >= {"Paper"}
    assert "Typing :: Typed" in said.get_all("Classifier")
    assert {"onnx", "lab"} <= set(said.get_all("Provides-Extra"))
    assert "roann/py.typed" in names
    assert [n for n in names if "_native" in n] == ["roann/kernels/_native.abi3.so"]
    assert {n.split("/")[0].split("-")[0] for n in names} == {"roann"}


@pytest.fixture(scope="module")
def empty(wheel, tmp_path_factory):
    """An environment with the wheel, and torch from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = ["--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run([*pip, *install], check=True)
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "torch_from_outside.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    path = str(folder / "bin")
    assert not [c for c in COMPILERS if shutil.which(c, path=path)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ROANN"))}
    return python, env | {"PATH": path, "OMP_NUM_THREADS": "1"}, site


CODE = """
import torch, roann
from roann.kernels import native
torch.manual_seed(0)
print(roann.__file__)
print(native.isa())
for dtype in (torch.float32, torch.float64):
    for filter in ("qr", "permutation", "broad", "rotations"):
        rnn = roann.RoaRNN(3, 40, horizon=50, filter=filter, backend="native", dtype=dtype)
        u = torch.randn(50, 4, 3, dtype=dtype)
        found = torch.autograd.grad(rnn(u)[0].sum(), rnn.weight_hh_l0)[0]
        rnn.backend = "reference"
        wanted = torch.autograd.grad(rnn(u)[0].sum(), rnn.weight_hh_l0)[0]
        torch.testing.assert_close(found, wanted)
    stream = roann.StreamingRoa(rnn)
    torch.testing.assert_close(stream.step(u[0])[0], rnn(u)[0][0])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="manylinux")
@pytest.mark.parametrize("isa", ["", "baseline", "avx2", "avx512"])
def test_the_kernel_runs_where_there_is_no_compiler(empty, isa):
    from roann.kernels.library import ISAS, library

    if isa and ISAS.index(isa) > library().isa:
        pytest.skip(f"this processor has no {isa}")
    python, env, site = empty
    run = [python, "-W", "error", "-c", CODE]
    done = subprocess.run(run, capture_output=True, text=True, env=env | {"ROANN_ISA": isa})
    assert done.returncode == 0, done.stderr
    where, used = done.stdout.split()
    assert Path(where).is_relative_to(site)
    assert used == (isa or ISAS[library().isa])
