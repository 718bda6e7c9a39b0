"""A stack of linear recurrent units."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.lab.limits import Layers, Range, Settings, Width, fail
from roann.lab.models.recurrence import ConfiguredSystem, Source, row, scan


class LruConfig(Settings):
    """Settings of a stack of linear recurrent units."""

    width: Width = 64  # width H of the signal between the units.
    hidden_size: Width = 64  # number of complex numbers N in the state of each unit.
    layers: Layers = 2  # number of units, L, one after the other.
    # smallest modulus |λ| of the eigenvalues at the start.
    r_min: Annotated[float, Range(0, 0.999999)] = 0.9
    # largest modulus |λ| of the eigenvalues at the start.
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

    def __init__(self, width: int, N: int, r_min: float, r_max: float, new: Source) -> None:
        super().__init__()
        self.nu = new.drawn(partial(nn.init.uniform_, a=r_min**2, b=r_max**2), N)
        # Above zero, whose logarithm is not a number; below 2π.
        self.theta = new.drawn(partial(nn.init.uniform_, a=1e-4 * math.tau, b=math.tau), N)
        self.gamma = new.constant(0, N)
        self.B = new.normal((2 * width) ** -0.5, 2, N, width)
        self.C = new.normal(N**-0.5, 2, width, N)
        self.D = new.normal(1, width)
        with torch.no_grad():
            self.gamma.copy_((1 - self.nu).log() / 2)
            self.nu.copy_((-self.nu.log() / 2).log())
            self.theta.log_()

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

    def __init__(self, config: LruConfig, new: Source) -> None:
        super().__init__()
        H = config.width
        self.norm = nn.LayerNorm(H, **new.factory)
        self.unit = LinearRecurrence(H, config.hidden_size, config.r_min, config.r_max, new)
        self.W, self.b = new.linear(H, 2 * H)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """From x (T, …, H) and h[0] (…, 2N) to the same."""
        y, h = self.unit(self.norm(x), h)
        return x + F.glu(F.linear(F.gelu(y), self.W, self.b), -1), h


class Lru(ConfiguredSystem[LruConfig]):
    r"""A stack of linear recurrent units, `Orvieto et al. 2023 <https://arxiv.org/abs/2303.06349>`_.

        λ = exp(−e^ν + i e^ϑ),   h' = λ ⊙ h + e^γ ⊙ (B x),   y = Re(C h') + D ⊙ x

    in each of L blocks x + GLU(GELU(y(norm x))), after an affine map of the inputs to the width.
    The recurrence is linear, diagonal and stable by construction (|λ| < 1); all that is nonlinear
    acts between layers. The state is the output, on which nothing depends, and h of all units.

    Example:
        >>> unit = LinearRecurrence(2, 50, 0.5, 0.9, Source())
        >>> r = unit.eigenvalues().abs()
        >>> bool(0.5 <= r.min() and r.max() <= 0.9)
        True
    """

    def build(self, new: Source) -> None:
        config, self.output_size = self.config, self.config.width
        self.state_size = self.output_size + 2 * config.hidden_size * config.layers
        self.E, self.b = new.linear(self.input_size, config.width)
        self.blocks = nn.ModuleList(LruBlock(config, new) for _ in range(config.layers))

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        return self._run(u, self.start(u, state))

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return self._run(u.unsqueeze(0), x)[1]

    def _run(self, u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        y, after = u @ self.E.mT + self.b, []
        units = torch.split(x[..., self.output_size :], 2 * self.config.hidden_size, -1)
        for block, h in zip(self.blocks, units, strict=True):
            y, h = block(y, h)
            after.append(h)
        return y, torch.cat([y[-1], *after], -1)


# No setting is published for these tasks with one small stack.
LRU = row(Lru, LruConfig(3, 2, 2))
