"""Tests again, in a process that is held to one instruction set."""

import os
import subprocess
import sys

import pytest

from roann.kernels import library


def run_held_to(isa, words, file):
    """The tests of a file whose names match `words`; skips what the processor does not have."""
    if library.ISAS.index(isa) > library.library().isa:
        pytest.skip(f"this processor has no {isa}")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", words, file],
        env=os.environ | {"ROANN_ISA": isa},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert " passed" in run.stdout
    assert "skipped" not in run.stdout
