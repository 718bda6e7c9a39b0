"""The double moon: Haykin's geometry, a fixed data set, an order per epoch."""

import hashlib

import pytest
import torch

from roann.lab.tasks.double_moon import WINDOW, DoubleMoon, DoubleMoonConfig


@pytest.fixture(scope="module")
def task():
    return DoubleMoon(DoubleMoonConfig())


def test_the_moons_are_half_rings_of_the_stated_size(task):
    x, y = task.points.inputs.double(), task.points.targets[:, 0]
    upper, lower = x[y < 0], x[y > 0]
    assert len(upper) == len(lower) == 500
    for ring, height in ((upper, upper[:, 1]), (lower - torch.tensor([10, 5]), 5 - lower[:, 1])):
        radii = ring.norm(dim=1)
        assert radii.min() >= 7 - 1e-5
        assert radii.max() <= 13 + 1e-5
        # 500 points fill a ring of width 6: both edges are nearly reached.
        assert radii.min() < 7.1
        assert radii.max() > 12.9
        assert height.min() >= -1e-5


def test_the_paper_s_window_is_centred_on_the_moons(task):
    (left, right), (bottom, top) = WINDOW
    # The centre of symmetry of the two moons is (r/2, −d/2).
    assert ((left + right) / 2, (bottom + top) / 2) == (5, 2.5)
    x = task.points.inputs
    assert left < x[:, 0].min()
    assert x[:, 0].max() < right
    assert bottom < x[:, 1].min()
    assert x[:, 1].max() < top


def test_no_straight_line_parts_moons_that_interlock(task):
    x, y = task.points.inputs.double(), task.points.targets.double()
    A = torch.cat([x, torch.ones(1000, 1)], 1)
    line = torch.linalg.lstsq(A, y).solution
    assert float((A @ line * y > 0).double().mean()) < 0.95


def test_every_epoch_shows_each_point_once_in_an_order_of_its_own(task):
    epochs = []
    for epoch in range(3):
        batches = [task.batch(4, 10 * epoch + k) for k in range(10)]
        seen = torch.cat([b.inputs for b in batches])
        labels = torch.cat([b.targets for b in batches])
        order = (seen.unsqueeze(1) == task.points.inputs).all(-1).nonzero()[:, 1]
        assert sorted(order.tolist()) == list(range(1000))
        assert torch.equal(labels, task.points.targets[order])
        epochs.append(order.tolist())
    assert epochs[0] != epochs[1] != epochs[2]


def test_the_points_belong_to_the_data_seed_not_to_the_run(task):
    assert torch.equal(DoubleMoon(DoubleMoonConfig()).points.inputs, task.points.inputs)
    other = DoubleMoon(DoubleMoonConfig(data_seed=1)).points.inputs
    assert not torch.equal(other, task.points.inputs)
    (points,) = task.evaluate_sets(9, 99)["eval"]
    assert points is task.points


def test_the_trivial_scores_are_those_of_a_constant(task):
    zeros, ones = torch.zeros(1000, 1), torch.ones(1000, 1)
    assert task.scores(zeros, task.points.targets)["mse"] == task.trivial["mse"]
    assert task.scores(ones, task.points.targets)["accuracy"] == task.trivial["accuracy"]


def test_fingerprint(task):
    # Rounded: sine and cosine may differ in the last bit between processors.
    batch = task.batch(seed=7, step=11)
    content = (batch.inputs * 1000).round().int().numpy().tobytes()
    content += batch.targets.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == "e9b644cd110603f3"
