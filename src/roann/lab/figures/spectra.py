"""What the Jacobians do: singular values inside the theorems' interval, eigenvalues, gradients."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from matplotlib.ticker import FuncFormatter, MultipleLocator

from roann.lab.figures.curves import Curve
from roann.lab.figures.style import (
    INK,
    MUTED,
    Look,
    alone,
    drawn,
    label_text,
    legend,
    legend_below,
    log_axis,
    looks,
    one_axes,
    panels,
    tick,
    whole_steps,
)

_WIDE = 30.0  # |ln σ| beyond this needs a symmetric logarithmic axis to show roa networks at all
_FEW_ARMS = 3  # whose intervals have a line each in the legend
_MANY_DOTS = 2000
_DECADE = 10.0
_MOST_STEPS = 12  # that have a label on the axis
_NAME = 20  # letters of a name on a line, where names stand upright


class Cloud(NamedTuple):
    """The singular values of one input–output Jacobian, and the interval a theorem puts them in."""

    x: float  # the training step
    log_sigma: Sequence[float]  # natural logarithms, −∞ for those that are exactly 0
    lower: float | None = None  # natural logarithms of its ends; None where nothing is claimed
    upper: float | None = None
    vacuous: bool = False  # the interval holds but is too wide to be useful
    extremes_only: bool = False  # of `log_sigma`: the largest and the smallest


def cloud_of(record: Mapping[str, Any], x: float) -> Cloud | None:
    """What a probe saw, at `x`; None if it has no singular value."""
    extremes_only = "sigma_max" in record
    values = [record["sigma_max"], record["sigma_min"]] if extremes_only else record.get("sigma")
    if not values:
        return None
    bound = record.get("bound") or {}
    lower, upper = bound.get("lower"), bound.get("upper")
    return Cloud(
        x,
        # JSON has no −∞: a null is the logarithm of a singular value that is exactly 0.
        [-math.inf if s is None else float(s) for s in values],
        None if lower is None else float(lower),
        None if upper is None else float(upper),
        bool(bound.get("vacuous", False)),
        extremes_only,
    )


@drawn
def spectra_side_by_side(arms: Mapping[str, Sequence[Cloud]]) -> Figure:
    """The first and the last cloud of each of many arms, each arm in a column of its own."""
    sides: dict[str, list[Cloud]] = {"first probe": [], "last probe": []}
    for place, clouds in enumerate(arms.values()):
        ordered = sorted(clouds, key=lambda cloud: cloud.x)
        for side, cloud in zip(sides.values(), ordered[:1] + ordered[1:][-1:], strict=False):
            side.append(cloud._replace(x=place))
    figure, axes = one_axes(width=max(8.4, 1.2 + 0.3 * len(arms)), height=4.2)
    shown = {name: side for name, side in sides.items() if side}
    draw_singular_values(axes, shown, xlabel="", one=False)
    names = [textwrap.fill(label_text(label), _NAME) for label in arms]
    axes.set_xticks(range(len(arms)), names, rotation=90)
    return figure


def draw_singular_values(
    axes: Axes,
    arms: Mapping[str, Sequence[Cloud]],
    *,
    xlabel: str = "training step",
    one: bool = True,
) -> None:
    """Draw clouds of ln σ, one dash per singular value, with the theorem's interval behind them.

    The interval is filled, or only outlined where it is vacuous. The axis is linear around
    ln σ = 0, where gradients neither vanish nor explode; if any value is far away it is
    logarithmic beyond ±1. Where only the extremes were measured they are markers. Every place on
    the x axis has the same room, because a training is probed often at first and rarely later. If
    the clouds of an arm are of `one` network, their intervals are joined.
    """
    axes.axhline(0.0, color=INK, linewidth=0.9, zorder=1)
    styles = looks(arms)
    arms = _evenly(axes, arms)
    pitch = min(0.4, 0.8 / max(1, len(arms)))  # arms are drawn next to each other
    half = 0.44 * pitch
    for place, (label, clouds) in enumerate(arms.items()):
        aside = pitch * (place - (len(arms) - 1) / 2)
        ordered = sorted(clouds, key=lambda cloud: cloud.x)
        # With many arms an interval has its arm's colour, but not a line in the legend for each.
        owner = f"{label_text(label)}: " if len(arms) <= _FEW_ARMS else ""
        for joined in [ordered] if one else [[cloud] for cloud in ordered]:
            _draw_interval(axes, owner, joined, styles[label], aside, half)
        _draw_clouds(axes, label, ordered, styles[label], aside, half)
    every = [cloud for clouds in arms.values() for cloud in clouds]
    heights = [s for c in every for s in (*c.log_sigma, c.lower, c.upper) if s is not None]
    if any(_WIDE < abs(s) < math.inf for s in heights):
        axes.set_yscale("symlog", linthresh=1.0)
        axes.yaxis.set_major_formatter(FuncFormatter(tick))
    axes.set_xlabel(xlabel)
    axes.set_ylabel("ln σ of the Jacobian")
    legend_below(axes)  # clouds and intervals fill the axes


singular_values = alone(draw_singular_values)


def _finite(cloud: Cloud) -> list[float]:
    return [s for s in cloud.log_sigma if math.isfinite(s)]


def _evenly(axes: Axes, arms: Mapping[str, Sequence[Cloud]]) -> dict[str, list[Cloud]]:
    """The clouds at 0, 1, 2, … in order, on an axis whose labels are their x."""
    every = sorted({cloud.x for clouds in arms.values() for cloud in clouds})
    places = {x: place for place, x in enumerate(every)}
    some = every[:: math.ceil(len(every) / _MOST_STEPS)] if every else []
    axes.set_xticks([places[x] for x in some], [f"{x:,g}" for x in some])
    axes.set_xlim(-0.5, max(len(every), 1) - 0.5)
    return {
        label: [cloud._replace(x=places[cloud.x]) for cloud in clouds]
        for label, clouds in arms.items()
    }


def _draw_interval(
    axes: Axes, owner: str, clouds: Sequence[Cloud], look: Look, aside: float, half: float
) -> None:
    bounded = [c for c in clouds if c.upper is not None and math.isfinite(c.upper)]
    if not bounded:
        return
    if len(bounded) == 1:  # a single place has no width that could be filled
        middle = bounded[0].x + aside
        bounded = [bounded[0]._replace(x=end) for end in (middle - half, middle + half)]
    xs = [c.x for c in bounded]
    upper = [float(c.upper) for c in bounded if c.upper is not None]
    # Where nothing is claimed from below there is no lower end to draw, and nothing to fill.
    lower = [
        c.lower if c.lower is not None and math.isfinite(c.lower) else math.nan for c in bounded
    ]
    firm = [not c.vacuous and not math.isnan(low) for c, low in zip(bounded, lower, strict=True)]
    if any(firm):
        axes.fill_between(
            xs, lower, upper, where=firm, color=look.color, alpha=0.16, linewidth=0,
            label=f"{owner}interval",
        )  # fmt: skip
    for ends in (lower, upper):
        axes.plot(xs, ends, color=look.color, linewidth=0.9, linestyle=(0, (3, 2)), marker="_")
    if not all(firm):
        axes.plot(
            [], [], color=look.color, linewidth=0.9, linestyle=(0, (3, 2)),
            label=f"{owner}interval, outlined",
        )  # fmt: skip


def _draw_clouds(
    axes: Axes, label: str, clouds: Sequence[Cloud], look: Look, aside: float, half: float
) -> None:
    """All dashes of an arm as one path: thousands of singular values stay a small file."""
    whole = [cloud for cloud in clouds if not cloud.extremes_only]
    extremes = [cloud for cloud in clouds if cloud.extremes_only]
    if whole:
        dashes = [(cloud.x + aside, s) for cloud in whole for s in _finite(cloud)]
        axes.plot(
            [end for x, _ in dashes for end in (x - half, x + half, math.nan)],
            [end for _, s in dashes for end in (s, s, math.nan)],
            color=look.color, linewidth=0.9, label=label_text(label) + _zeros_text(whole), zorder=3,
        )  # fmt: skip
    if extremes:
        points = [(cloud.x + aside, s) for cloud in extremes for s in _finite(cloud)]
        axes.plot(
            [x for x, _ in points], [s for _, s in points], color=look.color, linestyle="none",
            marker=look.marker, markersize=4.5, zorder=3,
            label=f"{label_text(label)}, extremes only{_zeros_text(extremes)}",
        )  # fmt: skip
    bottom = [cloud.x + aside for cloud in clouds if not _finite(cloud)]
    if bottom:  # all values are 0, which no logarithmic axis shows: an arrow at the bottom
        axes.plot(
            bottom, [0.03] * len(bottom), transform=axes.get_xaxis_transform(), color=look.color,
            linestyle="none", marker="v", markersize=6, zorder=3,
        )  # fmt: skip


def _zeros_text(clouds: Sequence[Cloud]) -> str:
    """How many values are exactly zero, and so cannot be drawn."""
    values = [s for cloud in clouds for s in cloud.log_sigma]
    zeros = sum(s == -math.inf for s in values)
    if not zeros:
        return ""
    if zeros == len(values):
        return " (all are 0)"
    return " (smallest are 0)" if clouds[0].extremes_only else f" ({zeros} more are 0)"


@drawn
def eigenvalues(spectra: Mapping[str, Sequence[Sequence[float]]]) -> Figure:
    """[Re λ, Im λ] in the complex plane, one panel per label, with the unit circle."""
    figure, grid = panels(spectra, width=2.7, height=2.9)
    figure.set_dpi(200)
    # Thousands of dots as vectors would be most of a page: they go in as pixels.
    pixels = sum(map(len, spectra.values())) > _MANY_DOTS
    styles = looks(spectra)
    reach = 1.15 * max(
        [1.0, *(abs(complex(*pair)) for pairs in spectra.values() for pair in pairs)]
    )
    for axes, (label, pairs) in zip(grid, spectra.items(), strict=True):
        axes.add_patch(Circle((0, 0), 1.0, fill=False, color=MUTED, linewidth=1.0))
        look = styles[label]
        axes.plot(
            [p[0] for p in pairs], [p[1] for p in pairs], linestyle="none", marker=look.marker,
            markersize=3.2, color=look.color, alpha=0.75, markeredgewidth=0, rasterized=pixels,
        )  # fmt: skip
        axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
        spacing = 1.0 if reach < 4 else max(1.0, 10.0 ** math.floor(math.log10(reach)))
        axes.xaxis.set_major_locator(MultipleLocator(spacing))
        axes.yaxis.set_major_locator(MultipleLocator(spacing))
        axes.set_xlabel("Re λ")
    if grid:
        grid[0].set_ylabel("Im λ")
    return figure


def flow_of(record: Mapping[str, Any]) -> Curve | None:
    """The gradient norms of a probe by time step or layer; None if it has none."""
    norms = record.get("gradient_by_step")
    if not norms:
        return None
    return Curve(0, record["gradient_at"], [math.nan if n is None else float(n) for n in norms])


def draw_gradients(axes: Axes, flows: Mapping[str, Curve], *, xlabel: str = "time step t") -> None:
    """Draw the norm of the loss's gradient with respect to the state at each step, log scale.

    A network that remembers has a flat line. Norms of exactly zero cannot be drawn on a log scale:
    they are counted in the legend.
    """
    norms: list[float] = []
    for label, look in looks(flows).items():
        at, values = flows[label].x, flows[label].y
        shown = [(t, n) for t, n in zip(at, values, strict=True) if n > 0 and math.isfinite(n)]
        norms += [n for _, n in shown]
        zeros = values.count(0)
        if zeros:  # the axis covers their steps, too
            axes.update_datalim([(at[0], 1.0), (at[-1], 1.0)], updatey=False)
        name = label_text(label) + (f" (0 at {zeros} of {len(values)})" if zeros else "")
        axes.plot([t for t, _ in shown], [n for _, n in shown], label=name, **look.line(len(shown)))
    if norms and max(norms) < _DECADE * min(norms):
        # What hardly changes must look so, too: a decade at least.
        middle = math.sqrt(min(norms) * max(norms))
        axes.set_ylim(middle / math.sqrt(_DECADE), middle * math.sqrt(_DECADE))
    log_axis(axes, "y")
    axes.set_xlabel(xlabel)
    whole_steps(axes)
    axes.set_ylabel("‖∂loss / ∂x‖")
    legend(axes)


gradient_along_time = alone(draw_gradients)


@drawn
def probed(label: str, record: Mapping[str, Any], *, deep: bool = False) -> Figure:
    """What one probe measured: singular values on the left, gradient norms on the right.

    `record` is what `roann.lab.probe` returns, and the ``step`` it was taken at. The states are
    those of time steps, or, if `deep`, of layers. If only one was measured there is one panel.
    """
    cloud, flow = cloud_of(record, record["step"]), flow_of(record)
    if cloud is None and flow is None:
        raise ValueError("record must hold singular values or gradients, got neither.")
    maps = f" over {record['maps']} {'layers' if deep else 'steps'}" if "maps" in record else ""
    titles = [f"Singular values{maps}"] * (cloud is not None)
    titles += [f"Gradient along {'depth' if deep else 'time'}"] * (flow is not None)
    figure, grid = panels(titles, width=4.6, height=3.4)
    if cloud is not None:
        draw_singular_values(grid[0], {label: [cloud]})
    if flow is not None:
        draw_gradients(grid[-1], {label: flow}, xlabel="layer" if deep else "time step t")
    return figure
