"""The machine: set up the same for everyone, and described without date or name."""

from __future__ import annotations

import os
import platform
import re
from typing import Any

import torch

from roann import __version__
from roann.info import processor, source
from roann.kernels import native, workspace


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def slug(cpu: str) -> str:
    """The name of a processor as a part of a file's name."""
    words = re.sub(r"\(r\)|\(tm\)", "", cpu.lower())
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-") or "unknown"


def set_up(threads: int) -> None:
    """So many threads, and no denormals, for everyone."""
    # Before the first parallel work: threads take this setting from the one that starts them.
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)


def describe() -> dict[str, Any]:
    """The processor, the software, and the kernel in use."""
    denormals = torch.full((1 << 22,), torch.finfo(torch.float32).tiny) * 0.5  # by every thread
    return {
        "cpu": " ".join(processor().split()) or "unknown",
        "cores": cores(),
        "memory_bytes": workspace.machine_memory(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mkl": torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]
        "roann": __version__,
        **source(),
        "kernel": "native" if native.available() else "fused",
        "isa": native.isa() if native.available() else None,
        "why_not_native": native.why_not() or None,
        "flushes_denormals": not bool(denormals.any()),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }
