"""Figures of the bounds study for the report, from its record alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from roann.lab.figures import Cloud, eigenvalues, singular_values
from roann.lab.report import Exhibit

_WORDS = {
    "tight": "W is small and ρ = 1, so that the theorem's interval (shaded) is narrow.",
    "paper": "The paper's initialisation and ρ: the interval (outlined) is too wide to be useful, "
    "and the measured spectrum is narrow. Those of plain networks leave it as L grows.",
}


def exhibits(study: Sequence[Mapping[str, Any]]) -> list[Exhibit]:
    """Singular values over depth and time, and the eigenvalues of one step with every filter."""
    made = []
    for over, setting in ((over, setting) for over in ("depth", "time") for setting in _WORDS):
        drawn: dict[str, list[Cloud]] = {}
        for line in (line for line in study if line["kind"] == "spectrum" and line["seed"] == 0):
            if (line["over"], line["setting"]) == (over, setting):
                drawn.setdefault(line["network"], []).append(_cloud(line))
        if drawn:
            figure = singular_values(drawn, xlabel="number of maps L")
            title = f"Singular values of L maps over {over}, {setting}"
            made.append(Exhibit(title, _WORDS[setting], figure))
    steps = {line["filter"]: line for line in study if line["kind"] == "eigenvalues"}
    if steps:
        values = {name: line["values"] for name, line in steps.items()}
        circle = {name: 1 - line["alpha"] for name, line in steps.items()}
        words = "One step with the same W and every filter. A random orthogonal O spreads the "
        words += "eigenvalues over the circle of radius 1 − α; the identity puts all in one place."
        figure = eigenvalues(values, radii=circle)
        made.append(Exhibit("Eigenvalues of one step", words, figure, wide=True))
    return made


def _cloud(line: Mapping[str, Any]) -> Cloud:
    # The interval does not know O: what is drawn for the roaRNN is the eyeRNN's too.
    ends = (line.get("finite") or {}) if line["network"] != "eyeRNN" else {}
    logs = [-math.inf if value is None else float(value) for value in line["sigma"]]
    vacuous = bool(line.get("vacuous", False))
    return Cloud(float(line["maps"]), logs, ends.get("lower"), ends.get("upper"), vacuous)
