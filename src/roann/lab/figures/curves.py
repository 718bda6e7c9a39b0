"""Learning curves: every seed thin, their median thick, the best point marked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roann.lab.figures.style import (
    INK,
    MUTED,
    PAPER,
    Look,
    drawn,
    legend,
    log_axis,
    looks,
    one_axes,
    percent_axis,
)
from roann.lab.figures.text import label_text, number_text

Record = Mapping[str, Any]
Better = Literal["lower", "higher"]
FAR = 100.0
"""Times the trivial score: what is worse than that leaves a logarithmic axis at the top."""


class Curve(NamedTuple):
    """One run's score over training.

    Attributes:
        seed: of the run.
        x: training steps, epochs or seconds, increasing.
        y: the score there.
        diverged: the run ended in a non-finite number after its last point.
    """

    seed: int
    x: list[float]
    y: list[float]
    diverged: bool = False


def curve_of(
    records: Sequence[Record],
    score: str,
    *,
    kind: str = "eval",
    set: str | None = None,
    x: str = "step",
    seed: int = 0,
    diverged: bool = False,
) -> Curve:
    """The curve of one score in the records of a run; records without a finite value are left out.

    Args:
        records: the lines of ``metrics.jsonl``.
        score: name of the value.
        kind: "train" or "eval".
        set: which evaluation set; None takes any.
        x: "step", "epoch" or "seconds".
        seed: of the run.
        diverged: whether the run ended so.
    """
    points: dict[float, float] = {}
    for record in records:
        if record.get("kind") != kind or (set is not None and record.get("set") != set):
            continue
        at, value = record.get(x), record.get(score)
        if _finite(at) and _finite(value):
            # A resumed run may repeat a record: the later one stands.
            points[float(at)] = float(value)  # type: ignore[arg-type]
    order = sorted(points)
    return Curve(seed, order, [points[at] for at in order], diverged)


def _finite(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def thinned(curve: Curve, most: int = 400) -> Curve:
    """At most `most` points, each the median of as many neighbours as needed."""
    count = len(curve.x)
    if count <= most:
        return curve
    block = math.ceil(count / most)
    parts = range(0, count, block)
    return curve._replace(
        x=[curve.x[min(start + block, count) - 1] for start in parts],
        y=[statistics.median(curve.y[start : start + block]) for start in parts],
    )


def median_curve(curves: Sequence[Curve], better: Better) -> tuple[list[float], list[float]]:
    """The median over seeds, at each x where every seed has a score or has diverged.

    A diverged run counts as worst of all from then on: a median of survivors would flatter.
    """
    worst = math.inf if better == "lower" else -math.inf
    tables = [dict(zip(curve.x, curve.y, strict=True)) for curve in curves]
    xs, ys = [], []
    for at in sorted(set().union(*tables)) if tables else []:
        values = [
            table.get(at, worst if curve.diverged and (not curve.x or at > curve.x[-1]) else None)
            for table, curve in zip(tables, curves, strict=True)
        ]
        if None not in values:
            middle = statistics.median(value for value in values if value is not None)
            if math.isfinite(middle):
                xs.append(at)
                ys.append(middle)
    return xs, ys


def best_point(curves: Sequence[Curve], better: Better) -> tuple[int, float, float] | None:
    """(seed, x, y) of the best score of any seed, the earliest of equals; None without points."""
    sign = 1.0 if better == "lower" else -1.0
    points = [
        (sign * y, x, curve.seed) for curve in curves for x, y in zip(curve.x, curve.y, strict=True)
    ]
    if not points:
        return None
    value, x, seed = min(points)
    return seed, x, sign * value


@drawn
def learning_curves(
    arms: Mapping[str, Sequence[Curve]],
    *,
    ylabel: str,
    xlabel: str = "training step",
    better: Better = "lower",
    trivial: float | None = None,
    log: bool = False,
    percent: bool = False,
    best: bool = True,
    title: str | None = None,
) -> Figure:
    """Scores over training, one colour per arm.

    Args:
        arms: label → the curves of its seeds.
        ylabel: name of the score.
        xlabel: name of the x axis.
        better: which way the score should go; decides the median and the star.
        trivial: the score of a model that learned nothing, drawn as a dashed line.
        log: a logarithmic score axis; scores at or below zero are left out there.
        percent: scores are fractions shown in percent.
        best: put a star at the best point of each arm.
        title: above the axes.
    """
    figure, axes = one_axes()
    draw_curves(axes, arms, better=better, log=log, best=best)
    axes.set_xlabel(xlabel)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))
    axes.set_ylabel(label_text(ylabel))
    if title:
        axes.set_title(label_text(title))
    score_axis(axes, trivial, log=log, percent=percent)
    legend(axes)
    return figure


def draw_curves(
    axes: Axes,
    arms: Mapping[str, Sequence[Curve]],
    *,
    better: Better,
    log: bool = False,
    best: bool = True,
    styles: Mapping[str, Look] | None = None,
) -> None:
    """Draw arms into axes: seeds thin, median thick, a star at the best, × where a run diverged."""
    styles = styles or looks(arms)
    for label, curves in arms.items():
        shown = [_positive(curve) for curve in curves] if log else list(curves)
        _draw_arm(axes, label, shown, styles[label], better)
        point = best_point(shown, better) if best else None
        if point is not None:
            _draw_star(axes, point[1], point[2], styles[label])


def _positive(curve: Curve) -> Curve:
    pairs = [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if y > 0]
    return curve._replace(x=[x for x, _ in pairs], y=[y for _, y in pairs])


def _draw_arm(axes: Axes, label: str, curves: Sequence[Curve], look: Look, better: Better) -> None:
    for curve in curves:
        axes.plot(curve.x, curve.y, color=look.color, linewidth=0.8, alpha=0.5)
        if curve.diverged and curve.x:
            axes.plot(
                curve.x[-1], curve.y[-1], color=look.color, marker="x", markersize=7,
                markeredgewidth=1.8, linestyle="none",
            )  # fmt: skip
    xs, ys = median_curve(curves, better)
    count = len(curves)
    text = f"{label_text(label)} ({count} seeds)" if count > 1 else label_text(label)
    axes.plot(
        xs, ys, color=look.color, linestyle=look.dash, marker=look.marker,
        markersize=3.8, markevery=max(1, len(xs) // 8), label=text,
    )  # fmt: skip


def _draw_star(axes: Axes, x: float, y: float, look: Look) -> None:
    axes.plot(
        x, y, marker="*", markersize=11, color=look.color, markeredgecolor=INK,
        markeredgewidth=0.6, linestyle="none", zorder=5,
    )  # fmt: skip


def score_axis(axes: Axes, trivial: float | None, *, log: bool, percent: bool) -> None:
    """Scale and label the axis of a score, once all is drawn, with a line at the trivial score.

    A run that blows up can end at 1e30; on a logarithmic axis it goes out at the top, with a word
    of how far, so that the others can be told apart.
    """
    if percent:
        percent_axis(axes)
    elif log:
        log_axis(axes, "y")
        largest = float(axes.dataLim.y1)
        if trivial is not None and largest > FAR * trivial:
            axes.set_ylim(top=FAR * trivial)
            axes.annotate(
                f"↑ up to {number_text(largest)}", (0.5, 1.0), xycoords="axes fraction",
                xytext=(0, -3), textcoords="offset points", ha="center", va="top", fontsize=7.8,
                color=INK,
            )  # fmt: skip
    _draw_trivial(axes, trivial, percent=percent)


def _draw_trivial(axes: Axes, value: float | None, *, percent: bool) -> None:
    """A dashed line at the score of a model that learned nothing, named at its right end."""
    if value is None:
        return
    axes.axhline(value, color=MUTED, linestyle="--", linewidth=1.1, zorder=1)
    number = f"{100 * value:.4g} %" if percent else number_text(value)
    axes.annotate(
        f"trivial {number}", (1.0, value), xycoords=("axes fraction", "data"), xytext=(-2, 2),
        textcoords="offset points", ha="right", va="bottom", fontsize=7.8, color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.8},
    )  # fmt: skip
