"""Sequential MNIST: permutations, splits, epochs; on the real files where they are at hand."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from roann.lab import data
from roann.lab.tasks.mnist import PERMUTATIONS, PsMnistConfig, SequentialMnist, SMnistConfig


def real_directory() -> Path | None:
    """Where the lab finds MNIST, or a folder data/mnist beside the checkout."""
    try:
        return data.find_mnist()
    except data.DataError:
        beside = Path(__file__).parents[3].glob("*/data/mnist")
        return next((d for d in beside if len(list(d.glob("*ubyte*"))) >= 4), None)


DIRECTORY = real_directory()
real = pytest.mark.skipif(
    DIRECTORY is None, reason="MNIST is not here: run `roann data mnist` or set ROANN_DATA"
)


@pytest.fixture(scope="module")
def task():
    return SequentialMnist(PsMnistConfig(batch_size=10_000, data_dir=str(DIRECTORY)))


@pytest.fixture(scope="module")
def mnist():
    return data.load_mnist(DIRECTORY)


@pytest.mark.parametrize(
    ("name", "begins", "digest"),
    [
        ("nengo", [693, 85, 647], "fe62e3fef305"),
        ("urnn", [319, 576, 323], "96240fe27409"),
        ("nnrnn", [529, 511, 328], "12a7f1b0d6e7"),
        ("lmu", [46, 466, 537], "dda347f72737"),
        ("bit-reversal", [0, 512, 256], "30d91dc29f16"),
    ],
)
def test_fingerprints_of_the_permutations(name, begins, digest):
    order = PERMUTATIONS[name]()
    assert sorted(order) == list(range(784))
    assert order[:3] == begins
    content = np.array(order, dtype="<i8").tobytes()
    assert hashlib.sha256(content).hexdigest()[:12] == digest


def test_bit_reversal_is_evens_before_odds_again_and_again():
    parts = [list(range(1024))]
    while len(parts[0]) > 1:
        parts = [half for part in parts for half in (part[0::2], part[1::2])]
    assert PERMUTATIONS["bit-reversal"]() == [part[0] for part in parts if part[0] < 784]


def test_permutations_do_not_touch_numpy_s_global_state():
    np.random.seed(3)
    wanted = np.random.rand()
    np.random.seed(3)
    for make in PERMUTATIONS.values():
        make()
    assert np.random.rand() == wanted


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (PsMnistConfig, {"permutation": "none"}, "permutation"),
        (PsMnistConfig, {"split": "test"}, "split"),
        (SMnistConfig, {"batch_size": 128}, "a divisor of 60000"),
        (SMnistConfig, {"batch_size": 60, "split": "validation"}, "a divisor of 50000"),
        (SMnistConfig, {"eval_batch_size": 0}, "eval_batch_size"),
    ],
)
def test_settings_are_checked(config, changes, said):
    with pytest.raises(ValueError, match=said):
        config(**changes)


def test_absent_files_are_a_data_error_that_names_the_command(tmp_path):
    with pytest.raises(data.DataError, match="roann data mnist"):
        SequentialMnist(PsMnistConfig(data_dir=str(tmp_path)))


@real
def test_the_first_digit_is_a_five_shown_pixel_by_pixel(task, mnist):
    assert int(mnist.train_labels[0]) == 5
    plain = SequentialMnist(SMnistConfig(data_dir=str(DIRECTORY)))
    first = next(iter(plain.evaluate_sets(0, 0)["test"]))
    assert first.inputs.shape == (784, 1000, 1)
    image = mnist.test_images[3].double().flatten() / 255
    assert torch.equal(first.inputs[:, 3, 0], image.float())
    shown = next(iter(task.evaluate_sets(0, 0)["test"])).inputs[:, 3, 0]
    back = torch.empty(784)
    back[torch.tensor(PERMUTATIONS["nengo"]())] = shown
    assert torch.equal(back, image.float())
    assert float(shown.min()) == 0
    assert float(shown.max()) <= 1


@real
def test_an_epoch_shows_every_training_image_once_with_its_label(task, mnist):
    assert task.epoch_steps == 6
    # An exact name for each image: its bytes times random integers, modulo 2⁶⁴.
    keys = torch.randint(2**62, (784,), generator=torch.Generator().manual_seed(0))
    order = torch.tensor(PERMUTATIONS["nengo"]())
    known = (mnist.train_images.flatten(1)[:, order].long() @ keys).sort()
    epochs = []
    for epoch in range(2):
        batches = [task.batch(0, 6 * epoch + k) for k in range(6)]
        pixels = torch.cat([(b.inputs[..., 0] * 255).round().long().t() for b in batches])
        shown = (pixels @ keys).sort()
        assert torch.equal(shown.values, known.values)
        labels = torch.cat([b.targets for b in batches])
        assert torch.equal(labels[shown.indices], mnist.train_labels[known.indices].long())
        epochs.append(shown.indices)
    assert not torch.equal(epochs[0], epochs[1])


@real
def test_a_batch_is_the_same_whatever_was_asked_before(task):
    first = task.batch(1, 3).targets[:50].clone()
    task.batch(1, 8)
    task.batch(2, 3)
    assert torch.equal(task.batch(1, 3).targets[:50], first)
    assert not torch.equal(task.batch(2, 3).targets[:50], first)


@real
def test_the_validation_images_are_the_last_ten_thousand_and_never_trained_on(mnist):
    config = PsMnistConfig(batch_size=10_000, split="validation", data_dir=str(DIRECTORY))
    task = SequentialMnist(config)
    assert task.epoch_steps == 5
    sets = {name: list(batches) for name, batches in task.evaluate_sets(0, 0).items()}
    assert list(sets) == ["validation", "test"]
    assert [b.examples for b in sets["validation"]] == [1000] * 10
    held = torch.cat([b.targets for b in sets["validation"]])
    assert torch.equal(held, mnist.train_labels[50_000:].long())
    trained = torch.cat([task.batch(0, k).targets for k in range(5)])
    assert torch.equal(trained.bincount(), mnist.train_labels[:50_000].long().bincount())


@real
def test_the_paper_s_split_trains_on_all_and_scores_the_test_set_alone(task):
    sets = {name: list(batches) for name, batches in task.evaluate_sets(0, 0).items()}
    assert list(sets) == ["test"]
    assert sum(b.examples for b in sets["test"]) == 10_000


@real
def test_the_trivial_scores_are_those_of_the_commonest_class(task):
    targets = torch.cat([b.targets for b in task.evaluate_sets(0, 0)["test"]])
    ones = torch.zeros(10_000, 10)
    ones[:, 1] = 1e-3
    scores = task.scores(ones, targets)
    assert scores["accuracy"] == task.trivial["accuracy"]
    assert scores["cross_entropy"] == pytest.approx(task.trivial["cross_entropy"], abs=1e-3)


@real
def test_smoothed_labels_are_in_the_loss_and_not_in_the_scores(task):
    config = PsMnistConfig(batch_size=10_000, data_dir=str(DIRECTORY), label_smoothing=0.1)
    smoothed = SequentialMnist(config)
    targets = task.batch(0, 0).targets[:50]
    prediction = torch.randn(50, 10, generator=torch.Generator().manual_seed(0))
    logs = prediction.log_softmax(-1)
    right = logs.gather(1, targets.unsqueeze(1)).mean()
    torch.testing.assert_close(smoothed.loss(prediction, targets), -0.9 * right - 0.1 * logs.mean())
    assert smoothed.scores(prediction, targets) == task.scores(prediction, targets)
    torch.testing.assert_close(task.loss(prediction, targets), -right)


@real
def test_fingerprint(task):
    inputs = next(iter(task.evaluate_sets(0, 0)["test"])).inputs[:, :4]
    chosen = task.batch(seed=7, step=11).targets[:64]
    content = (inputs * 255).round().byte().numpy().tobytes() + chosen.numpy().tobytes()
    assert hashlib.sha256(content).hexdigest()[:16] == "30b3a89dbf46deea"
