"""The smallest singular value, by undoing: beside all singular values of the same chain."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import roann
from roann.diagnostics import extremes as room
from roann.diagnostics import (
    log_singular_values,
    smallest_log_singular_value,
    trajectory,
)


class Line:
    """A line of states whose newest number is made of the oldest and of those at `read`."""

    def __init__(self, length: int, width: int, read: tuple[int, ...] = (), seed: int = 0) -> None:
        g = torch.Generator().manual_seed(seed)
        self.width, self.taps, self.state_size = width, read, length * width
        self.W = torch.randn(width, width * (1 + len(read)), generator=g, dtype=torch.float64)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        parts = x.split(self.width, -1)
        seen = torch.cat([parts[0], *(parts[k] for k in self.taps)], -1)
        return torch.cat([*parts[1:], torch.tanh(seen @ self.W.mT / 2 + u)], -1)


def inputs(steps: int, *batch: int) -> Tensor:
    g = torch.Generator().manual_seed(steps)
    return torch.randn(steps, *batch, 1, generator=g, dtype=torch.float64) / 4


@pytest.mark.parametrize("steps", [1, 2, 7, 400])
@pytest.mark.parametrize("read", [(), (1,), (2, 4), (4,)])
@pytest.mark.parametrize("width", [1, 3])
def test_it_is_the_last_of_all_of_them(steps, read, width):
    path = trajectory(Line(5, width, read), inputs(steps))
    exact = float(log_singular_values(path.jacobians())[-1])
    assert exact > -math.inf
    found = float(smallest_log_singular_value(path, steps=15))
    assert found == pytest.approx(exact, rel=1e-7, abs=1e-7)


def test_each_row_of_a_batch_has_its_own():
    line, u = Line(3, 2, (1,)), inputs(20, 2, 3)
    found = smallest_log_singular_value(trajectory(line, u), steps=6)
    assert found.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            alone = smallest_log_singular_value(trajectory(line, u[:, i, j]), steps=6)
            torch.testing.assert_close(found[i, j], alone, rtol=1e-9, atol=1e-9)


def test_a_layer_without_copies_serves_too():
    rnn = roann.RoaRNN(1, 20, rho=0.2, horizon=60, dtype=torch.float64)
    path = trajectory(rnn, inputs(60))
    exact = float(log_singular_values(path.jacobians())[-1])
    assert float(smallest_log_singular_value(path, 20)) == pytest.approx(exact, abs=1e-6)


def test_a_pure_permutation_is_one_whole_copy():
    class Turn:
        state_size = 6

        def step(self, x: Tensor, u: Tensor) -> Tensor:
            return x.roll(1, -1)

    assert float(smallest_log_singular_value(trajectory(Turn(), inputs(50)))) == pytest.approx(0.0)


class Forgetful(Line):
    """A line that takes its newest number from the input alone."""

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([x[..., 1:], u], -1)


class Doubled(Line):
    """Keeps one number twice, and drops another."""

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([x[..., 1:], x[..., -1:]], -1)


class Ignored(Line):
    """Makes two numbers of one, and none of another."""

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return torch.cat([x[..., 2:], x[..., :1] / 2, x[..., :1] / 3], -1)


@pytest.mark.parametrize("kind", [Forgetful, Doubled, Ignored])
def test_a_singular_step_is_exactly_zero(kind):
    path = trajectory(kind(4, 1), inputs(3))
    assert float(smallest_log_singular_value(path)) == -math.inf
    assert float(log_singular_values(path.jacobians())[-1]) < -30


def test_a_step_that_makes_too_much_anew_is_refused(monkeypatch):
    monkeypatch.setattr(room, "MADE", 2)
    path = trajectory(Line(5, 3), inputs(4))
    with pytest.raises(ValueError, match="steps that compute at most 2 new numbers, got 3"):
        smallest_log_singular_value(path)


def test_states_of_several_sizes_are_refused():
    net = roann.RoaFNN([3, 5], alpha=0.1, dtype=torch.float64)
    path = trajectory(net, torch.randn(3, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"path.*states of one size"):
        smallest_log_singular_value(path)
