"""What a network answers over the plane."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from roann.lab.figures.style import INK, OKABE_ITO, drawn, panels

_MOONS = LinearSegmentedColormap.from_list(
    "moons", [OKABE_ITO["blue"], "#f6f5f2", OKABE_ITO["vermillion"]]
)


class Surface(NamedTuple):
    """A network's answers over a window of the plane."""

    extent: tuple[float, float, float, float]  # x₁ from, x₁ to, x₂ from, x₂ to
    values: Sequence[Sequence[float]]  # the first row is the lowest x₂, the first column x₁
    points: Sequence[Sequence[float]] = ()  # [x₁, x₂, label −1 or 1] of the training points


@drawn
def decision_surfaces(surfaces: Mapping[str, Surface]) -> Figure:
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
    return figure
