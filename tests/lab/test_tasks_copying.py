"""Copying memory: the published layouts, the trivial score, and what the scores say."""

import hashlib
import math

import pytest
import torch

from roann.lab.tasks.copying import LAYOUTS, Copying, CopyingConfig

GLYPHS = "-12345678:"


def text(codes: torch.Tensor) -> str:
    return "".join(GLYPHS[c] for c in codes.tolist())


def test_the_paper_s_example():
    """Input 5561 ------------ : ---, output ---------------- 5561 (L = 12, S = 4)."""
    task = Copying(CopyingConfig(lag=12, symbols=4, batch_size=50))
    batch = task.batch(0, 0)
    codes = batch.inputs.argmax(-1)
    for i in range(50):
        symbols = text(codes[:4, i])
        assert set(symbols) <= set(GLYPHS[1:9])
        assert text(codes[:, i]) == symbols + "-" * 12 + ":" + "-" * 3
        assert text(batch.targets[:, i]) == "-" * 16 + symbols


@pytest.mark.parametrize(
    ("layout", "tail"),
    [
        ("paper", "------:--"),
        ("marker-before", "-----:---"),
        ("marker-through", "-----::::"),
    ],
)
def test_layouts_differ_in_the_marker_alone(layout, tail):
    batch = Copying(CopyingConfig(6, 3, 5, layout)).batch(1, 2)
    paper = Copying(CopyingConfig(6, 3, 5)).batch(1, 2)
    assert torch.equal(batch.targets, paper.targets)
    assert text(batch.targets[:9, 0]) == "-" * 9
    for i in range(5):
        assert text(batch.inputs.argmax(-1)[3:, i]) == tail


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_one_hot_and_scalars_say_the_same(layout):
    one_hot = Copying(CopyingConfig(6, 3, 5, layout)).batch(0, 0).inputs
    scalar = Copying(CopyingConfig(6, 3, 5, layout, "scalar")).batch(0, 0).inputs
    assert one_hot.shape == (12, 5, 10)
    assert scalar.shape == (12, 5, 1)
    assert torch.equal(one_hot.sum(-1), torch.ones(12, 5))
    assert torch.equal(one_hot.max(-1).values, torch.ones(12, 5))
    assert torch.equal(one_hot.argmax(-1), scalar[..., 0].long())


@pytest.mark.parametrize(
    ("layout", "encoding", "digest"),
    [
        ("paper", "one-hot", "84cb23bb8a43ecac"),
        ("marker-before", "one-hot", "9e4cae8feda2dd26"),
        ("marker-through", "one-hot", "010e125520f4e1fd"),
        ("paper", "scalar", "f18678f91197c151"),
        ("marker-before", "scalar", "5b93a113996dedf2"),
        ("marker-through", "scalar", "cae8a380fb566f77"),
    ],
)
def test_fingerprint(layout, encoding, digest):
    batch = Copying(CopyingConfig(6, 3, 4, layout, encoding)).batch(seed=7, step=11)
    content = batch.inputs.numpy().tobytes() + batch.targets.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == digest


def test_symbols_are_uniform_over_eight():
    targets = Copying(CopyingConfig(1, 100, 1000)).batch(0, 0).targets[-100:]
    counts = targets.flatten().bincount(minlength=9)
    assert counts[0] == 0
    expected, sigma = 100_000 / 8, math.sqrt(100_000 * (1 / 8) * (7 / 8))
    assert ((counts[1:] - expected).abs() < 5 * sigma).all()


def test_the_trivial_score_is_that_of_guessing_on_the_recall_steps():
    """The best a model without memory can do: blanks for sure, then each symbol with 1/8."""
    config = CopyingConfig(lag=30, symbols=5, batch_size=2000)
    task = Copying(config)
    batch = task.batch(0, 0)
    prediction = torch.full((40, 2000, 9), -torch.inf)
    prediction[:35, :, 0] = 0
    prediction[35:, :, 1:] = 0
    scores = task.scores(prediction, batch.targets)
    assert scores["cross_entropy"] == pytest.approx(task.trivial["cross_entropy"], rel=1e-5)
    assert scores["recall_cross_entropy"] == pytest.approx(math.log(8), rel=1e-5)
    assert abs(scores["recall_accuracy"] - 1 / 8) < 5 * math.sqrt(7 / 64 / 10_000)
    assert task.trivial["cross_entropy"] == 5 * math.log(8) / 40


def test_all_steps_flatter_a_model_that_recalls_nothing():
    task = Copying(CopyingConfig(lag=400))
    batch = task.batch(0, 0)
    blanks = torch.zeros(420, 128, 9)
    blanks[..., 0] = 1
    right = (blanks.argmax(-1) == batch.targets).double().mean()
    assert float(right) == pytest.approx(410 / 420)
    assert task.scores(blanks, batch.targets)["recall_accuracy"] == 0


def test_the_loss_is_the_mean_over_every_step_and_sequence():
    task = Copying(CopyingConfig(3, 2, 4))
    targets = task.batch(0, 0).targets
    prediction = torch.randn(7, 4, 9, generator=torch.Generator().manual_seed(0)).double()
    by_hand = [-prediction[t, i].log_softmax(0)[targets[t, i]] for t in range(7) for i in range(4)]
    assert torch.allclose(task.loss(prediction, targets), torch.stack(by_hand).mean())


def test_horizon_is_lag_and_symbols():
    assert Copying(CopyingConfig(400)).horizon == 410
    assert Copying(CopyingConfig(400)).length == 420
