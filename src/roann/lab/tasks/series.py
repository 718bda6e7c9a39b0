"""Real series with classes: problems of the UCR and UEA archives, and spoken digits.

Note [Unequal lengths]
----------------------
Series are padded at their ends with zeros, to the longest of a batch. A network answers at every
step, and only its answer at the last real step of a series counts: the targets of all others are
`IGNORED`. So the answer of a causal network does not depend on the padding. (One that normalises
over a batch sees the zeros.) Batches hold series of similar length, as in the estimators.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from roann.lab import data, fsdd, limits, sound
from roann.lab.limits import OneOf, Range, Settings
from roann.lab.tasks.base import Batch, EpochTask
from roann.ts import read_ts

IGNORED = -100  # what torch's cross-entropy leaves out
HELD_OUT = 5  # of the series of each class, every fifth validates
GROUP = 8  # batches whose series are sorted by length
PROBLEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")


class Labelled(NamedTuple):
    """Series (T_i, C) in float32, and the number of the class of each, (n,)."""

    series: list[Tensor]
    labels: Tensor

    def part(self, chosen: Sequence[int]) -> Labelled:
        """The series with these indices."""
        return Labelled([self.series[i] for i in chosen], self.labels[list(chosen)])


class SeriesConfig(Settings):
    """Settings of a task with real series."""

    batch_size: Annotated[int, Range(1, 10_000)] = 16  # number of series in a training batch.
    # all (train on the whole training set) or validation (keep every fifth series of each class for
    # validation). The test set is evaluated in both cases.
    split: Annotated[str, OneOf(("all", "validation"))] = "all"
    eval_batch_size: Annotated[int, Range(1, 10_000)] = 64  # number of series evaluated at once.
    # directory with the files; by default $ROANN_DATA, else the user's cache.
    data_dir: str | None = None


class SeriesTask(EpochTask):
    """Name the class of a series, read from the state at its last step: Note [Unequal lengths].

    Inputs are (T, B, C), scaled by mean and standard deviation of each channel of the training
    series; targets (T, B). α = ρ / the length of the longest training series. An epoch leaves out
    what does not fill a batch, other series each time.

    Evaluation: the set "test"; with the split "validation" there is also the set "validation", the
    one to select by.
    """

    stream = "series"
    primary = "accuracy"
    better = "higher"
    readout = "all"

    def __init__(self, config: SeriesConfig, device: torch.device | str = "cpu") -> None:
        super().__init__(config, device)
        train, test, classes = self.load()
        sets = {"test": test}
        if config.split == "validation":
            held = _every_fifth(train.labels)
            sets = {"validation": train.part(sorted(held)), **sets}
            train = train.part([i for i in range(len(train.labels)) if i not in held])
        if config.batch_size > len(train.labels):
            raise data.DataError(
                f"batch_size: expected at most {len(train.labels)}, the number of training series, "
                f"got {config.batch_size}."
            )
        steps = torch.cat(train.series)
        self._mean = steps.mean(0)
        spread = steps.std(0, correction=0)
        self._scale = torch.where(spread > 0, spread, 1.0)
        self._train = self._scaled(train)
        self._sets = {name: self._scaled(part) for name, part in sets.items()}
        self._lengths = torch.tensor([len(x) for x in train.series])
        self.input_size, self.output_size = steps.shape[1], classes
        self.horizon = int(self._lengths.max())
        self.epoch_steps = len(train.labels) // config.batch_size
        share = torch.bincount(test.labels, minlength=classes).max() / len(test.labels)
        self.trivial = {"cross_entropy": math.log(classes), "accuracy": float(share)}

    @abstractmethod
    def load(self) -> tuple[Labelled, Labelled, int]:
        """Training and test series, and the number of classes."""

    def order(self, rng: torch.Generator) -> Tensor:
        """The series of an epoch, in batches of similar length."""
        B = self.batch_size
        shuffled = torch.randperm(len(self._lengths), generator=rng)[: self.epoch_steps * B]
        groups = torch.split(shuffled, GROUP * B)
        sorted_ = torch.cat([g[torch.argsort(self._lengths[g], stable=True)] for g in groups])
        return sorted_.reshape(-1, B)[torch.randperm(self.epoch_steps, generator=rng)].flatten()

    def global_batch(self, seed: int, step: int) -> Batch:
        """The next series in the order of this epoch."""
        return self._batch(self._train.part(self.chosen(seed, step).tolist()))

    def evaluate_sets(self, seed: int, step: int) -> dict[str, Iterable[Batch]]:
        """All series of the set "test", and of "validation" where there is one."""
        return {name: self._pieces(part) for name, part in self._sets.items()}

    @torch.no_grad()
    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """Cross-entropy and the share of right classes."""
        counts = targets != IGNORED
        right = prediction.argmax(-1)[counts] == targets[counts]
        return {
            "cross_entropy": float(self.loss(prediction, targets)),
            "accuracy": float(right.double().mean()),
        }

    def _scaled(self, found: Labelled) -> Labelled:
        series = [(x - self._mean) / self._scale for x in found.series]
        return Labelled(series, found.labels)

    def _pieces(self, found: Labelled) -> Iterator[Batch]:
        """Longest first: a probe looks at the last step of the first."""
        order = sorted(range(len(found.series)), key=lambda i: -len(found.series[i]))
        size = self.config.eval_batch_size
        for start in range(0, len(order), size):
            yield self._batch(found.part(order[start : start + size]))

    def _batch(self, found: Labelled) -> Batch:
        inputs = pad_sequence(found.series)
        targets = torch.full(inputs.shape[:2], IGNORED)
        ends = torch.tensor([len(x) - 1 for x in found.series])
        targets[ends, torch.arange(len(ends))] = found.labels
        return Batch(inputs.to(self.device), targets.to(self.device))


def _every_fifth(labels: Tensor) -> set[int]:
    """Which series are held out: every fifth of each class, in their order."""
    held: set[int] = set()
    for label in set(labels.tolist()):
        held.update(torch.nonzero(labels == label).flatten()[HELD_OUT - 1 :: HELD_OUT].tolist())
    return held


class ArchiveConfig(SeriesConfig):
    """Settings of a problem of the UCR or UEA archive."""

    # name of the problem: its files are NAME_TRAIN.ts and NAME_TEST.ts in the data directory, or in
    # NAME/ or ucr/NAME/ there. They are at timeseriesclassification.com.
    problem: str = "GunPoint"

    def __post_init__(self) -> None:
        super().__post_init__()
        if PROBLEM.fullmatch(self.problem) is None:
            limits.fail("problem", "a name of letters and digits", repr(self.problem))


class Archive(SeriesTask):
    """A classification problem of the UCR or UEA archive, from its two `.ts` files.

    A missing value is the last one seen, and before the first the mean of its channel.
    """

    name = "ucr"

    def load(self) -> tuple[Labelled, Labelled, int]:
        """The two files of the problem."""
        problem = self.config.problem
        place = data.place(self.config.data_dir)
        folders = (place, place / problem, place / "ucr" / problem)
        folder = next((f for f in folders if (f / f"{problem}_TRAIN.ts").is_file()), None)
        if folder is None:
            raise data.DataError(
                f"{problem}_TRAIN.ts is not in {place}: download the problem from "
                "timeseriesclassification.com, and name its directory in data_dir or in the "
                "environment variable ROANN_DATA."
            )
        train, test = (_read(folder / f"{problem}_{part}.ts") for part in ("TRAIN", "TEST"))
        if train[0][0].shape[1] != test[0][0].shape[1]:
            raise data.DataError(f"the files of {problem} differ in their numbers of channels.")
        classes = sorted({*train[1], *test[1]})
        mean = torch.cat(train[0]).nanmean(0).nan_to_num(0.0)
        return _labelled(*train, classes, mean), _labelled(*test, classes, mean), len(classes)


def _read(path: Path) -> tuple[list[Tensor], list[str]]:
    """Series and the names of their classes."""
    try:
        found = read_ts(path)
    except (OSError, ValueError) as error:
        raise data.DataError(str(error)) from None
    if found.y is None or found.y.dtype.kind != "U":
        raise data.DataError(f"{path} has no classes; the task is for classification.")
    return [torch.from_numpy(x) for x in found.X], found.y.tolist()


def _labelled(series: list[Tensor], names: list[str], classes: list[str], mean: Tensor) -> Labelled:
    codes = torch.tensor([classes.index(name) for name in names])
    return Labelled([_filled(x, mean).float() for x in series], codes)


def _filled(x: Tensor, mean: Tensor) -> Tensor:
    """The last value seen where one is missing, and the mean before the first."""
    seen, here = ~x.isnan(), torch.arange(len(x)).unsqueeze(1)
    last = torch.where(seen, here, -1).cummax(0).values
    return torch.where(last < 0, mean, x.gather(0, last.clamp(min=0)))


VIEWS: dict[str, Callable[[sound.Sound], Tensor]] = {
    "mel": sound.log_mel,  # 40 bands every 10 ms
    "frames": sound.frames,  # 80 samples every 10 ms
    "samples": lambda heard: heard.samples.unsqueeze(1),  # one sample at a time, at 8 kHz
}


class DigitsConfig(SeriesConfig):
    """Settings of the Free Spoken Digits."""

    batch_size: Annotated[int, Range(1, 10_000)] = 32  # number of recordings in a training batch.
    # what a step is: mel (log power in 40 bands, every 10 ms), frames (the 80 samples of 10 ms) or
    # samples (one at a time: up to 18,262 steps).
    view: Annotated[str, OneOf(VIEWS)] = "mel"


class SpokenDigits(SeriesTask):
    """Name the spoken digit; the test set is the recordings numbered 0 to 4 of each."""

    name = "digits"

    def load(self) -> tuple[Labelled, Labelled, int]:
        """The recordings, which `roann data fsdd` fetches."""
        found: tuple[list[Tensor], list[Tensor]] = ([], [])
        labels: tuple[list[int], list[int]] = ([], [])
        for recording in fsdd.load_fsdd(self.config.data_dir):
            found[recording.test].append(VIEWS[self.config.view](recording.sound))
            labels[recording.test].append(recording.digit)
        train, test = (Labelled(x, torch.tensor(y)) for x, y in zip(found, labels, strict=True))
        return train, test, 10
