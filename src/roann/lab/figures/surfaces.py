"""Pictures: what a network answers over the plane, and a digit as a sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from roann.lab.figures.style import INK, MUTED, OKABE_ITO, drawn, panels
from roann.lab.figures.text import label_text

_MOONS = LinearSegmentedColormap.from_list(
    "moons", [OKABE_ITO["blue"], "#f6f5f2", OKABE_ITO["vermillion"]]
)
_ROWS = 8
"""The paper plots the 784 pixels of a digit in 8 rows."""


class Surface(NamedTuple):
    """A network's answers over a window of the plane.

    Attributes:
        extent: x₁ from, x₁ to, x₂ from, x₂ to.
        values: rows of answers; the first row is the lowest x₂, the first column the lowest x₁.
        points: [x₁, x₂, label] of the training points, labels −1 and 1.
    """

    extent: tuple[float, float, float, float]
    values: Sequence[Sequence[float]]
    points: Sequence[Sequence[float]] = ()


@drawn
def decision_surfaces(surfaces: Mapping[str, Surface], *, title: str | None = None) -> Figure:
    """Answers between −1 and 1 as colour, the boundary (answer 0) as a line, the points as dots."""
    figure, grid = panels(surfaces, width=4.8 if len(surfaces) == 1 else 3.5, height=3.0)
    figure.set_dpi(200)
    image = None
    for axes, surface in zip(grid, surfaces.values(), strict=True):
        values = np.asarray(surface.values, dtype=float)
        image = axes.imshow(
            values, extent=surface.extent, origin="lower", cmap=_MOONS, vmin=-1, vmax=1,
            interpolation="bilinear", aspect="auto",
        )  # fmt: skip
        if values.min() < 0 < values.max():
            axes.contour(
                values, levels=[0.0], extent=surface.extent, origin="lower", colors=[INK],
                linewidths=1.2,
            )  # fmt: skip
        for sign, marker, size in ((-1, "o", 1.6), (1, "^", 1.9)):
            side = [p for p in surface.points if np.sign(p[2]) == sign]
            # A thousand markers as vectors would be most of the page: they go in as pixels.
            axes.plot(
                [p[0] for p in side], [p[1] for p in side], linestyle="none", marker=marker,
                markersize=size, color="#111111", alpha=0.7, markeredgewidth=0, rasterized=True,
            )  # fmt: skip
        axes.grid(False)
        axes.set(xlim=surface.extent[:2], ylim=surface.extent[2:])
        axes.set_xlabel("x₁")
    if grid:
        grid[0].set_ylabel("x₂")
    if image is not None:
        bar = figure.colorbar(image, ax=grid, ticks=[-1, 0, 1], fraction=0.03, pad=0.02)
        bar.outline.set_visible(False)
    if title:
        figure.suptitle(label_text(title), x=0.02, ha="left", weight="bold")
    return figure


@drawn
def digit_sequence(image: Sequence[Sequence[float]], permutation: Sequence[int]) -> Figure:
    """A digit, its pixels in reading order, and the same pixels permuted (the paper's Fig. 4).

    Args:
        image: rows of pixels, 0 background to 1 ink.
        permutation: pixel `permutation[t]` is shown at time t.
    """
    pixels = np.asarray(image, dtype=float)
    flat = pixels.reshape(-1)
    order = np.asarray(permutation, dtype=int)
    if sorted(order.tolist()) != list(range(flat.size)):
        raise ValueError(
            f"permutation must hold every index from 0 to {flat.size - 1} once, "
            f"got {order.size} indices."
        )
    figure = Figure(figsize=(6.8, 2.7), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[1, 2.4])
    whole = figure.add_subplot(grid[:, 0])
    whole.imshow(pixels, cmap="gray_r", interpolation="nearest", vmin=0, vmax=1)
    whole.set_title("the digit")
    for row, (name, sequence) in enumerate((("in reading order", flat), ("permuted", flat[order]))):
        axes = figure.add_subplot(grid[row, 1])
        strip = np.pad(sequence, (0, -flat.size % _ROWS)).reshape(_ROWS, -1)
        axes.imshow(strip, cmap="gray_r", interpolation="nearest", aspect="auto", vmin=0, vmax=1)
        for line in range(1, _ROWS):
            axes.axhline(line - 0.5, color=MUTED, linewidth=0.6)
        axes.set_title(f"{name}: {flat.size} time steps in {_ROWS} rows")
    for axes in figure.axes:
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
        axes.spines[:].set_visible(True)
    return figure
