"""The adding problem: marker rules, the trivial score, fingerprints."""

import hashlib
import math

import pytest
import torch

from roann.lab.tasks.adding import MARKER_RULES, Adding, AddingConfig


def places(T: int, B: int, markers: str) -> torch.Tensor:
    """(B, 2): where the ones are, in order of time."""
    inputs = Adding(AddingConfig(T, B, markers)).batch(0, 0).inputs
    marks = inputs[..., 1].t()
    assert torch.equal(marks.sum(1), torch.full((B,), 2.0))
    assert set(marks.unique().tolist()) <= {0.0, 1.0}
    return marks.nonzero()[:, 1].reshape(B, 2)


@pytest.mark.parametrize(
    ("markers", "T", "firsts", "seconds"),
    [
        ("paper", 8, range(4), range(4, 8)),
        ("paper", 7, range(3), range(3, 7)),
        ("paper", 2, range(1), range(1, 2)),
        ("urnn", 8, range(4), range(4, 8)),
        ("urnn", 7, range(3), range(3, 6)),
    ],
)
def test_one_marker_in_each_half(markers, T, firsts, seconds):
    found = places(T, 500, markers)
    assert set(found[:, 0].tolist()) == set(firsts)
    assert set(found[:, 1].tolist()) == set(seconds)


def test_anywhere_means_every_pair_equally_often_and_never_the_same_place():
    T, B = 5, 10_000
    pairs = places(T, B, "anywhere")
    counts = (pairs[:, 0] * T + pairs[:, 1]).bincount(minlength=T * T).reshape(T, T)
    upper = torch.ones(T, T, dtype=torch.bool).triu(1)
    assert (counts[~upper] == 0).all()
    p = 1 / 10
    assert ((counts[upper] - B * p).abs() < 5 * math.sqrt(B * p * (1 - p))).all()


@pytest.mark.parametrize("markers", MARKER_RULES)
def test_the_target_is_the_sum_of_the_marked_numbers(markers):
    batch = Adding(AddingConfig(9, 6, markers)).batch(3, 4)
    for i in range(6):
        marked = [float(a) for a, b in batch.inputs[:, i].tolist() if b == 1]
        assert float(batch.targets[i, 0]) == pytest.approx(sum(marked), abs=1e-6)


def test_predicting_the_mean_leaves_the_trivial_score():
    """Var(a₁ + a₂) = 2/12; the fourth moment gives the spread of its estimate."""
    task = Adding(AddingConfig(4, 16_384))
    batch = task.batch(0, 0)
    mse = task.scores(torch.ones(16_384, 1), batch.targets)["mse"]
    fourth = 1 / 15  # E (a₁ + a₂ − 1)⁴ of the triangular distribution
    sigma = math.sqrt((fourth - 1 / 36) / 16_384)
    assert abs(mse - task.trivial["mse"]) < 5 * sigma
    assert task.trivial["mse"] == 1 / 6


@pytest.mark.parametrize(
    ("markers", "digest"),
    [("paper", "420e91eb061f7593"), ("urnn", "9f95b7267fdf53d8"), ("anywhere", "2652004651352fa4")],
)
def test_fingerprint(markers, digest):
    batch = Adding(AddingConfig(9, 3, markers)).batch(seed=7, step=11)
    content = batch.inputs.numpy().tobytes() + batch.targets.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == digest
