"""The pictures of the findings, from the records alone: `python -m paper tables` draws them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from matplotlib.figure import Figure

from roann.lab.figures.style import drawn, legend, log_axis, looks, panels
from roann.lab.report import Arm

_RATE = re.compile(r"(\w+)-(\d+)-lr-([\d.]+)")
Curves = dict[str, dict[int, dict[float, float]]]
"""Task → length → learning rate → best score of the worst seed."""


def by_rate(arms: Mapping[str, Arm]) -> Curves:
    """The curves of a study whose arms are called task-length-lr-rate."""
    found: Curves = {}
    for match, arm in ((_RATE.fullmatch(name), arm) for name, arm in arms.items()):
        best = [o.best for o in arm.outcomes if o.best is not None]
        if match is not None and best:
            worst = (min if arm.goal.better == "higher" else max)(best)
            found.setdefault(match[1], {}).setdefault(int(match[2]), {})[float(match[3])] = worst
    return found


@drawn
def rates(arms: Mapping[str, Arm]) -> Figure:
    """The best score of the worst seed against the learning rate, a line for each length."""
    tasks = by_rate(arms)
    figure, grid = panels(list(tasks))
    for axes, (task, lengths) in zip(grid, tasks.items(), strict=True):
        for look, (length, points) in zip(
            looks(map(str, lengths)).values(), lengths.items(), strict=True
        ):
            x = sorted(points)
            axes.plot(x, [points[rate] for rate in x], label=f"{length} steps", **look.line(len(x)))
        axes.set_xlabel("learning rate of Adam")
        axes.set_ylabel("mean squared error" if task == "adding" else "recall")
        log_axis(axes, "x")
        if task == "adding":
            log_axis(axes, "y")
        legend(axes)
    return figure
