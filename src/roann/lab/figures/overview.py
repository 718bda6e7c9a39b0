"""Learning and gradient flow side by side: the one picture that says why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from roann.lab.figures.curves import Better, Curve, draw_curves, draw_trivial
from roann.lab.figures.spectra import draw_gradients
from roann.lab.figures.style import drawn, legend, panels, percent_axis
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
        trivial: the score of a model that learnt nothing.
        percent: scores are fractions shown in percent.
    """
    figure, (left, right) = panels(2, width=4.6, height=3.4)
    draw_curves(left, arms, better=better)
    draw_trivial(left, trivial, percent=percent)
    left.set_xlabel("training step")
    left.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True, steps=[1, 2, 5, 10]))
    left.set_ylabel(label_text(ylabel))
    left.set_title("What is learnt")
    if percent:
        percent_axis(left)
    legend(left)
    draw_gradients(right, gradients, times=times)
    right.set_title("Gradient along time, before training")
    legend(right)
    return figure
