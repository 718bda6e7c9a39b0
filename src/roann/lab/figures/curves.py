"""Scores over training and against ρ: every seed thin, their median thick, the best marked."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from roann.lab.figures.style import (
    INK,
    MUTED,
    PAPER,
    Look,
    alone,
    label_text,
    legend,
    log_axis,
    looks,
    number_text,
    whole_steps,
)
from roann.lab.records import is_number

Better = Literal["lower", "higher"]
FAR = 100.0  # times the trivial score: what is worse leaves a logarithmic axis at the top


class Curve(NamedTuple):
    """One run's score over training."""

    seed: int
    x: list[float]  # training steps, epochs or seconds, increasing
    y: list[float]  # the score there
    diverged: bool = False  # the run ended in a non-finite number after its last point


def curve_of(
    records: Sequence[Mapping[str, Any]],
    score: str,
    *,
    kind: str = "eval",
    set: str | None = None,
    x: str = "step",
    seed: int = 0,
    diverged: bool = False,
) -> Curve:
    """The curve of one score in the records of a run; records without a finite value are left out.

    `x` is "step", "epoch" or "seconds"; without `set` any evaluation set is taken.
    """
    points: dict[float, float] = {}
    for record in records:
        if record.get("kind") != kind or (set is not None and record.get("set") != set):
            continue
        at, value = record.get(x), record.get(score)
        if is_number(at) and is_number(value):
            points[float(at)] = float(value)  # a resumed run may repeat a record: the last counts
    order = sorted(points)
    return Curve(seed, order, [points[at] for at in order], diverged)


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

    From then on a diverged run counts as the worst: a median of survivors would flatter.
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


def best_point(curves: Sequence[Curve], better: Better) -> tuple[float, float] | None:
    """(x, y) of the best score of any seed, the earliest of equals; None without points."""
    sign = 1.0 if better == "lower" else -1.0
    points = [(sign * y, x) for curve in curves for x, y in zip(curve.x, curve.y, strict=True)]
    if not points:
        return None
    value, x = min(points)
    return x, sign * value


def draw_curves(
    axes: Axes,
    arms: Mapping[str, Sequence[Curve]],
    *,
    ylabel: str,
    xlabel: str = "training step",
    better: Better = "lower",
    trivial: float | None = None,
    trivial_name: str = "trivial",
    log: bool = False,
    percent: bool = False,
    best: bool = True,
) -> None:
    """Draw scores over training: one colour per arm, × where a run diverged.

    Args:
        axes: where to draw.
        arms: label → the curves of its seeds.
        ylabel, xlabel: names of the axes.
        better: which way the score should go; decides the median and the star.
        trivial, trivial_name: the score of a model that learned nothing, a dashed line.
        log: a logarithmic score axis; scores at or below zero are left out there.
        percent: scores are fractions shown in percent.
        best: put a star at the best point of each arm.
    """
    for label, look in looks(arms).items():
        shown = [_positive(curve) for curve in arms[label]] if log else arms[label]
        _draw_arm(axes, label, shown, look, better)
        if best and (point := best_point(shown, better)) is not None:
            axes.plot(
                *point, marker="*", markersize=11, color=look.color, markeredgecolor=INK,
                markeredgewidth=0.6, linestyle="none", zorder=5,
            )  # fmt: skip
    axes.set_xlabel(xlabel)
    whole_steps(axes)
    axes.set_ylabel(label_text(ylabel))
    score_axis(axes, trivial, trivial_name, log=log, percent=percent)
    legend(axes)


learning_curves = alone(draw_curves)


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
    text = label_text(label) + (f" ({len(curves)} seeds)" if len(curves) > 1 else "")
    axes.plot(xs, ys, label=text, **look.line(len(xs)))


def score_axis(
    axes: Axes, trivial: float | None, name: str = "trivial", *, log: bool, percent: bool
) -> None:
    """Scale and label the axis of a score, once all is drawn, with a line at the trivial score.

    A run that blows up can end at 1e30. On a logarithmic axis it leaves at the top, with a note of
    how far, so that the others can be distinguished.
    """
    if percent:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.6g} %"))
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
    if trivial is None:
        return
    axes.axhline(trivial, color=MUTED, linestyle="--", linewidth=1.1, zorder=1)
    number = f"{100 * trivial:.4g} %" if percent else number_text(trivial)
    axes.annotate(
        f"{name} {number}", (1.0, trivial), xycoords=("axes fraction", "data"), xytext=(-2, 2),
        textcoords="offset points", ha="right", va="bottom", fontsize=7.8, color=INK,
        bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.7, "pad": 0.8},
    )  # fmt: skip


def draw_against_rho(
    axes: Axes,
    label: str,
    points: Sequence[tuple[float, float | None]],
    *,
    ylabel: str,
    trivial: float | None = None,
    log: bool = False,
    percent: bool = False,
    marked: float | None = None,
) -> None:
    """Draw final scores against ρ: every run a small mark, the median of finished runs a line.

    `points` are ρ and the final score of each run, None if it diverged; `marked` is the paper's ρ;
    the others are as in `draw_curves`.
    """
    name, look = label_text(label), looks([label])[label]
    scores: dict[float, list[float]] = {}
    for rho, score in sorted(points, key=lambda point: point[0]):
        if score is not None:
            scores.setdefault(rho, []).append(score)
    axes.plot(
        [rho for rho in scores for _ in scores[rho]], [s for row in scores.values() for s in row],
        linestyle="none", marker=look.marker, markersize=4, color=look.color, alpha=0.45,
        markeredgewidth=0,
    )  # fmt: skip
    axes.plot(
        list(scores), [statistics.median(row) for row in scores.values()], color=look.color,
        linestyle=look.dash, marker=look.marker, markersize=5, label=name,
    )  # fmt: skip
    diverged = sorted(rho for rho, score in points if score is None)
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
