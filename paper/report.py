"""All records in one HTML page, with figures of the bounds study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paper.collect import Records
from paper.plan import FIGURES
from roann.lab.figures import Cloud, eigenvalues, singular_values
from roann.lab.report import Exhibit, render

_WORDS = {
    "tight": "W is small and ρ = 1, so that the theorem's interval (shaded) is narrow.",
    "paper": "The paper's initialisation and ρ: the interval (outlined) is too wide to be useful, "
    "and the measured spectrum is narrow. Those of plain networks leave it as L grows.",
}
_STEP = (
    "One step with the same W and every filter. A random orthogonal O spreads the "
    "eigenvalues over the circle of radius 1 − α; the identity puts all in one place."
)


def page(records: Records) -> str:
    """The page; figures of the paper on one task stay apart."""
    runs = []
    for figure, settings in FIGURES.items():
        for run in (run for arm in records[figure].values() for run in arm.runs):
            task = {**run.task, "in": settings["title"]}
            runs.append(replace(run, config={**run.config, "task": task}))
    return render(runs, title="The paper's experiments", extra=exhibits(records["bounds"]))


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
        figure = eigenvalues(values, radii=circle)
        made.append(Exhibit("Eigenvalues of one step", _STEP, figure, wide=True))
    return made


def _cloud(line: Mapping[str, Any]) -> Cloud:
    # The interval does not know O: what is drawn for the roaRNN is the eyeRNN's too.
    ends = (line.get("finite") or {}) if line["network"] != "eyeRNN" else {}
    logs = [-math.inf if value is None else float(value) for value in line["sigma"]]
    vacuous = bool(line.get("vacuous", False))
    return Cloud(float(line["maps"]), logs, ends.get("lower"), ends.get("upper"), vacuous)
