"""MiniRocket of aeon on the same files: a script for a Python that has aeon, and its caller.

aeon wants other versions than roann, so it lives in an environment of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NAME = "MiniRocket"


def run(python: Path, kind: str, files: tuple[Path, Path], seeds: int) -> list[dict[str, Any]]:
    """Score, seconds and parameters for each seed; empty if it cannot read these series."""
    words = [str(python), __file__, kind, *map(str, files), str(seeds)]
    environment = {**os.environ, "PYTHONPATH": "", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or ["no reason given"]
        print(f"benchmarks.real: {NAME}: {said[-1]}", file=sys.stderr)
        return []
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _measure(kind: str, train: str, test: str, seeds: int) -> None:
    import warnings

    warnings.simplefilter("ignore")
    import aeon
    from aeon.classification.convolution_based import MiniRocketClassifier
    from aeon.datasets import load_from_ts_file
    from aeon.regression.convolution_based import MiniRocketRegressor

    make = MiniRocketClassifier if kind == "classify" else MiniRocketRegressor
    X, y = load_from_ts_file(train)
    X_test, y_test = load_from_ts_file(test)
    make(random_state=0).fit(X, y).predict(X_test)  # numba compiles once: not counted
    for seed in range(seeds):
        start = time.perf_counter()
        model = make(random_state=seed).fit(X, y)
        found = model.score(X_test, y_test)
        seconds = time.perf_counter() - start
        last = model.pipeline_[-1]
        count = int(last.coef_.size + getattr(last.intercept_, "size", 1))
        row = {"seed": seed, "score": float(found), "seconds": seconds, "parameters": count}
        print(json.dumps(row | {"chosen": {"aeon": aeon.__version__}}), flush=True)


if __name__ == "__main__":
    _measure(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
