"""The forms in which a kernel may consume the orthogonal filter O.

A filter (`roann.filters`) owns buffers and knows how it was drawn; a kernel only needs to
know how to multiply by it. These small immutable structs are all that passes between them.
Every tensor may carry a leading step dimension (T, …): then O differs from step to step,
as in a feed-forward network (depth is time with untied weights).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(eq=False)
class Linear(ABC):
    """Abstract: a linear map applied to the last dimension of x."""

    name: ClassVar[str | None] = None  # in `FORMS`; one without is made a dense matrix by a scan
    code: ClassVar[int | None] = None  # the number the native kernel knows it by, if it does
    names: ClassVar[tuple[str, ...]] = ()  # of its tensors, which are its annotated fields
    integers: ClassVar[tuple[str, ...]] = ()  # those that hold places in x, not numbers
    rectangular: ClassVar[bool] = False  # otherwise a rectangular filter is a corner of a square
    rank: ClassVar[int] = 1  # dimensions of its last tensor, without that of the steps

    def __init_subclass__(cls) -> None:
        cls.names = (*cls.names, *inspect.get_annotations(cls))

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the form, in a fixed order (see `with_tensors`)."""
        return tuple(getattr(self, name) for name in self.names)

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Self:
        """The same form over other tensors."""
        return type(self)(*tensors)

    @property
    def stacked(self) -> bool:
        """Whether the tensors carry a leading step dimension."""
        last: Tensor = getattr(self, self.names[-1])
        return last.dim() > self.rank

    def shapes(self, out: int, into: int) -> tuple[tuple[int, ...], ...]:
        """The shapes of the tensors of one map, without the step dimension."""
        return ((out,),) * len(self.names)

    def at(self, k: int) -> Self:
        """The map of step k (itself if it is shared by all steps)."""
        return self.with_tensors(tuple(t[k] for t in self.tensors())) if self.stacked else self

    def segment(self, start: int, stop: int) -> Self:
        """The maps of steps start … stop − 1."""
        if not self.stacked:
            return self
        return self.with_tensors(tuple(t[start:stop] for t in self.tensors()))

    @abstractmethod
    def matvec(self, x: Tensor) -> Tensor:
        """O x, for x of shape (…, N_in); a stacked form takes (T, …, N_in)."""

    @abstractmethod
    def matvec_transpose(self, x: Tensor) -> Tensor:
        """Oᵀ x, for x of shape (…, N_out); a stacked form takes (T, …, N_out)."""

    @abstractmethod
    def to_dense(self) -> Tensor:
        """O as a matrix (N_out, N_in), or (T, N_out, N_in)."""


@dataclass(eq=False)
class Dense(Linear):
    """A full matrix (N_out, N_in): one product of O(N²)."""

    name = "dense"
    code = 0
    rectangular = True
    rank = 2
    matrix: Tensor

    def shapes(self, out: int, into: int) -> tuple[tuple[int, ...], ...]:
        return ((out, into),)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.matrix,)

    def matvec(self, x: Tensor) -> Tensor:
        if self.stacked:
            return torch.matmul(x, self.matrix.mT)
        return F.linear(x, self.matrix)

    def matvec_transpose(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.matrix)

    def to_dense(self) -> Tensor:
        return self.matrix


def _stack_like(v: Tensor, x: Tensor) -> Tensor:
    """Per-step vectors v (T, N) shaped to act on x (T, …, N); shared ones (N,) stay."""
    if v.dim() == 1:
        return v
    return v.reshape(v.shape[0], *(1,) * (x.dim() - 2), v.shape[1])


def _take(x: Tensor, index: Tensor) -> Tensor:
    """x[…, index], where index is (N,) or one per step (T, N) for x (T, …, M)."""
    if index.dim() == 1:
        return x.index_select(-1, index)
    return x.gather(-1, _stack_like(index, x).expand(*x.shape[:-1], index.shape[-1]))


@dataclass(eq=False)
class Gather(Linear):
    """A permutation: (O x)_i = x[index_i], (Oᵀ x)_j = x[inverse_j]. O(N)."""

    name = "gather"
    code = 1
    integers = ("index", "inverse")
    index: Tensor
    inverse: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        return self.index, self.inverse

    def matvec(self, x: Tensor) -> Tensor:
        return _take(x, self.index)

    def matvec_transpose(self, x: Tensor) -> Tensor:
        return _take(x, self.inverse)

    def to_dense(self) -> Tensor:
        eye = torch.eye(self.index.shape[-1], device=self.index.device)
        return eye[self.index]


@dataclass(eq=False)
class _Turning(Linear):
    """Abstract: rotations of planes, (O x)_i = cos_i x_i + sin_i x[partner of i]. O(N).

    The two members of a plane have equal cos and opposite sin; a coordinate without a partner
    (N odd) has cos = 1 and sin = 0. So Oᵀ is the same with −sin.
    """

    cos: Tensor
    sin: Tensor

    @abstractmethod
    def _partners(self, x: Tensor) -> Tensor:
        """x with the two coordinates of every plane exchanged."""

    def matvec(self, x: Tensor) -> Tensor:
        return _stack_like(self.cos, x) * x + _stack_like(self.sin, x) * self._partners(x)

    def matvec_transpose(self, x: Tensor) -> Tensor:
        return _stack_like(self.cos, x) * x - _stack_like(self.sin, x) * self._partners(x)

    def to_dense(self) -> Tensor:
        *lead, N = self.cos.shape
        eye = torch.eye(N, device=self.cos.device, dtype=self.cos.dtype).expand(*lead, N, N)
        return torch.diag_embed(self.cos) + self.sin.unsqueeze(-1) * self._partners(eye)


@dataclass(eq=False)
class Rotation(_Turning):
    """Rotations of disjoint planes of any coordinates; one without a partner is its own."""

    name = "rotation"
    code = 2
    integers = ("partner",)
    partner: Tensor

    def _partners(self, x: Tensor) -> Tensor:
        return _take(x, self.partner)


@dataclass(eq=False)
class Planes(_Turning):
    """Rotations of the planes (2j, 2j + 1): a kernel swaps the lanes of a register, no gather."""

    name = "planes"
    code = 3

    def _partners(self, x: Tensor) -> Tensor:
        even = x.shape[-1] // 2 * 2  # an odd last one stays
        swapped = x[..., :even].reshape(*x.shape[:-1], even // 2, 2).flip(-1).flatten(-2)
        return swapped if even == x.shape[-1] else torch.cat([swapped, x[..., even:]], -1)


FORMS: dict[str | None, type[Linear]] = {
    form.name: form for form in (Dense, Gather, Rotation, Planes)
}
