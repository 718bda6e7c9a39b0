"""Many runs in one figure: scores against ρ, and timings against another library's."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from roann.lab.figures.curves import score_axis
from roann.lab.figures.style import (
    INK,
    OKABE_ITO,
    alone,
    drawn,
    legend,
    log_axis,
    looks,
    one_axes,
)
from roann.lab.figures.text import label_text


class RhoPoint(NamedTuple):
    """The final score of one run at a value of ρ; None if it diverged."""

    rho: float
    score: float | None


def draw_against_rho(
    axes: Axes,
    label: str,
    points: Sequence[RhoPoint],
    *,
    ylabel: str,
    trivial: float | None = None,
    log: bool = False,
    percent: bool = False,
    marked: float | None = None,
) -> None:
    """Draw final scores against ρ: every run a small mark, the median of finished runs a line.

    Args:
        axes: where to draw.
        label: name of the model.
        points: its runs.
        ylabel: name of the score.
        trivial: the score of a model that learned nothing.
        log: a logarithmic score axis.
        percent: scores are fractions shown in percent.
        marked: the paper's ρ, drawn as a vertical line.
    """
    name, look = label_text(label), looks([label])[label]
    scores: dict[float, list[float]] = {}
    for point in sorted(points, key=lambda point: point.rho):
        if point.score is not None:
            scores.setdefault(point.rho, []).append(point.score)
    axes.plot(
        [rho for rho in scores for _ in scores[rho]], [s for row in scores.values() for s in row],
        linestyle="none", marker=look.marker, markersize=4, color=look.color, alpha=0.45,
        markeredgewidth=0,
    )  # fmt: skip
    axes.plot(
        list(scores), [statistics.median(row) for row in scores.values()], color=look.color,
        linestyle=look.dash, marker=look.marker, markersize=5, label=name,
    )  # fmt: skip
    diverged = sorted(point.rho for point in points if point.score is None)
    if diverged:
        axes.plot(
            diverged, [0.03] * len(diverged), transform=axes.get_xaxis_transform(),
            linestyle="none", marker="x", markersize=7, markeredgewidth=1.8, color=look.color,
            label=f"{name}: diverged",
        )  # fmt: skip
    if marked is not None:
        axes.axvline(marked, color=INK, linestyle=":", linewidth=1.1)
        axes.annotate(
            f"the paper's ρ = {marked:.3g}", (marked, 0.98), xycoords=("data", "axes fraction"),
            xytext=(-3, 0), textcoords="offset points", ha="right", va="top", rotation=90,
            fontsize=7.8, color=INK,
        )  # fmt: skip
    log_axis(axes, "x")
    score_axis(axes, trivial, log=log, percent=percent)
    axes.set_xlabel("ρ")
    axes.set_ylabel(label_text(ylabel))
    legend(axes)


score_against_rho = alone(draw_against_rho)


class Timing(NamedTuple):
    """Seconds of ours and of another for the same work."""

    label: str
    ours: float
    other: float


@drawn
def bench_ratios(timings: Sequence[Timing], *, other: str = "plain torch", title: str) -> Figure:
    """How many times faster than `other`: bars right of 1 are faster, hatched ones are slower."""
    figure, axes = one_axes(height=max(1.6, 0.8 + 0.32 * len(timings)))
    ratios = [timing.other / timing.ours for timing in timings]
    places = list(range(len(timings)))
    for place, ratio in zip(places, ratios, strict=True):
        faster = ratio >= 1
        axes.barh(
            place, ratio - 1, left=1.0, height=0.62,
            color=OKABE_ITO["green" if faster else "orange"],
            hatch=None if faster else "///", edgecolor=INK, linewidth=0.5,
        )  # fmt: skip
        axes.annotate(
            f"{ratio:.3g}×", (max(ratio, 1.0), place), xytext=(4, 0), textcoords="offset points",
            va="center", fontsize=8.5,
        )  # fmt: skip
    axes.axvline(1.0, color=INK, linewidth=1.0)
    axes.set_xlim(min([0.8, *(0.8 * r for r in ratios)]), max([2.0, *(1.5 * r for r in ratios)]))
    log_axis(axes, "x")
    axes.set_yticks(places, [label_text(timing.label) for timing in timings])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"times faster than {label_text(other)}")
    axes.set_title(label_text(title))
    return figure
