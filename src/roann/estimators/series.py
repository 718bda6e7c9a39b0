"""Sets of series of equal or unequal length, and batches of them.

Note [Unequal lengths]
----------------------
All steps of all series lie one after another in one array: nothing is padded. A batch of unequal
lengths is packed as `torch.nn.utils.rnn.PackedSequence` is, longest first, so a scan computes and
stores real steps only. Batches for training hold series of similar length: the rows of an epoch
are shuffled, then sorted by length within groups of `GROUP` batches, and the batches shuffled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from roann.kernels.ragged import Ragged

GROUP = 8
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Series:
    """n series, one after another.

    Attributes:
        values: (S, C), S the sum of all lengths; NaN where a value is missing.
        lengths: (n,).
        times: (S,), the time stamp of each step; None for regular samples.
    """

    values: Floats
    lengths: Ints
    times: Floats | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def channels(self) -> int:
        """C."""
        return int(self.values.shape[1])

    @cached_property
    def starts(self) -> Ints:
        """Where each series begins."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def owner(self) -> Ints:
        """The series that each step belongs to, (S,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def since_start(self) -> Ints:
        """The position of each step within its series, (S,)."""
        return np.arange(len(self.values)) - self.starts[self.owner]

    def intervals(self, dt: float) -> Floats | None:
        """The time before each step, (S,); the first step of a series takes dt."""
        if self.times is None:
            return None
        steps = np.diff(self.times, prepend=self.times[:1])
        steps[self.starts] = dt
        return steps

    def take(self, rows: Ints) -> Series:
        """The series with these indices."""
        lengths = self.lengths[rows]
        steps = np.repeat(self.starts[rows] - (np.cumsum(lengths) - lengths), lengths)
        steps += np.arange(len(steps))
        times = None if self.times is None else self.times[steps]
        return Series(self.values[steps], lengths, times)

    def split(self) -> list[Floats]:
        """Each series, (T_i, C)."""
        return np.split(self.values, self.starts[1:])

    @classmethod
    def of(cls, parts: list[Floats], times: Floats | None = None) -> Series:
        """From arrays (T_i, C)."""
        return cls(np.concatenate(parts), np.array([len(p) for p in parts], np.int64), times)


@dataclass(frozen=True)
class Batch:
    """Some series, ready for a network.

    Attributes:
        rows: (B,), which series they are, in the order of the batch.
        inputs: (T, B, I); or, for unequal lengths, (S, I) as packed.
        lengths: (B,), longest first.
        intervals: laid out as inputs without the last dimension; None for regular samples.
        sizes: rows that still move at each step; None for equal lengths.
    """

    rows: Tensor
    inputs: Tensor
    lengths: Tensor
    intervals: Tensor | None
    sizes: tuple[int, ...] | None

    @cached_property
    def ragged(self) -> Ragged | None:
        """How series of unequal length are packed."""
        return None if self.sizes is None else Ragged(self.sizes)

    def with_inputs(self, inputs: Tensor) -> Batch:
        """The same series with other inputs."""
        return replace(self, inputs=inputs)

    def to(self, dtype: torch.dtype) -> Batch:
        """The same series in another precision."""
        intervals = None if self.intervals is None else self.intervals.to(dtype)
        return replace(self, inputs=self.inputs.to(dtype), intervals=intervals)

    def pack(self, data: Tensor) -> Tensor | PackedSequence:
        """Tensors laid out as `inputs`, for a layer."""
        if self.sizes is None:
            return data
        return PackedSequence(data, torch.tensor(self.sizes))

    @cached_property
    def columns(self) -> Tensor:
        """For each packed row, the series of the batch that it belongs to, (S,)."""
        counts = torch.tensor(self.sizes)
        firsts = (counts.cumsum(0) - counts).repeat_interleave(counts)
        return (torch.arange(len(self.inputs)) - firsts).to(self.inputs.device)


@dataclass(frozen=True)
class Prepared:
    """A set of series as a network takes them: (S, I) in float32, and the time before each step."""

    inputs: Tensor
    lengths: Tensor
    starts: Tensor
    intervals: Tensor | None

    def __len__(self) -> int:
        return len(self.lengths)

    def steps(self, rows: Tensor) -> Tensor:
        """Where the steps of a batch of these rows, longest first, lie in `inputs`."""
        k = torch.arange(int(self.lengths[rows[0]])).unsqueeze(1)
        steps, moving = self.starts[rows] + k, k < self.lengths[rows]
        return steps if bool(moving.all()) else steps[moving]

    def batch(self, rows: Tensor) -> Batch:
        """The series with these indices, longest first."""
        lengths = self.lengths[rows]
        equal = bool((lengths == lengths[0]).all())
        if not equal:
            order = torch.argsort(lengths, descending=True, stable=True)
            rows, lengths = rows[order], lengths[order]
        steps = self.steps(rows)
        sizes = None
        if not equal:
            k = torch.arange(int(lengths[0])).unsqueeze(1)
            sizes = tuple((k < lengths).sum(1).tolist())
        intervals = None if self.intervals is None else self.intervals[steps]
        return Batch(rows, self.inputs[steps], lengths, intervals, sizes)

    def in_order(self, batch_size: int) -> Iterator[Batch]:
        """All series once, those of one length together."""
        order = torch.argsort(self.lengths, descending=True, stable=True)
        yield from map(self.batch, torch.split(order, batch_size))

    def shuffled(self, rows: Tensor, batch_size: int, generator: torch.Generator) -> list[Batch]:
        """These rows once, in batches of similar length: Note [Unequal lengths]."""
        rows = rows[torch.randperm(len(rows), generator=generator)]
        if bool((self.lengths[rows] == self.lengths[rows[0]]).all()):
            return [self.batch(part) for part in torch.split(rows, batch_size)]
        parts: list[Tensor] = []
        for group in torch.split(rows, batch_size * GROUP):
            order = torch.argsort(self.lengths[group], stable=True)
            parts += torch.split(group[order], batch_size)
        order = torch.randperm(len(parts), generator=generator)
        return [self.batch(parts[i]) for i in order.tolist()]
