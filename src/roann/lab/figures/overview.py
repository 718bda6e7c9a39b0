"""Two panels in one figure: learning and gradient flow, spectrum and gradient flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from roann.lab.figures.curves import Curve, draw_curves
from roann.lab.figures.spectra import cloud_of, draw_gradients, draw_singular_values, flow_of
from roann.lab.figures.style import drawn, panels


@drawn
def overview(
    arms: Mapping[str, Sequence[Curve]], flows: Mapping[str, Curve], *, ylabel: str, **score: Any
) -> Figure:
    """Scores over training on the left, gradient norms along time on the right.

    Args:
        arms: label → the curves of its seeds.
        flows: label → its gradient norms, see `flow_of`.
        ylabel: name of the score.
        score: how the scores are drawn, see `draw_curves`.
    """
    titles = (f"{ylabel.capitalize()} during training", "Gradient along time, before training")
    figure, (left, right) = panels(titles, width=4.6, height=3.4)
    draw_curves(left, arms, ylabel=ylabel, **score)
    draw_gradients(right, flows)
    return figure


@drawn
def probed(label: str, record: Mapping[str, Any], *, deep: bool = False) -> Figure:
    """What one probe measured: singular values on the left, gradient norms on the right.

    Args:
        label: name of the model.
        record: what `roann.lab.probe` returns, and the ``step`` it was taken at.
        deep: the states are those of layers, not of time steps.

    Returns:
        the figure, of one panel if only one was measured.
    """
    cloud, flow = cloud_of(record, record["step"]), flow_of(record)
    if cloud is None and flow is None:
        raise ValueError("record must hold singular values or gradients, got neither.")
    maps = f" over {record['maps']} {'layers' if deep else 'steps'}" if "maps" in record else ""
    titles = [f"Singular values{maps}"] * (cloud is not None)
    titles += [f"Gradient along {'depth' if deep else 'time'}"] * (flow is not None)
    figure, grid = panels(titles, width=4.6, height=3.4)
    if cloud is not None:
        draw_singular_values(grid[0], {label: [cloud]}, xlabel="training step", xlog=False)
    if flow is not None:
        draw_gradients(grid[-1], {label: flow}, xlabel="layer" if deep else "time step t")
    return figure
