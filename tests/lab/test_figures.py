"""Figures: the data they draw, their scales and labels, and that they are the same every time."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from roann.lab.figures.curves import (
    Curve,
    best_point,
    curve_of,
    learning_curves,
    median_curve,
    score_against_rho,
    thinned,
)
from roann.lab.figures.spectra import (
    Cloud,
    eigenvalues,
    flow_of,
    gradient_along_time,
    singular_values,
)
from roann.lab.figures.style import looks, number_text, svg_bytes
from roann.lab.figures.surfaces import Surface, decision_surfaces

THREE = [
    Curve(0, [100, 200, 300], [0.1, 0.01, 0.004]),
    Curve(1, [100, 200, 300], [0.2, 0.05, 0.001]),
    Curve(2, [100, 200], [0.15, 0.16], diverged=True),
]


def line_at(figure: Figure, label: str) -> Line2D:
    """The line whose label begins so."""
    lines = [line for axes in figure.axes for line in axes.get_lines()]
    found = [line for line in lines if str(line.get_label()).startswith(label)]
    assert len(found) == 1, [str(line.get_label()) for line in lines]
    return found[0]


def legend_texts(figure: Figure) -> list[str]:
    legends = [axes.get_legend() for axes in figure.axes] + list(figure.legends)
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def test_curve_takes_the_wanted_finite_values_and_the_later_of_two():
    records = [
        {"kind": "train", "step": 1, "mse": 9.0},
        {"kind": "eval", "set": "test", "step": 20, "mse": 0.5},
        {"kind": "eval", "set": "validation", "step": 10, "mse": 7.0},
        {"kind": "eval", "set": "test", "step": 10, "mse": 0.9},
        {"kind": "eval", "set": "test", "step": 20, "mse": 0.4},
        {"kind": "eval", "set": "test", "step": 30, "mse": None},
        {"kind": "eval", "set": "test", "step": 40, "mse": math.nan},
        {"kind": "eval", "set": "test", "step": None, "mse": 0.1},
    ]
    assert curve_of(records, "mse", set="test", seed=3) == Curve(3, [10, 20], [0.9, 0.4])
    assert curve_of(records, "mse", kind="train").y == [9.0]
    assert curve_of(records, "absent").x == []


def test_median_counts_a_diverged_seed_as_the_worst():
    xs, ys = median_curve(THREE, "lower")
    assert xs == [100, 200, 300]
    assert ys == [0.15, 0.05, 0.004]
    higher = [curve._replace(y=[1 - y for y in curve.y]) for curve in THREE]
    assert median_curve(higher, "higher")[1] == pytest.approx([0.85, 0.95, 0.996])


def test_median_stops_where_a_seed_is_missing_or_most_have_diverged():
    running = [Curve(0, [1, 2], [1.0, 2.0]), Curve(1, [1], [3.0])]
    assert median_curve(running, "lower") == ([1], [2.0])
    lost = [Curve(0, [1, 2], [1.0, 2.0]), Curve(1, [1], [3.0], True), Curve(2, [1], [4.0], True)]
    assert median_curve(lost, "lower") == ([1], [3.0])
    assert median_curve([], "lower") == ([], [])


def test_best_point_is_the_earliest_best_of_any_seed():
    assert best_point(THREE, "lower") == (300, 0.001)
    assert best_point(THREE, "higher") == (100, 0.2)
    flat = [Curve(5, [1, 2], [0.0, 0.0])]
    assert best_point(flat, "lower") == (1, 0.0)
    assert best_point([Curve(0, [], [])], "lower") is None


def test_thinning_keeps_the_ends_and_medians():
    curve = Curve(0, [float(k) for k in range(1, 1001)], [float(k % 10) for k in range(1000)])
    thin = thinned(curve, most=100)
    assert len(thin.x) == 100
    assert thin.x[-1] == 1000
    assert set(thin.y) == {4.5}
    assert thinned(thin, most=100) is thin


def test_learning_curves_draw_every_seed_the_median_the_best_and_the_trivial_score():
    figure = learning_curves({"roa-rnn": THREE}, ylabel="mse", trivial=1 / 6, log=True)
    axes = figure.axes[0]
    assert axes.get_yscale() == "log"
    assert axes.get_xlabel() == "training step"
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.get_lines()]
    for curve in THREE:
        assert (curve.x, curve.y) in drawn
    median = line_at(figure, "roa-rnn (3 seeds)")
    assert list(median.get_ydata()) == [0.15, 0.05, 0.004]
    assert median.get_linewidth() > 2 * axes.get_lines()[0].get_linewidth()
    stars = [line for line in axes.get_lines() if line.get_marker() == "*"]
    assert [(s.get_xdata()[0], s.get_ydata()[0]) for s in stars] == [(300, 0.001)]
    crosses = [line for line in axes.get_lines() if line.get_marker() == "x"]
    assert [(c.get_xdata()[0], c.get_ydata()[0]) for c in crosses] == [(200, 0.16)]
    level = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert [line.get_ydata()[0] for line in level] == [1 / 6]
    assert [text.get_text() for text in axes.texts] == ["trivial 0.167"]


def test_log_axis_leaves_out_what_it_cannot_draw():
    figure = learning_curves({"a": [Curve(0, [1, 2, 3], [1.0, 0.0, 0.5])]}, ylabel="y", log=True)
    assert list(figure.axes[0].get_lines()[0].get_ydata()) == [1.0, 0.5]


@pytest.mark.parametrize("top", [1.05, 2.0, 9.0, 1e4])
def test_a_log_axis_always_has_labels(top: float):
    figure = learning_curves({"a": [Curve(0, [1, 2], [0.97, top])]}, ylabel="y", log=True)
    svg_bytes(figure)
    low, high = figure.axes[0].get_ylim()
    shown = [t.get_text() for t in figure.axes[0].get_yticklabels()
             if low <= t.get_position()[1] <= high and t.get_text()]  # fmt: skip
    assert len(shown) >= 3


def test_percent_axis():
    arms = {"a": [Curve(0, [1, 2], [0.1, 0.95])]}
    figure = learning_curves(arms, ylabel="accuracy", better="higher", trivial=0.125, percent=True)
    formatter = figure.axes[0].yaxis.get_major_formatter()
    assert formatter(0.975, 0) == "97.5 %"
    assert figure.axes[0].texts[0].get_text() == "trivial 12.5 %"


def test_looks_differ_without_colour_too():
    made = looks([f"system {k}" for k in range(28)])
    assert len(set(made.values())) == 28
    first = list(made.values())[:7]
    assert len({look.color for look in first}) == 7
    assert len({(str(look.dash), look.marker) for look in first}) == 7


def test_known_systems_keep_their_colours_whoever_else_is_there():
    made = looks(["newcomer", "lstm", "roa-rnn", "roa-rnn, identity", "vanilla-rnn"])
    assert made["roa-rnn"].color == "#d55e00"
    assert made["lstm"].color == "#009e73"
    assert made["vanilla-rnn"].color == "#0072b2"
    assert made["roa-rnn, identity"].color == "#cc79a7"
    assert len({look.color for look in made.values()}) == 5


def test_singular_values_draw_every_value_inside_its_interval():
    clouds = [Cloud(10, [0.1, -0.2], -1.0, 0.5), Cloud(100, [0.3, -math.inf], -1.2, 0.6)]
    figure = singular_values({"roa-fnn": clouds})
    axes = figure.axes[0]
    heights = np.asarray(line_at(figure, "roa-fnn (1 more are 0)").get_ydata(), dtype=float)
    assert set(heights[np.isfinite(heights)]) == {0.1, -0.2, 0.3}
    assert axes.get_yscale() == "linear"
    band = axes.collections[0].get_paths()[0].vertices
    assert {(0.0, -1.0), (0.0, 0.5), (1.0, -1.2), (1.0, 0.6)} <= set(map(tuple, band))
    assert "roa-fnn: interval" in legend_texts(figure)


def test_a_vacuous_interval_is_outlined_and_not_filled():
    cloud = Cloud(5, [0.0], -80.0, 80.0, vacuous=True)
    figure = singular_values({"roa-rnn": [cloud]})
    assert not figure.axes[0].collections
    assert figure.axes[0].get_yscale() == "symlog"
    assert "roa-rnn: interval, outlined" in legend_texts(figure)


def test_a_long_legend_leaves_the_axes_their_room():
    """Constrained layout warns where nothing is left, and a warning is an error here."""
    arms = {f"a system with a long name, {k}": [Cloud(1, [0.1], -1.0, 1.0)] for k in range(15)}
    figure = singular_values(arms)
    figure.draw_without_rendering()
    few = singular_values({"a": [Cloud(1, [0.1], -1.0, 1.0)]})
    few.draw_without_rendering()
    tall, usual = (f.axes[0].get_window_extent().height for f in (figure, few))
    assert tall > 0.7 * usual


def test_an_interval_without_lower_end_draws_the_upper_one_alone():
    figure = singular_values({"a": [Cloud(1, [0.0], None, 2.0), Cloud(2, [0.0], None, 3.0)]})
    ends = [line for line in figure.axes[0].get_lines() if line.get_marker() == "_"]
    heights = [np.asarray(line.get_ydata(), dtype=float) for line in ends]
    assert np.isnan(heights[0]).all()
    assert list(heights[1]) == [2.0, 3.0]


def test_eigenvalues_stand_beside_the_unit_circle():
    ring = [[0.9, 0.1], [-0.5, 0.8]]
    figure = eigenvalues({"qr": ring, "identity": [[1.0, 0.0]]})
    left, right = figure.axes
    assert list(left.get_lines()[0].get_xydata().tolist()) == ring
    for axes in (left, right):
        assert [patch.get_radius() for patch in axes.patches] == [1.0]
    assert left.get_xlim() == right.get_xlim() == left.get_ylim()
    assert left.get_aspect() == 1.0
    assert left.get_title(loc="left") == "qr"


def test_a_gradient_that_is_not_finite_is_null_in_a_record():
    flow = flow_of({"gradient_at": [0, 5], "gradient_by_step": [None, 2]})
    assert flow.x == [0, 5]
    assert math.isnan(flow.y[0])
    assert flow.y[1] == 2.0
    assert flow_of({"sigma": [0.1]}) is None


def test_gradient_along_time_is_logarithmic_and_counts_zeros():
    figure = gradient_along_time(
        {
            "roa-rnn": Curve(0, [0, 200, 400], [1.0, 1.1, 0.9]),
            "vanilla-rnn": Curve(0, [1, 2, 3], [0.0, 0.0, 1e-30]),
        }
    )
    assert figure.axes[0].get_yscale() == "log"
    flat = line_at(figure, "roa-rnn")
    assert list(flat.get_xdata()) == [0, 200, 400]
    assert list(flat.get_ydata()) == [1.0, 1.1, 0.9]
    falling = line_at(figure, "vanilla-rnn (0 at 2 of 3)")
    assert list(falling.get_xydata()[0]) == [3, 1e-30]


def test_decision_surface_shows_values_boundary_and_points():
    values = [[-1.0, -0.5], [0.5, 1.0]]
    points = [[0.0, 0.0, -1], [1.0, 1.0, 1], [2.0, 2.0, 1]]
    surface = Surface((-20, 30, -15, 20), values, points)
    figure = decision_surfaces({"roa-fnn": surface})
    axes = figure.axes[0]
    image = axes.get_images()[0]
    assert image.get_array().tolist() == values
    assert image.origin == "lower"
    assert list(image.get_extent()) == [-20, 30, -15, 20]
    assert [len(line.get_xdata()) for line in axes.get_lines()] == [1, 2]
    assert any(collection.get_paths() for collection in axes.collections)
    never = decision_surfaces({"fnn": surface._replace(values=[[0.5, 0.5], [0.5, 1.0]])})
    assert not never.axes[0].collections


def test_the_dashed_line_can_have_another_name():
    arms = {"N = 178": [Curve(0, [1, 2], [0.94, 0.97])]}
    how = {"trivial": 0.9265, "trivial_name": "linear softmax", "percent": True}
    (axes,) = learning_curves(arms, ylabel="accuracy", better="higher", **how).axes
    (level,) = [line for line in axes.get_lines() if line.get_linestyle() == "--"]
    assert level.get_ydata()[0] == 0.9265
    assert [text.get_text() for text in axes.texts] == ["linear softmax 92.65 %"]


def test_score_against_rho_has_medians_marks_and_the_papers_rho():
    points = [(0.005, 1e-4), (0.005, 3e-4), (1.0, 0.1), (50.0, None)]
    figure = score_against_rho(
        "roa-rnn", points, ylabel="mse", trivial=1 / 6, log=True, marked=1 / 200
    )
    axes = figure.axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    medians = next(line for line in axes.get_lines() if line.get_label() == "roa-rnn")
    assert list(medians.get_xdata()) == [0.005, 1.0]
    assert list(medians.get_ydata()) == pytest.approx([2e-4, 0.1])
    assert list(line_at(figure, "roa-rnn: diverged").get_xdata()) == [50.0]
    marks = [line for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [line.get_xdata()[0] for line in marks] == [1 / 200]


def test_what_blew_up_leaves_the_figure_at_the_top_and_is_told():
    points = [(0.005, 1e-4), (3.0, 9e29)]
    figure = score_against_rho("roa-rnn", points, ylabel="mse", trivial=1 / 6, log=True)
    axes = figure.axes[0]
    assert axes.get_ylim()[1] == pytest.approx(100 / 6)
    assert "↑ up to 9·10²⁹" in [text.get_text() for text in axes.texts]
    tame = score_against_rho("roa-rnn", points[:1], ylabel="mse", trivial=1 / 6, log=True)
    assert [text.get_text() for text in tame.axes[0].texts] == ["trivial 0.167"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1 / 6, "0.167"), (1.0, "1"), (4.96e-5, "4.96·10⁻⁵"), (1e-5, "10⁻⁵"),
     (-1e5, "−10⁵"), (-0.5, "−0.5"), (9.999e-4, "0.001"), (1234.0, "1234"), (math.inf, "∞"),
     (math.nan, "not a number")],
)  # fmt: skip
def test_numbers_are_written_as_people_write_them(value: float, text: str):
    assert number_text(value) == text


def test_a_long_legend_stands_below_and_names_everything_once():
    few = {f"arm {k}": [Curve(0, [1, 2], [1.0, 2.0])] for k in range(3)}
    many = {f"arm {k}": [Curve(0, [1, 2], [1.0, 2.0])] for k in range(9)}
    inside, below = (learning_curves(arms, ylabel="y") for arms in (few, many))
    assert inside.axes[0].get_legend() is not None
    assert below.axes[0].get_legend() is None
    (legend,) = below.legends
    assert [text.get_text() for text in legend.get_texts()] == list(many)
    assert below.get_size_inches()[1] > inside.get_size_inches()[1]


def test_many_panels_stand_in_rows():
    surface = Surface((0, 1, 0, 1), [[-1.0, 1.0], [1.0, -1.0]])
    figure = decision_surfaces({f"arm {k}": surface for k in range(8)})
    places = {tuple(axes.get_subplotspec().get_geometry()[:2]) for axes in figure.axes[:8]}
    assert places == {(2, 4)}
    assert [axes.get_title(loc="left") for axes in figure.axes[:8]] == [
        f"arm {k}" for k in range(8)
    ]


def test_a_gradient_that_hardly_changes_looks_so():
    (axes,) = gradient_along_time({"roa-rnn": Curve(0, [1, 2, 3], [6.81, 6.82, 6.84])}).axes
    low, high = axes.get_ylim()
    assert high == pytest.approx(10 * low)
    assert low * high == pytest.approx(6.81 * 6.84)


@pytest.mark.parametrize("draw", [decision_surfaces, eigenvalues])
def test_titles_of_neighbours_do_not_meet(draw):
    long = [f"roa-fnn, L = 50000, permutation, adam {k}" for k in range(5)]
    surface = Surface((0, 1, 0, 1), [[-1.0, 1.0], [1.0, -1.0]])
    content = {label: surface if draw is decision_surfaces else [[1.0, 0.0]] for label in long}
    figure = draw(content)
    figure.draw_without_rendering()  # lays it out
    titles = [axes.get_title(loc="left") for axes in figure.axes[:5]]
    assert [title.replace("\n", " ") for title in titles] == long
    boxes = [axes._left_title.get_window_extent() for axes in figure.axes[:5]]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
