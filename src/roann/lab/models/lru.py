"""LRU: linear recurrences with complex eigenvalues, and nonlinear maps between them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Unpack

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import Layers, Range, Settings, Width, fail
from roann.lab.models.base import SequenceSystem
from roann.lab.models.recurrence import Factory, parameter, row, scan, uniform_


@dataclass(frozen=True)
class LruConfig(Settings):
    """Settings of a stack of linear recurrent units.

    Attributes:
        width: width H of the signal between the units.
        hidden_size: number of complex numbers N in the state of each unit.
        layers: number of units, L, one after the other.
        r_min: smallest modulus |λ| of the eigenvalues at the start.
        r_max: largest modulus |λ| of the eigenvalues at the start.
    """

    width: Width = 64
    hidden_size: Width = 64
    layers: Layers = 2
    r_min: Annotated[float, Range(0, 0.999999)] = 0.9
    r_max: Annotated[float, Range(1e-6, 0.999999)] = 0.999

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.r_min >= self.r_max:
            fail("r_min", f"less than r_max = {self.r_max:g}", self.r_min)


class LinearRecurrence(nn.Module):
    """λ = exp(−e^ν + i e^ϑ),  h' = λ ⊙ h + e^γ ⊙ (B x),  y = Re(C h') + D ⊙ x.

    Complex tensors are held as two real ones: B (2, N, H), C (2, H, N), h = [Re; Im] (…, 2N). At
    first |λ|² is uniform between the squares of r_min and r_max.
    """

    def __init__(
        self,
        width: int,
        hidden_size: int,
        r_min: float,
        r_max: float,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        self.nu = parameter(hidden_size, **factory)
        self.theta = parameter(hidden_size, **factory)
        self.gamma = parameter(hidden_size, **factory)
        self.B = parameter(2, hidden_size, width, **factory)
        self.C = parameter(2, width, hidden_size, **factory)
        self.D = parameter(width, **factory)
        with torch.no_grad():
            nn.init.uniform_(self.nu, r_min**2, r_max**2, generator=generator)
            self.gamma.copy_((1 - self.nu).log() / 2)
            self.nu.copy_((-self.nu.log() / 2).log())
            # Above zero, whose logarithm is not a number; below 2π.
            nn.init.uniform_(self.theta, 1e-4 * math.tau, math.tau, generator=generator).log_()
            nn.init.normal_(self.B, 0, (2 * width) ** -0.5, generator=generator)
            nn.init.normal_(self.C, 0, hidden_size**-0.5, generator=generator)
            nn.init.normal_(self.D, generator=generator)

    def eigenvalues(self) -> Tensor:
        """λ (N,), complex."""
        return torch.polar(torch.exp(-self.nu.exp()), self.theta.exp())

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """From x (T, …, H) and h[0] (…, 2N) to y (T, …, H) and h[T] (…, 2N)."""
        lam = self.eigenvalues()
        drive = x @ (self.B * self.gamma.exp().unsqueeze(-1)).flatten(0, 1).mT
        z = scan(
            lambda h, d: torch.addcmul(d, lam, h),
            torch.complex(*drive.chunk(2, -1)),
            torch.complex(*h.chunk(2, -1)),
        )
        y = z.real @ self.C[0].mT - z.imag @ self.C[1].mT + self.D * x
        return y, torch.cat([z[-1].real, z[-1].imag], -1)


class LruBlock(nn.Module):
    """x + GLU(GELU(LRU(norm(x)))), the norm over units, GLU(y) = (W₁y + b₁) ⊙ σ(W₂y + b₂)."""

    def __init__(
        self, config: LruConfig, generator: torch.Generator | None, **factory: Unpack[Factory]
    ) -> None:
        super().__init__()
        H = config.width
        self.norm = nn.LayerNorm(H, **factory)
        self.unit = LinearRecurrence(
            H, config.hidden_size, config.r_min, config.r_max, generator, **factory
        )
        self.W = parameter(2 * H, H, **factory)
        self.b = parameter(2 * H, **factory)
        uniform_(H**-0.5, generator, self.W, self.b)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """From x (T, …, H) and h[0] (…, 2N) to the same."""
        y, h = self.unit(self.norm(x), h)
        return x + F.glu(F.linear(F.gelu(y), self.W, self.b), -1), h


class Lru(SequenceSystem):
    r"""A stack of linear recurrent units, `Orvieto et al. 2023 <https://arxiv.org/abs/2303.06349>`_.

        λ = exp(−e^ν + i e^ϑ),   h' = λ ⊙ h + e^γ ⊙ (B x),   y = Re(C h') + D ⊙ x

    in each of L blocks x + GLU(GELU(y(norm x))), after an affine map of the inputs to the width.
    The recurrence is linear, diagonal and stable by construction (|λ| < 1); all that is nonlinear
    acts between layers. The state is the output, on which nothing depends, and h of all units.

    Start: |λ|² ~ U(r_min², r_max²), phases U(0, 2π), γ = log √(1 − |λ|²), B and C normal with
    variance 1/(2H) and 1/N per part, D ~ N(0, 1); affine maps as torch.nn.Linear.

    Example:
        >>> unit = LinearRecurrence(2, 50, 0.5, 0.9)
        >>> r = unit.eigenvalues().abs()
        >>> bool(0.5 <= r.min() and r.max() <= 0.9)
        True
    """

    def __init__(
        self,
        input_size: int,
        config: LruConfig,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        H, self.unit_size = config.width, 2 * config.hidden_size
        self.input_size, self.output_size = input_size, H
        self.state_size = H + self.unit_size * config.layers
        self.E = parameter(H, input_size, **factory)
        self.b = parameter(H, **factory)
        uniform_(input_size**-0.5, generator, self.E, self.b)
        self.blocks = nn.ModuleList(
            LruBlock(config, generator, **factory) for _ in range(config.layers)
        )

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(u, self.start(u, state))

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return self._run(u.unsqueeze(0), x)[1]

    def _run(self, u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y, after = u @ self.E.mT + self.b, []
        units = torch.split(x[..., self.output_size :], self.unit_size, -1)
        for block, h in zip(self.blocks, units, strict=True):
            y, h = block(y, h)
            after.append(h)
        return y, torch.cat([y[-1], *after], -1)


# No setting is published for these tasks with one small stack.
ROW = row(Lru, LruConfig(3, 2, 2))
