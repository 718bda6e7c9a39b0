"""What the processor can do at most: multiply-adds that need no memory (`peak.c`).

`torch.mm` is a limit that software reaches, and MKL does not reach that of every processor.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).with_name("peak.c")
# For this machine alone; chains stay in registers only where the loops over them are unrolled.
FLAGS = ("-O3", "-march=native", "-ffp-contract=fast", "-funroll-loops", "-shared", "-fPIC")
ROUNDS = 5_000_000  # of all chains in one thread: some milliseconds


@functools.cache
def library() -> ctypes.CDLL | None:
    """`peak.c`, compiled for this machine; None where there is no compiler."""
    with tempfile.TemporaryDirectory() as room:
        made = Path(room, "peak.so")
        words = [os.environ.get("CC", "cc"), *FLAGS, "-o", str(made), str(SOURCE)]
        try:
            subprocess.run(words, check=True, stderr=subprocess.DEVNULL)
        except (OSError, subprocess.CalledProcessError):
            return None
        found = ctypes.CDLL(str(made))
    found.roann_peak.argtypes, found.roann_peak.restype = [ctypes.c_int64], ctypes.c_float
    found.roann_peak_operations.restype = ctypes.c_int64
    return found


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """The threads that all races share."""
    return ThreadPoolExecutor(threads)


def peak(threads: int, rounds: int = ROUNDS) -> tuple[Callable[[], object], int] | None:
    """A call on so many threads at once, and its number of operations; None without a compiler."""
    found = library()
    if found is None:
        return None

    def run() -> list[float]:
        return list(_pool(threads).map(found.roann_peak, [rounds] * threads))

    return run, threads * rounds * found.roann_peak_operations()
