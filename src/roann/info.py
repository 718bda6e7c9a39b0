"""What this machine offers to the scan: `python -m roann.info`."""

from __future__ import annotations

import platform

import torch

import roann
from roann.kernels import native


def describe() -> dict[str, str]:
    """Versions, threads, and the kernel in use; if it is not the native one, why."""
    if native.available():
        kernel, reason = f"native ({native.isa()})", ""
    else:
        kernel, reason = (
            "fused (torch operations)",
            f"the native kernel is not used: {native.why_not()}",
        )
    found = {
        "roann": roann.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "kernel": kernel,
    }
    return found | {"reason": reason} if reason else found


def main() -> None:
    """Print `describe()`, one line for each fact."""
    for name, value in describe().items():
        print(f"{name:8}{value}")


if __name__ == "__main__":
    main()
