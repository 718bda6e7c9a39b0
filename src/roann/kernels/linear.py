"""The forms in which a kernel may consume the orthogonal filter O.

A filter (`roann.filters`) owns buffers and knows how it was drawn; a kernel only needs to
know how to multiply by it. These small immutable structs are all that passes between them.
Every tensor may carry a leading step dimension (T, …): then O differs from step to step,
as in a feed-forward network (depth is time with untied weights).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(eq=False)
class Linear(ABC):
    """Abstract: a linear map applied to the last dimension of x.

    Attributes:
        name: its name in `FORMS`; a scan multiplies by the dense matrix of a form without one.
        code: the number the native kernel knows it by, if it does.
        names: the names of its tensors, which are its annotated fields.
        integers: those that hold places in x, not numbers.
        rectangular: whether N_out and N_in may differ; otherwise a rectangular filter is a corner.
    """

    name: ClassVar[str | None] = None
    code: ClassVar[int | None] = None
    names: ClassVar[tuple[str, ...]] = ()
    integers: ClassVar[tuple[str, ...]] = ()
    rectangular: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.names = tuple(cls.__annotations__)

    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the form, in a fixed order (see `with_tensors`)."""
        return tuple(getattr(self, name) for name in self.names)

    def with_tensors(self, tensors: tuple[Tensor, ...]) -> Self:
        """The same form over other tensors."""
        return type(self)(*tensors)

    @property
    @abstractmethod
    def stacked(self) -> bool:
        """Whether the tensors carry a leading step dimension."""

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
    matrix: Tensor

    def shapes(self, out: int, into: int) -> tuple[tuple[int, ...], ...]:
        return ((out, into),)

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.matrix,)

    @property
    def stacked(self) -> bool:
        return self.matrix.dim() == 3

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

    @property
    def stacked(self) -> bool:
        return self.index.dim() == 2

    def matvec(self, x: Tensor) -> Tensor:
        return _take(x, self.index)

    def matvec_transpose(self, x: Tensor) -> Tensor:
        return _take(x, self.inverse)

    def to_dense(self) -> Tensor:
        eye = torch.eye(self.index.shape[-1], device=self.index.device)
        return eye[self.index]


@dataclass(eq=False)
class Rotation(Linear):
    """Disjoint plane rotations: (O x)_i = cos_i x_i + sin_i x[partner_i]. O(N).

    The two members of a plane have equal cos and opposite sin; a coordinate without a partner
    (N odd) is its own, with cos = 1 and sin = 0. So Oᵀ is the same with −sin.
    """

    name = "rotation"
    code = 2
    integers = ("partner",)
    cos: Tensor
    sin: Tensor
    partner: Tensor

    @property
    def stacked(self) -> bool:
        return self.cos.dim() == 2

    def matvec(self, x: Tensor) -> Tensor:
        return _stack_like(self.cos, x) * x + _stack_like(self.sin, x) * _take(x, self.partner)

    def matvec_transpose(self, x: Tensor) -> Tensor:
        return _stack_like(self.cos, x) * x - _stack_like(self.sin, x) * _take(x, self.partner)

    def to_dense(self) -> Tensor:
        N = self.cos.shape[-1]
        eye = torch.eye(N, device=self.cos.device, dtype=self.cos.dtype)
        return torch.diag_embed(self.cos) + self.sin.unsqueeze(-1) * eye[self.partner]


@dataclass(eq=False)
class Planes(Linear):
    """Rotations of the planes (2j, 2j + 1): (O x)_i = cos_i x_i + sin_i x_{i±1}. O(N).

    A `Rotation` whose pairs are fixed, so that a kernel swaps the lanes of a register and gathers
    nothing. The last coordinate of an odd N has cos = 1 and sin = 0.
    """

    name = "planes"
    code = 3
    cos: Tensor
    sin: Tensor

    @property
    def stacked(self) -> bool:
        return self.cos.dim() == 2

    def matvec(self, x: Tensor) -> Tensor:
        return _stack_like(self.cos, x) * x + _stack_like(self.sin, x) * _neighbours(x)

    def matvec_transpose(self, x: Tensor) -> Tensor:
        return _stack_like(self.cos, x) * x - _stack_like(self.sin, x) * _neighbours(x)

    def to_dense(self) -> Tensor:
        eye = torch.eye(self.cos.shape[-1], device=self.cos.device, dtype=self.cos.dtype)
        return torch.diag_embed(self.cos) + self.sin.unsqueeze(-1) * _neighbours(eye)


def _neighbours(x: Tensor) -> Tensor:
    """x with the two coordinates of every plane (2j, 2j + 1) exchanged; an odd last one stays."""
    even = x.shape[-1] // 2 * 2
    swapped = x[..., :even].reshape(*x.shape[:-1], even // 2, 2).flip(-1).flatten(-2)
    return swapped if even == x.shape[-1] else torch.cat([swapped, x[..., even:]], -1)


FORMS: dict[str | None, type[Linear]] = {
    form.name: form for form in (Dense, Gather, Rotation, Planes)
}
