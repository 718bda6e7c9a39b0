"""Measure speed and memory: `python -m benchmarks`.

One run; contenders take turns, and the best of n rounds counts; the same threads and flushed
denormals for everyone; warm-up apart. It needs torch alone; what else is absent is said.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark's command line; returns its exit code."""
    # Late, so that the fresh processes that measure memory load nothing they do not need.
    from benchmarks.command import run

    return run(argv)
