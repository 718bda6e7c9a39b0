"""The figures of the bounds study, from its record alone."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roann.lab import records
from roann.lab.figures import Cloud, Curve, eigenvalues, learning_curves, singular_values
from roann.lab.report import Exhibit

Lines = Sequence[Mapping[str, Any]]


def read_study(path: Path) -> list[dict[str, Any]]:
    """The lines of the study's record; none if there is no such file."""
    return records.read(path) if path.is_file() else []


def bounds_exhibits(lines: Lines) -> list[Exhibit]:
    """Every figure the lines are enough for."""
    made = [_clouds(lines, over, setting) for over in ("depth", "time") for setting in _WORDS]
    made += [_annulus(lines), _first_order(lines)]
    return [exhibit for exhibit in made if exhibit is not None]


def of_kind(lines: Lines, kind: str) -> list[Mapping[str, Any]]:
    """The lines of one kind."""
    return [line for line in lines if line["kind"] == kind]


def logs(line: Mapping[str, Any]) -> list[float]:
    """ln σ of a line; JSON has no −∞, and says null."""
    return [-math.inf if value is None else float(value) for value in line["sigma"]]


_WORDS = {
    "tight": "W drawn from N(0, 1/N) and ρ = 1, so that the interval of the theorem (shaded) says "
    "something: every singular value lies in it, and far inside.",
    "paper": "The paper's initialisation and ρ: the interval (outlined) holds, but is so wide that "
    "it says nothing; the measured spectrum is narrow all the same. Those of plain networks of the "
    "same width leave it as L grows.",
}


def _clouds(lines: Lines, over: str, setting: str) -> Exhibit | None:
    found = [
        line
        for line in of_kind(lines, "spectrum")
        if line["over"] == over and line["seed"] == 0 and line["setting"] == setting
    ]
    if not found:
        return None
    drawn: dict[str, list[Cloud]] = {}
    for line in found:
        drawn.setdefault(line["network"], []).append(_cloud(line))
    return Exhibit(
        f"Bounds over {over}, {'a small W' if setting == 'tight' else 'the paper’s W'}",
        f"Logarithms of the singular values of the Jacobian of L maps, over {over}. "
        + _WORDS[setting],
        singular_values(drawn, xlabel="number of maps L"),
    )


def _cloud(line: Mapping[str, Any]) -> Cloud:
    # The interval does not know O: what is drawn for the roaRNN is the eyeRNN's too.
    interval = (line.get("finite") or {}) if line["network"] != "eyeRNN" else {}
    return Cloud(
        float(line["maps"]),
        logs(line),
        interval.get("lower"),
        interval.get("upper"),
        bool(line.get("vacuous", False)),
    )


def _annulus(lines: Lines) -> Exhibit | None:
    found = of_kind(lines, "eigenvalues")
    if not found:
        return None
    alpha, N = found[0]["alpha"], found[0]["width"]
    return Exhibit(
        "The annulus and the cluster",
        f"Eigenvalues of one step with the same W and every filter (N = {N}, α = {alpha:g}). A "
        "random orthogonal O spreads them over the circle of radius 1 − α (dotted), where W moves "
        "each a little; the identity puts all in one place, where W moves them with all its norm.",
        eigenvalues(
            {line["filter"]: line["values"] for line in found},
            radii={line["filter"]: 1 - alpha for line in found},
        ),
        wide=True,
    )


def _first_order(lines: Lines) -> Exhibit | None:
    found = of_kind(lines, "first-order")
    if not found:
        return None
    drawn: dict[str, list[Curve]] = {}
    for name in dict.fromkeys(line["filter"] for line in found):
        mine = [line for line in found if line["filter"] == name]
        for seed in sorted({line["seed"] for line in mine}):
            points = sorted((line["width"], line["moved"]) for line in mine if line["seed"] == seed)
            curve = Curve(seed, [float(N) for N, _ in points], [moved for _, moved in points])
            drawn.setdefault(name, []).append(curve)
    return Exhibit(
        "How far W moves an eigenvalue off the circle",
        "The largest distance of an eigenvalue of (1 − α) O + α W from the circle of radius 1 − α, "
        "in units of α, against the width N; thin lines are seeds. With the identity it grows like "
        "√N, the size of W; with eigenvalues spread over the circle it stays near the size of a "
        "single number, for to first order only the diagonal of W in the eigenbasis of O acts.",
        learning_curves(
            drawn,
            ylabel="distance from the circle / α",
            xlabel="width N",
            log=True,
            best=False,
        ),
    )


def growth(lines: Lines, filter: str) -> float | None:
    """The exponent p of a fit `moved` ~ N^p over the widths of the study, medians over seeds."""
    by_width: dict[int, list[float]] = {}
    for line in of_kind(lines, "first-order"):
        if line["filter"] == filter:
            by_width.setdefault(line["width"], []).append(line["moved"])
    if len(by_width) < 2:
        return None
    x = [math.log(N) for N in by_width]
    y = [math.log(statistics.median(values)) for values in by_width.values()]
    return statistics.linear_regression(x, y).slope
