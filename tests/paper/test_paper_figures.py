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
        "copying": ["50 steps", "200 steps"],
        "adding": ["100 steps", "400 steps"],
    }
    line = drawn["adding"]["400 steps"]
    assert list(line.get_xdata()) == [0.003, 0.01, 0.03, 0.1]
    assert min(line.get_ydata()) == pytest.approx(0.012, abs=0.0005)  # at 0.03, on the page
