"""Layouts of sequences: what `torch.nn.RNN` accepts, turned into (T, B, ·) once and back once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from roann import _checks


@dataclass(frozen=True)
class Layout:
    """How the user's sequence was laid out.

    Attributes:
        batched: whether there was a batch dimension.
        batch_first: whether it came before time.
        packed: the packed sequence itself, if it was one; rows are then in its sorted order.
    """

    batched: bool
    batch_first: bool
    packed: PackedSequence | None

    @cached_property
    def batch_sizes(self) -> tuple[int, ...] | None:
        """How many rows move at each step, if sequences are of unequal length."""
        if self.packed is None or self.packed.batch_sizes[-1] == self.packed.batch_sizes[0]:
            return None
        return tuple(self.packed.batch_sizes.tolist())

    @cached_property
    def lengths(self) -> Tensor:
        """The length of each row, longest first (packed sequences only)."""
        assert self.packed is not None
        sizes = self.packed.batch_sizes
        rows = torch.arange(int(sizes[0]))
        return (rows.unsqueeze(0) < sizes.unsqueeze(1)).sum(0)


def enter(
    input: Tensor | PackedSequence, batch_first: bool, input_size: int, like: Tensor
) -> tuple[Tensor, Layout]:
    """The input as (T, B, I), and its layout."""
    if isinstance(input, PackedSequence):
        _features("input", input.data, input_size, like)
        u, _ = pad_packed_sequence(PackedSequence(input.data, input.batch_sizes))
        return u, Layout(batched=True, batch_first=False, packed=input)
    if not isinstance(input, Tensor):
        _checks.fail("input", "a tensor or a PackedSequence", type(input).__name__, error=TypeError)
    if input.dim() not in (2, 3):
        _checks.fail("input", "2 dimensions (unbatched) or 3", f"{input.dim()}")
    _features("input", input, input_size, like)
    batched = input.dim() == 3
    u = input if batched else input.unsqueeze(1)
    if batched and batch_first:
        u = u.transpose(0, 1)
    if u.shape[0] == 0:
        _checks.fail(
            "input", "at least one time step", "a sequence of length 0", error=RuntimeError
        )
    return u, Layout(batched, batch_first and batched, None)


def enter_state(
    hx: Tensor | None, form: Layout, shape: tuple[int, int], u: Tensor, like: Tensor
) -> Tensor:
    """The initial state as (layers, B, N), rows in the order of the scan."""
    layers, N = shape
    B = u.shape[1]
    if hx is None:
        return torch.zeros(layers, B, N, dtype=like.dtype, device=like.device)
    wanted = (layers, B, N) if form.batched else (layers, N)
    if tuple(hx.shape) != wanted:
        kind = "a batch of packed sequences" if form.packed is not None else "this input"
        _checks.fail("hx", f"shape {wanted} for {kind}", tuple(hx.shape), error=RuntimeError)
    _checks.same_dtype("hx", hx, like)
    if not form.batched:
        return hx.unsqueeze(1)
    if form.packed is not None and form.packed.sorted_indices is not None:
        return hx.index_select(1, form.packed.sorted_indices)
    return hx


def leave(states: Tensor, form: Layout) -> Tensor | PackedSequence:
    """(T, B, N) back into the user's layout."""
    if form.packed is not None:
        p = form.packed
        data = states.reshape(-1, states.shape[-1])
        if form.batch_sizes is not None:
            # One gather; pack_padded_sequence would cut and join a piece per length.
            rows = torch.arange(states.shape[1]) < p.batch_sizes.unsqueeze(1)
            data = data.index_select(0, rows.flatten().nonzero().squeeze(1).to(data.device))
        return PackedSequence(data, p.batch_sizes, p.sorted_indices, p.unsorted_indices)
    if not form.batched:
        return states.squeeze(1)
    return states.transpose(0, 1) if form.batch_first else states


def leave_state(last: Tensor, form: Layout) -> Tensor:
    """(layers, B, N) back into the user's order of rows."""
    if not form.batched:
        return last.squeeze(1)
    if form.packed is not None and form.packed.unsorted_indices is not None:
        return last.index_select(1, form.packed.unsorted_indices)
    return last


def flip(x: Tensor, form: Layout) -> Tensor:
    """x backwards in time, each row within its own length."""
    if form.batch_sizes is None:
        return x.flip(0)
    T = x.shape[0]
    k = torch.arange(T).unsqueeze(1)
    lengths = form.lengths.unsqueeze(0)
    source = torch.where(k < lengths, lengths - 1 - k, k).to(x.device)
    return x.gather(0, source.unsqueeze(-1).expand_as(x))


def _features(argument: str, x: Tensor, input_size: int, like: Tensor) -> None:
    if x.shape[-1] != input_size:
        _checks.fail(
            argument,
            f"{input_size} features in the last dimension",
            x.shape[-1],
            "check input_size and batch_first",
            error=RuntimeError,
        )
    _checks.same_dtype(argument, x, like)
