"""Versions, threads and the kernel in use on this machine: `python -m roann.info`."""

from __future__ import annotations

import platform
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import torch

import roann
from roann.kernels import native


def describe() -> dict[str, str]:
    """Versions, threads, and the kernel in use on the CPU; if it is not the native one, why."""
    found = {
        "roann": roann.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
    }
    if native.available():
        return found | {"kernel": f"native ({native.isa()})"}
    reason = f"the native kernel is not used: {native.why_not()}"
    return found | {"kernel": "fused (torch operations)", "reason": reason}


def processor() -> str:
    """The model of the processor; where the system does not say, what Python knows."""
    with suppress(OSError):
        found = re.search(r"^model name.*?:(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        if found:
            return found[1].strip()
    return platform.processor()


def source() -> dict[str, str]:
    """The commit of the code that runs, with a word if files of it were changed since."""
    here = Path(__file__).parent
    commit = _git(here, "rev-parse", "--short=10", "HEAD")
    if commit is None:
        return {}
    changes = _git(here, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return {"commit": f"{commit} with changes" if changes else commit}


def _git(folder: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def text() -> str:
    """`describe()`, one line for each fact."""
    return "\n".join(f"{name:8} {value}" for name, value in describe().items())


if __name__ == "__main__":
    print(text())
