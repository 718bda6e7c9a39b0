"""Sequences of unequal length, as `torch.nn.utils.rnn.PackedSequence` lays them out.

Longest first; of each step only the rows that still move, step after step: row r of step k is row
`starts[k] + r` of the packed array. Nothing is stored, read or computed for what has ended.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor


def _numbers(counts: Sequence[int]) -> Tensor:
    """A tensor of them, in a tenth of the time that `torch.tensor` takes."""
    return torch.frombuffer(array("q", counts), dtype=torch.int64)


@dataclass(frozen=True)
class Ragged:
    """How many rows move at each step: T non-increasing counts."""

    sizes: tuple[int, ...]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each step begins in a packed array; at the end, the length of the array."""
        return (0, *accumulate(self.sizes))

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each sequence, longest first."""
        counts = _numbers((*self.sizes, 0))
        ending = counts[:-1] - counts[1:]  # after each step
        return torch.arange(1, len(counts)).repeat_interleave(ending).flip(0)

    @cached_property
    def _places(self) -> tuple[Tensor, Tensor, Tensor]:
        """(the step of each packed row, its row, where each step begins)."""
        starts = _numbers(self.starts)
        step = torch.arange(len(self.sizes)).repeat_interleave(_numbers(self.sizes))
        return step, torch.arange(self.starts[-1]) - starts[step], starts

    @cached_property
    def before(self) -> Tensor:
        """For every packed row but those of the first step: the row one step before."""
        counts = _numbers(self.sizes)
        here = torch.arange(self.sizes[0], self.starts[-1])
        return here - counts[:-1].repeat_interleave(counts[1:])

    @cached_property
    def final(self) -> Tensor:
        """The last packed row of each sequence."""
        return _numbers(self.starts)[self.lengths - 1] + torch.arange(self.sizes[0])

    @cached_property
    def flipped(self) -> Tensor:
        """For every packed row, the one that has its place when each sequence runs backwards."""
        step, row, starts = self._places
        return starts[self.lengths[row] - 1 - step] + row
