"""Clouds of singular values where some are zero, or only one is known."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from test_figures import legend_texts, line_at

from roann.lab.figures.spectra import Cloud, cloud_of, singular_values, spectra_side_by_side
from roann.lab.figures.style import svg_bytes


def test_a_cloud_is_what_a_probe_saw():
    bound = {"lower": -1, "upper": 2, "vacuous": True, "hypothesis": False}
    assert cloud_of({"sigma": [0.5, None], "bound": bound}, 7) == Cloud(
        7, [0.5, -math.inf], -1.0, 2.0, vacuous=True
    )
    extremes = {"sigma_max": 0.5, "sigma_min": -3.0}
    assert cloud_of(extremes, 7) == Cloud(7, [0.5, -3.0], extremes_only=True)
    zeros = {"sigma_max": None, "sigma_min": None}
    assert cloud_of(zeros, 7) == Cloud(7, [-math.inf, -math.inf], extremes_only=True)
    assert cloud_of({"norm_W": 1.0}, 7) is None
    assert cloud_of({"sigma": []}, 7) is None


def test_extremes_alone_are_markers():
    clouds = [Cloud(10, [0.5, -2.0], extremes_only=True), Cloud(20, [0.7], extremes_only=True)]
    figure = singular_values({"urnn": clouds})
    line = line_at(figure, "urnn, extremes only")
    assert line.get_xydata().tolist() == [[0.0, 0.5], [0.0, -2.0], [1.0, 0.7]]
    assert line.get_linestyle() == "None"
    assert line.get_marker() not in ("None", "")
    assert legend_texts(figure) == ["urnn, extremes only"]


def test_an_arm_may_have_both():
    clouds = [Cloud(0, [0.1, 0.2]), Cloud(5, [0.3, -math.inf], extremes_only=True)]
    figure = singular_values({"lstm": clouds})
    label = "lstm, extremes only (smallest are 0)"
    assert legend_texts(figure) == ["lstm", label]
    heights = np.asarray(line_at(figure, label).get_ydata(), dtype=float)
    assert heights.tolist() == [0.3]


@pytest.mark.parametrize("extremes_only", [False, True])
def test_what_is_zero_as_a_whole_is_an_arrow_at_the_foot(extremes_only: bool):
    clouds = [Cloud(10, [-math.inf], extremes_only=extremes_only)]
    figure = singular_values({"dilated-cnn": clouds})
    assert svg_bytes(figure)
    (axes,) = figure.axes
    (arrow,) = [line for line in axes.get_lines() if line.get_marker() == "v"]
    assert arrow.get_xdata() == [0.0]
    low, high = axes.get_xlim()
    assert low < 0.0 < high
    (text,) = legend_texts(figure)
    assert text == f"dilated-cnn{', extremes only' * extremes_only} (all are 0)"


def test_the_interval_of_a_single_cloud_has_a_width():
    figure = singular_values({"roa-rnn": [Cloud(10, [0.1], -1.0, 1.0)]})
    corners = figure.axes[0].collections[0].get_paths()[0].vertices
    assert corners[:, 0].min() < 0 < corners[:, 0].max()
    assert set(corners[:, 1]) == {-1.0, 1.0}


def test_every_probed_step_has_the_same_room_whatever_lies_between():
    steps = [0, 1, 5, 2000]
    arms = {name: [Cloud(x, [0.1]) for x in steps] for name in ("roa-rnn", "lstm", "gru")}
    (axes,) = singular_values(arms).axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["0", "1", "5", "2,000"]
    ends = []
    for name in arms:
        xs = np.asarray(line_at(axes.figure, name).get_xdata(), dtype=float).reshape(-1, 3)[:, :2]
        np.testing.assert_allclose(np.diff(xs, axis=0), 1.0)
        assert (np.floor(xs + 0.5) == np.arange(4)[:, None]).all()  # in the room of its step
        ends += xs[0].tolist()
    assert ends == sorted(ends)  # arms stand beside each other and do not overlap


def test_of_many_probed_steps_some_are_named():
    clouds = [Cloud(100 * k, [0.1]) for k in range(30)]
    (axes,) = singular_values({"lstm": clouds}).axes
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == [f"{100 * k:,}" for k in range(0, 30, 3)]
    assert axes.get_xticks().tolist() == list(range(0, 30, 3))


def test_coordinates_have_no_digits_that_nobody_sees():
    svg = svg_bytes(singular_values({"lstm": [Cloud(0, [1 / 3, -2 / 7])]})).decode()
    paths = re.findall(r' d="([^"]+)"', svg)
    assert paths
    assert not re.search(r"\.\d{3}", " ".join(paths))


def test_spectra_of_many_arms_stand_in_rooms_named_for_them():
    clouds = [Cloud(9, [0.2]), Cloud(0, [0.1], -1.0, 1.0), Cloud(5, [0.3])]
    arms = {"roa-rnn": clouds, "lstm": clouds[1:2], "gru": [Cloud(4, [0.4]), Cloud(3, [0.5])]}
    figure = spectra_side_by_side(arms)
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == list(arms)
    assert axes.get_xticks().tolist() == [0, 1, 2]
    dashes = {
        side: np.asarray(line_at(figure, side).get_xydata(), dtype=float).reshape(-1, 3, 2)[:, :2]
        for side in ("first probe", "last probe")
    }
    assert dashes["first probe"][:, 0, 1].tolist() == [0.1, 0.1, 0.5]
    assert dashes["last probe"][:, 0, 1].tolist() == [0.2, 0.4]
    assert np.round(dashes["first probe"][..., 0]).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert np.round(dashes["last probe"][..., 0]).tolist() == [[0, 0], [2, 2]]
    # The intervals of two networks are not joined.
    assert [len(path.get_paths()) for path in axes.collections] == [1, 1]
    assert "first probe: interval" in legend_texts(figure)
