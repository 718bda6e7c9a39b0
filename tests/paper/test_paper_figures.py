"""The pictures of the findings show what the records hold."""

import pytest
from invented_runs import arm, run

from paper import ROOT, collect, figures


def test_the_curve_of_a_rate_is_its_worst_seed():
    arms = {
        "adding-100-lr-0.01": arm(
            run("a-s0", "adding", [0.5, 0.2]), run("a-s1", "adding", [0.5, 0.3])
        ),
        "adding-400": arm(run("b-s0", "adding", [0.1])),
    }
    assert figures.by_rate(arms) == {"adding": {100: {0.01: 0.3}}}


def test_rates_draws_a_line_for_every_length():
    arms = collect.read_records(ROOT / "results")["recipe-rates"]
    figure = figures.rates(arms)
    drawn = {
        axes.get_title(loc="left"): {str(line.get_label()): line for line in axes.get_lines()}
        for axes in figure.axes
    }
    assert {task: list(lines) for task, lines in drawn.items()} == {
        "copying": ["50 steps", "200 steps", "1,000 steps"],
        "adding": ["100 steps", "400 steps", "2,000 steps"],
    }
    line = drawn["adding"]["400 steps"]
    assert list(line.get_xdata()) == [0.003, 0.01, 0.03, 0.1, 0.3]
    assert min(line.get_ydata()) == pytest.approx(0.00189, abs=5e-6)  # at 0.1, on the page


def test_over_depth_the_same_rate_is_the_best_of_the_worst_seed():
    curves = figures.by_rate(collect.read_records(ROOT / "results")["recipe-moon"])["layers"]
    best = {depth: min(points, key=points.get) for depth, points in curves.items()}
    assert best == {50: 3.0, 5000: 3.0, 50_000: 3.0, 1_000_000: 1.0}  # where only 1 was run
    assert all(points[1.0] < 0.1 for points in curves.values())


def test_caps_draws_every_seed_and_their_median():
    arms = {
        "double-moon-cap-3": arm(
            run("a-s0", "adding", [0.5, 0.2]), run("a-s1", "adding", [0.5, 0.4])
        ),
        "double-moon-no-cap": arm(run("b-s0", "adding", [0.1])),
        "adding-200-cap-10": arm(run("c-s0", "adding", [0.3])),
    }
    assert figures.by_cap(arms) == {
        "double-moon": {"3": [0.2, 0.4], "none": [0.1]},
        "adding": {"10": [0.3]},
    }
    first = figures.caps(arms).axes[0]
    assert [label.get_text() for label in first.get_xticklabels()] == ["3", "none"]
    assert [list(line.get_ydata()) for line in first.get_lines()] == [
        [0.2, 0.4], [0.1], [pytest.approx(0.3), 0.1]
    ]  # fmt: skip


def test_epochs_draws_what_chose_the_epoch_and_the_loss():
    figure = figures.epochs(collect.read_records(ROOT / "results")["recipe"])
    errors, losses = (axes.get_lines() for axes in figure.axes)
    assert [str(line.get_label()) for line in errors] == [
        "34k, rate 0.03, ρ = 0.3",
        "67k, rate 0.03, ρ = 0.3",
        "267k, rate 0.03, ρ = 0.3",
        "267k, rate 0.01, ρ = 0.3",
        "267k, rate 0.01, ρ = 1",
    ]
    assert list(errors[4].get_xdata()) == list(range(1, 21))
    assert min(errors[4].get_ydata()) == pytest.approx(1 - 0.9856)
    assert list(losses[4].get_ydata())[-1] == pytest.approx(0.5206426)


def test_annuli_lie_within_weyls_distance_of_the_designed_spectrum():
    dots = {
        axes.get_title(loc="left"): axes.get_lines()[0].get_xydata()
        for axes in figures.annuli(N=32, horizon=200).axes
    }
    assert list(dots) == list(figures.SPECTRA)
    for xy in dots.values():
        assert xy.shape == (32, 2)
        assert abs((xy**2).sum(1) ** 0.5 - (1 - 1 / 200)).max() < 3 / 200  # ‖W‖ is about 2
    assert dots["still"][:, 0].min() > 0.9
    assert dots["spread"][:, 0].min() < -0.9
