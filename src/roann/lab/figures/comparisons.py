"""Many arms against each other and against published numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roann.lab.figures.curves import (
    Better,
    Curve,
    draw_curves,
    score_axis,
)
from roann.lab.figures.style import (
    INK,
    MUTED,
    OKABE_ITO,
    Look,
    drawn,
    legend,
    log_axis,
    looks,
    one_axes,
    panels,
    percent_axis,
)
from roann.lab.figures.text import label_text


@drawn
def psmnist_accuracy(
    arms: Mapping[str, Sequence[Curve]],
    *,
    published: Mapping[str, float],
    linear: float,
    title: str | None = None,
) -> Figure:
    """Test accuracy by epoch, the published best as dotted lines, the linear classifier dashed.

    Args:
        arms: label → the curves of its seeds; x epochs, y accuracies between 0 and 1.
        published: label of an arm → the accuracy published for it, drawn in the arm's colour.
        linear: accuracy of a linear softmax on the pixels, which knows no order at all.
        title: above the axes.
    """
    figure, axes = one_axes(width=5.2)
    draw_curves(axes, arms, better="higher")
    axes.axhline(linear, color=MUTED, linestyle="--", linewidth=1.2, zorder=1)
    names = {linear: "linear softmax"}
    for label, look in looks(arms).items():
        if label in published and published[label] not in names:
            axes.axhline(published[label], color=look.color, linestyle=":", linewidth=1.4, zorder=1)
            names[published[label]] = "paper"
    _name_lines(axes, names)
    percent_axis(axes)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlabel("epoch")
    axes.set_ylabel("test accuracy")
    if title:
        axes.set_title(label_text(title))
    legend(axes, loc="lower right")
    return figure


def _name_lines(axes: Axes, names: Mapping[float, str]) -> None:
    """Names at the right margin, moved apart where lines are closer than a line of text."""
    low, high = axes.get_ylim()
    gap = 0.055 * (high - low)
    at = -math.inf
    for value in sorted(names):
        at = max(value, at + gap)
        axes.annotate(
            f"{names[value]} {100 * value:.2f} %", (1.0, value), (1.015, at),
            xycoords=("axes fraction", "data"), textcoords=("axes fraction", "data"),
            va="center", fontsize=7.8, color=INK, annotation_clip=False,
        )  # fmt: skip


class Panel(NamedTuple):
    """One task of an ablation: its arms, how its score is named and which way it should go."""

    arms: Mapping[str, Sequence[Curve]]
    ylabel: str
    better: Better = "lower"
    xlabel: str = "training step"
    trivial: float | None = None
    log: bool = False
    percent: bool = False


@drawn
def ablation_panels(tasks: Mapping[str, Panel]) -> Figure:
    """One panel per task, the same arms in the same colours in all (the paper's Fig. 6)."""
    figure, grid = panels(tasks, width=3.9, height=3.5)
    every = list(dict.fromkeys(label for panel in tasks.values() for label in panel.arms))
    styles = looks(every)
    for axes, panel in zip(grid, tasks.values(), strict=True):
        draw_curves(axes, panel.arms, better=panel.better, log=panel.log, styles=styles)
        score_axis(axes, panel.trivial, log=panel.log, percent=panel.percent)
        axes.set_xlabel(panel.xlabel)
        axes.set_ylabel(label_text(panel.ylabel))
    handles = [
        grid[0].plot([], [], color=look.color, linestyle=look.dash, marker=look.marker,
                     markersize=4)[0]
        for look in styles.values()
    ]  # fmt: skip
    figure.legend(
        handles, [label_text(name) for name in every], loc="outside lower center",
        ncols=min(6, max(1, len(every))), frameon=False,
    )  # fmt: skip
    return figure


class RhoPoint(NamedTuple):
    """The final score of one run of the ρ grid; None if it diverged."""

    rho: float
    seed: int
    score: float | None


@drawn
def score_against_rho(
    arms: Mapping[str, Sequence[RhoPoint]],
    *,
    ylabel: str,
    trivial: float | None = None,
    log: bool = False,
    percent: bool = False,
    marked: float | None = None,
    title: str | None = None,
) -> Figure:
    """Final score against ρ: every seed a small mark, the median of finished seeds a line.

    Args:
        arms: label → its runs.
        ylabel: name of the score.
        trivial: the score of a model that learned nothing.
        log: a logarithmic score axis.
        percent: scores are fractions shown in percent.
        marked: the paper's ρ, drawn as a vertical line.
        title: above the axes.
    """
    figure, axes = one_axes()
    for label, look in looks(arms).items():
        _draw_rho_arm(axes, label_text(label), arms[label], look)
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
    if title:
        axes.set_title(label_text(title))
    legend(axes)
    return figure


def _draw_rho_arm(axes: Axes, name: str, points: Sequence[RhoPoint], look: Look) -> None:
    scores: dict[float, list[float]] = {}
    for point in points:
        if point.score is not None:
            scores.setdefault(point.rho, []).append(point.score)
    grid = sorted(scores)
    axes.plot(
        [rho for rho in grid for _ in scores[rho]], [s for rho in grid for s in scores[rho]],
        linestyle="none", marker=look.marker, markersize=4, color=look.color, alpha=0.45,
        markeredgewidth=0,
    )  # fmt: skip
    axes.plot(
        grid, [statistics.median(scores[rho]) for rho in grid], color=look.color,
        linestyle=look.dash, marker=look.marker, markersize=5, label=name,
    )  # fmt: skip
    lost = sorted(point.rho for point in points if point.score is None)
    if lost:
        axes.plot(
            lost, [0.03] * len(lost), transform=axes.get_xaxis_transform(), linestyle="none",
            marker="x", markersize=7, markeredgewidth=1.8, color=look.color,
            label=f"{name}: diverged",
        )  # fmt: skip


class Timing(NamedTuple):
    """Seconds of ours and of another for the same work."""

    label: str
    ours: float
    other: float


@drawn
def bench_ratios(
    timings: Sequence[Timing], *, other: str = "plain torch", title: str | None = None
) -> Figure:
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
    log_axis(axes, "x")
    axes.set_xlim(min([0.8, *(0.8 * r for r in ratios)]), max([2.0, *(1.5 * r for r in ratios)]))
    log_axis(axes, "x")
    axes.set_yticks(places, [label_text(timing.label) for timing in timings])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(f"times faster than {label_text(other)}")
    if title:
        axes.set_title(label_text(title))
    return figure
