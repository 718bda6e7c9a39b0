"""Layouts of sequences: what `torch.nn.RNN` accepts, turned into what a scan takes, and back."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from roann import _checks
from roann.kernels.ragged import Ragged


@dataclass(slots=True)  # not frozen, which makes one slow to build
class Layout:
    """How the user's sequence was laid out."""

    batched: bool  # whether there was a batch dimension
    batch_first: bool  # whether it came before time
    steps: int  # T, of the longest
    batch: int  # B
    packed: PackedSequence | None = None  # if it was one; rows are then in its sorted order
    ragged: Ragged | None = None  # how its rows end, if they are of unequal length

    @property
    def batch_sizes(self) -> tuple[int, ...] | None:
        """Its arguments for `roa_scan`."""
        return None if self.ragged is None else self.ragged.sizes


def enter(
    input: Tensor | PackedSequence, batch_first: bool, input_size: int, like: Tensor
) -> tuple[Tensor, Layout]:
    """The input as (T, B, I), or as it is packed, (S, I), if sequences are of unequal length."""
    if isinstance(input, PackedSequence):
        _features("input", input.data, input_size, like)
        return _enter_packed(input)
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
    return u, Layout(batched, batch_first and batched, *u.shape[:2])


def _enter_packed(input: PackedSequence) -> tuple[Tensor, Layout]:
    sizes: tuple[int, ...] = tuple(input.batch_sizes.tolist())
    steps, batch = len(sizes), sizes[0]
    if sizes[-1] == batch:
        u = input.data.view(steps, batch, -1)
        return u, Layout(True, False, steps, batch, input)
    return input.data, Layout(True, False, steps, batch, input, Ragged(sizes))


def enter_state(hx: Tensor | None, form: Layout, shape: tuple[int, int], like: Tensor) -> Tensor:
    """The initial state as (layers, B, N), rows in the order of the scan."""
    layers, N = shape
    B = form.batch
    if hx is None:
        return like.new_zeros(layers, B, N)
    wanted = (layers, B, N) if form.batched else (layers, N)
    kind = "a batch of packed sequences" if form.packed is not None else "this input"
    _checks.state(hx, wanted, f" for {kind}")
    _checks.same_dtype("hx", hx, like)
    _checks.same_device("hx", hx, like)
    if not form.batched:
        return hx.unsqueeze(1)
    if form.packed is not None and form.packed.sorted_indices is not None:
        return hx.index_select(1, form.packed.sorted_indices)
    return hx


def leave(states: Tensor, form: Layout) -> Tensor | PackedSequence:
    """The states of a scan back into the user's layout."""
    if form.packed is not None:
        p = form.packed
        data = states.reshape(-1, states.shape[-1])
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
    if form.ragged is None:
        return x.flip(0)
    return x.index_select(0, form.ragged.flipped.to(x.device))


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
    _checks.same_device(argument, x, like)
