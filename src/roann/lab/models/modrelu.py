"""modReLU, real and complex, and the two cells built on it around an isometry W."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Protocol, TypeVar, Unpack

import torch
from torch import Tensor, nn

from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, parameter, uniform_


def modrelu(z: Tensor, b: Tensor) -> Tensor:
    """sign(z)·max(|z| + b, 0), real. Its slope is 1 where |z| > −b, else 0; at z = 0 it is 0."""
    return torch.sign(z) * torch.relu(torch.abs(z) + b)


def complex_modrelu(z: Tensor, b: Tensor) -> Tensor:
    """z·max(|z| + b, 0)/|z| of complex z = [Re; Im] (…, 2N), b (N,); 0 at z = 0.

    Written z·max(1 + b/|z|, 0), with |z| taken as 1 where it vanishes or |z|⁻³ would overflow
    (below 2e-13 in float32): the value there is 0 or as small, and the gradient finite, where
    √(Re² + Im²) alone would give NaN. b = 0 is the identity, exactly.
    """
    vanishing = torch.finfo(z.dtype).tiny ** (2 / 3)
    pairs = z.reshape(*z.shape[:-1], 2, -1)
    square = pairs.square().sum(-2)
    inverse = torch.where(square > vanishing, square, 1.0).rsqrt()
    return (pairs * torch.relu(1 + b * inverse).unsqueeze(-2)).reshape(z.shape)


class Sized(Protocol):
    """Settings with a number of units."""

    @property
    def hidden_size(self) -> int:
        """N."""


C = TypeVar("C", bound=Sized)


class OrthogonalSystem(DrivenSystem[C]):
    """Abstract: h' = modrelu_b(W h + W_i x), with a real W made by `recurrent_matrix`."""

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.W_i = parameter(N, self.input_size, **factory)
        self.b = parameter(N, **factory)

    @abstractmethod
    def recurrent_matrix(self) -> Tensor:
        """W (N, N), for the present parameters."""

    def drive(self, u: Tensor) -> Tensor:
        """W_i u."""
        return u @ self.W_i.mT

    def transition(self) -> Transition:
        """h, d ↦ modrelu_b(W h + d)."""
        W_t, b = self.recurrent_matrix().mT, self.b
        return lambda h, d: modrelu(h @ W_t + d, b)


class UnitarySystem(DrivenSystem[C]):
    """Abstract: h' = modReLU_b(W h + V x) on complex h = [Re; Im], with a learned h₀.

    State and output are the 2N real numbers [Re h; Im h].
    """

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.hidden_size = N = self.config.hidden_size
        self.state_size = self.output_size = 2 * N
        self.V = parameter(2 * N, self.input_size, **factory)
        self.b = parameter(N, **factory)
        self.h_0 = parameter(2 * N, **factory)

    def reset_cell(self, generator: torch.Generator | None) -> None:
        """Draw V Glorot uniform, as (I, 2N), b ~ U(±0.01) and h₀ ~ U(±√(3/(2N)))."""
        nn.init.xavier_uniform_(self.V, generator=generator)
        uniform_(0.01, generator, self.b)
        uniform_(math.sqrt(3 / self.state_size), generator, self.h_0)

    @abstractmethod
    def unitary(self) -> Callable[[Tensor], Tensor]:
        """The map [Re h; Im h] ↦ [Re W h; Im W h], for the present parameters."""

    def drive(self, u: Tensor) -> Tensor:
        """V u."""
        return u @ self.V.mT

    def transition(self) -> Transition:
        """h, d ↦ modReLU_b(W h + d)."""
        W, b = self.unitary(), self.b
        return lambda h, d: complex_modrelu(W(h) + d, b)

    def initial_state(self, batch: int) -> Tensor:
        """The learned h₀."""
        return self.h_0.expand(batch, -1)
