"""Sequential MNIST, permuted or not: classify a digit read pixel by pixel (Section IV-C)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from roann.lab import data, limits
from roann.lab.limits import Fraction, OneOf, Range, Settings
from roann.lab.tasks.base import Batch, EpochTask, Readout

PIXELS = 784
HELD_OUT = 10_000  # the last training images, in the split "validation"

# Test accuracy of a linear softmax on the 784 pixels: what psMNIST gives without any memory.
# Measured, as the best along a descent by L-BFGS; a slow test measures it again.
LINEAR_SOFTMAX = 0.9265


def _drawn(seed: int, before: int = 0) -> list[int]:
    rng = np.random.RandomState(seed)
    rng.permutation(before)
    order: list[int] = rng.permutation(PIXELS).tolist()
    return order


def _bit_reversal() -> list[int]:
    # Read the ten bits of the place backwards; places beyond the image are left out.
    reversed_bits = (int(f"{i:010b}"[::-1], 2) for i in range(1024))
    return [i for i in reversed_bits if i < PIXELS]


# By the name of who uses it: which pixel is shown at each time.
PERMUTATIONS: dict[str, Callable[[], list[int]]] = {
    "nengo": lambda: _drawn(0),  # the paper, from nengo-dl's LMU example
    "urnn": lambda: _drawn(92916),  # uRNN, expRNN, Dilated RNN
    "nnrnn": lambda: _drawn(1234),  # nnRNN, SRNN
    # LMU, with NRU's data, whose code first shuffles the 60,000 images by the same generator.
    "lmu": lambda: _drawn(50, before=60_000),
    "bit-reversal": _bit_reversal,  # S4
}


class MnistConfig(Settings):
    """Settings of MNIST, all pixels at once."""

    task: ClassVar[str] = "mnist"

    # number of images in a training batch; it must divide that of training images.
    batch_size: Annotated[int, Range(1, 10_000)] = 100
    # paper (train on all 60,000 images) or validation (keep the last 10,000 of them for
    # validation). The 10,000 test images are evaluated in both cases.
    split: Annotated[str, OneOf(("paper", "validation"))] = "paper"
    eval_batch_size: Annotated[int, Range(1, 10_000)] = 1000  # number of images evaluated at once.
    # directory of the four MNIST files; by default $ROANN_DATA, else the user's cache.
    data_dir: str | None = None
    # part of a training target that is spread evenly over all classes; none in the paper.
    label_smoothing: Fraction | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        images = 60_000 if self.split == "paper" else 60_000 - HELD_OUT
        if images % self.batch_size:
            limits.fail("batch_size", f"a divisor of {images}", self.batch_size)


class SMnistConfig(MnistConfig):
    """Settings of sequential MNIST, pixels in reading order."""

    task: ClassVar[str] = "smnist"


class PsMnistConfig(SMnistConfig):
    """Settings of permuted sequential MNIST."""

    task: ClassVar[str] = "psmnist"

    # order of the pixels: nengo (the paper's), urnn, nnrnn, lmu or bit-reversal.
    permutation: Annotated[str, OneOf(PERMUTATIONS)] = "nengo"


class SequentialMnist(EpochTask):
    """784 pixels in [0, 1], one at a time, then a class 0 … 9 read from the last state.

    Inputs are (784, B, 1), targets (B,). α = ρ / 784. The images are held once as bytes, already in
    the order they are shown; a batch is converted to floats when it is requested.

    Evaluation: the set "test" is the 10,000 test images, once per epoch, as the paper's curves are
    drawn; with the split "validation" there is also the set "validation", the one to select by.
    """

    stream = "mnist"
    primary = "accuracy"
    better = "higher"
    input_size, output_size = 1, 10
    horizon: int | None = PIXELS
    readout: Readout = "last"
    # Chance knows the ten classes and their shares in the test set (the ones are most).
    trivial: Mapping[str, float] = {"cross_entropy": math.log(10), "accuracy": 0.1135}

    def __init__(self, config: MnistConfig, device: torch.device | str = "cpu") -> None:
        super().__init__(config, device)
        self.name = config.task
        order = PERMUTATIONS[config.permutation]() if isinstance(config, PsMnistConfig) else None
        images, labels, test_images, test_labels = data.load_mnist(config.data_dir)
        kept = len(images) - (HELD_OUT if config.split == "validation" else 0)
        self._train = self._hold(images[:kept], labels[:kept], order)
        self._sets = {"test": self._hold(test_images, test_labels, order)}
        if config.split == "validation":
            held_out = self._hold(images[kept:], labels[kept:], order)
            self._sets = {"validation": held_out, **self._sets}
        self.epoch_steps = kept // config.batch_size

    def global_batch(self, seed: int, step: int) -> Batch:
        """The next images in the order of this epoch."""
        pixels, labels = self._train
        chosen = self.chosen(seed, step)
        return self._shown(pixels[chosen], labels[chosen])

    def evaluate_sets(self, seed: int, step: int) -> dict[str, Iterable[Batch]]:
        """All images of the set "test", and of "validation" where there is one."""
        return {name: self._pieces(*images) for name, images in self._sets.items()}

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        """The cross-entropy, with the smoothing of the config."""
        smoothing = self.config.label_smoothing or 0.0
        return cross_entropy(prediction, targets, label_smoothing=smoothing)

    @torch.no_grad()
    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """Cross-entropy without smoothing, and the share of right classes."""
        return {
            "cross_entropy": float(cross_entropy(prediction, targets)),
            "accuracy": float((prediction.argmax(-1) == targets).double().mean()),
        }

    def _hold(
        self, images: Tensor, labels: Tensor, order: list[int] | None
    ) -> tuple[Tensor, Tensor]:
        pixels = images.flatten(1)
        if order is not None:
            pixels = pixels[:, order]
        return pixels.to(self.device), labels.long().to(self.device)

    def _pieces(self, pixels: Tensor, labels: Tensor) -> Iterator[Batch]:
        size = self.config.eval_batch_size
        for start in range(0, len(labels), size):
            yield self._shown(pixels[start : start + size], labels[start : start + size])

    def _shown(self, pixels: Tensor, labels: Tensor) -> Batch:
        """Bytes (B, 784) as numbers (784, B, 1) in [0, 1]."""
        return Batch((pixels.t().contiguous().float() / 255).unsqueeze(-1), labels)


class FlatMnist(SequentialMnist):
    """784 pixels in [0, 1] at once, (B, 784), for feed-forward networks."""

    input_size = PIXELS
    horizon = None
    readout = "none"

    def _shown(self, pixels: Tensor, labels: Tensor) -> Batch:
        return Batch(pixels.float() / 255, labels)
