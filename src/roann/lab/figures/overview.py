"""Two pictures side by side: learning and gradient flow, spectrum and gradient flow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roann.lab.figures.curves import Better, Curve, draw_curves, score_axis
from roann.lab.figures.spectra import cloud_of, draw_gradients, draw_singular_values
from roann.lab.figures.style import drawn, legend, panels
from roann.lab.figures.text import label_text


@drawn
def overview(
    arms: Mapping[str, Sequence[Curve]],
    gradients: Mapping[str, Sequence[float]],
    times: Mapping[str, Sequence[float]],
    *,
    ylabel: str,
    better: Better,
    trivial: float | None,
    percent: bool,
) -> Figure:
    """Scores over training on the left, gradient norms along time on the right.

    Args:
        arms: label → the curves of its seeds.
        gradients: label → norms of the loss's gradient with respect to the state.
        times: label → the time steps of those norms.
        ylabel: name of the score.
        better: which way the score should go.
        trivial: the score of a model that learned nothing.
        percent: scores are fractions shown in percent.
    """
    score = label_text(ylabel)
    titles = (
        f"{score[:1].upper()}{score[1:]} during training",
        "Gradient along time, before training",
    )
    figure, (left, right) = panels(titles, width=4.6, height=3.4)
    draw_curves(left, arms, better=better)
    left.set_xlabel("training step")
    left.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))
    left.set_ylabel(score)
    score_axis(left, trivial, log=False, percent=percent)
    legend(left)
    draw_gradients(right, gradients, times=times)
    legend(right)
    return figure


@drawn
def probed(label: str, record: Mapping[str, Any], *, deep: bool = False) -> Figure:
    """What one probe saw: singular values on the left, gradient norms on the right.

    Args:
        label: name of the model.
        record: what `roann.lab.probe` returns, and the ``step`` it was taken at.
        deep: the states are those of layers, not of time steps.

    Returns:
        the figure, of one panel if only one was measured.
    """
    cloud = cloud_of(record, record["step"])
    norms = [math.nan if n is None else float(n) for n in record.get("gradient_by_step", ())]
    if cloud is None and not norms:
        raise ValueError("record must hold singular values or gradients, got neither.")
    maps = f" over {record['maps']} {'layers' if deep else 'steps'}" if "maps" in record else ""
    titles = [f"Singular values{maps}"] * (cloud is not None)
    titles += [f"Gradient along {'depth' if deep else 'time'}"] * bool(norms)
    figure, grid = panels(titles, width=4.6, height=3.4)
    if cloud is not None:
        draw_singular_values(grid[0], {label: [cloud]}, xlabel="training step", xlog=False)
        # Dashes reach from side to side: within the axes it would hide some.
        legend(grid[0], loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
    if norms:
        times = {label: record["gradient_at"]}
        xlabel = "layer" if deep else "time step t"
        draw_gradients(grid[-1], {label: norms}, times=times, xlabel=xlabel)
        legend(grid[-1])
    return figure
