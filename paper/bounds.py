"""Bounds and measured spectra without training: one line of a record each.

Do the singular values of the input–output Jacobian lie in the finite-L interval, from ten maps to a
hundred thousand, and where do those of plain networks lie? And how far does W move the eigenvalues
of a step off the circle, for each filter?
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from paper.perturbation import FILTERS, first_order, one_step
from paper.spectra import NETWORKS, spectrum, worst_case
from roann import HypothesisWarning
from roann.info import source
from roann.lab import records
from roann.lab.run import set_up

LENGTHS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
SIZES = (8, 16, 32, 64, 128, 256)


def main(quick: bool, path: Path) -> None:
    """Measure what is not in the record yet; stopped at any time, the next call continues."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = records.read(path, strict=False) if path.exists() else []
    lines = lines or [{"kind": "study", "env": set_up(threads=1, seed=0) | source()}]
    known = {line.get("name") for line in lines}
    path.write_text("".join(map(_line, lines)), encoding="utf-8")  # without a line cut short
    with open(path, "a", encoding="utf-8") as file:
        for name, measure in _cells(quick):
            if name not in known:
                start = time.perf_counter()
                with warnings.catch_warnings():  # short networks break the hypothesis on purpose
                    warnings.simplefilter("ignore", HypothesisWarning)
                    found = {"name": name, **measure()}
                file.write(_line(found | {"seconds": round(time.perf_counter() - start, 2)}))
                file.flush()


def _line(value: dict[str, Any]) -> str:
    return json.dumps(records.plain(value), allow_nan=False, separators=(",", ":")) + "\n"


def _cells(quick: bool) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Every measurement by name: the smallest first, so that something is there soon."""
    for filter in FILTERS:
        yield f"eigenvalues-{filter}", partial(one_step, filter)
    for N in SIZES[: 4 if quick else None]:
        for filter in FILTERS:
            for seed in range(1 if quick else 5):
                yield f"first-order-{filter}-{N}-s{seed}", partial(first_order, filter, N, seed)
    for L in LENGTHS[: 5 if quick else None]:
        yield f"worst-case-{L}", partial(worst_case, L)
        for net in NETWORKS:
            for seed in range(1 if quick or L > 10_000 else 3):
                name = f"{net.label}-{net.setting}-{L}-s{seed}".lower().replace(" ", "-")
                yield name, partial(spectrum, net, L, seed)
