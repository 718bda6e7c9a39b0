"""The Legendre memory unit: a window of the past as Legendre coefficients."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, Range, Width, fail
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


class LmuConfig(HiddenSettings):
    """Settings of the Legendre memory unit."""

    hidden_size: Width = 212  # number of hidden units, N.
    # d, the number of Legendre coefficients in the memory.
    order: Annotated[int, Range(1, 2048)] = 256
    # θ, the length of the remembered window in steps; the task's horizon if not given.
    theta: Annotated[float, Range(1e-3, 1e9)] | None = None


def delay_network(order: int, theta: float) -> tuple[Tensor, Tensor]:
    """Ā (d, d) and B̄ (d,) in float64: the delay network over θ steps, held between steps.

    θ A_ij = (2i+1)·(−1 if i < j else (−1)^(i−j+1)), θ B_i = (2i+1)(−1)^i, and
    exp([[A, B], [0, 0]]) = [[Ā, B̄], [0, 1]] (zero-order hold, one step). In float32 the
    exponential would already be wrong by 2.5e-6, and Euler's scheme diverges at d = 256, θ = 784.

    Example:
        >>> A, B = delay_network(1, 4.0)
        >>> bool((A[0, 0] + B[0] - 1).abs() < 1e-15)
        True
    """
    j = torch.arange(order, dtype=torch.float64)
    i = j.unsqueeze(1)
    below = torch.where((i - j) % 2 == 0, -1.0, 1.0).to(j)
    generator = torch.zeros(order + 1, order + 1, dtype=torch.float64)
    generator[:order, :order] = (2 * i + 1) * torch.where(i < j, -1.0, below) / theta
    generator[:order, order] = (2 * j + 1) * torch.where(j % 2 == 0, 1.0, -1.0) / theta
    held = torch.linalg.matrix_exp(generator)
    return held[:order, :order], held[:order, order]


class Lmu(DrivenSystem[LmuConfig]):
    r"""Legendre memory unit, `Voelker, Kajić & Eliasmith 2019
    <https://papers.nips.cc/paper/9689>`_.

        u = e_xᵀx + e_hᵀh + e_mᵀm,   m' = Ā m + B̄ u,   h' = tanh(W_x x + W_h h + W_m m')

    with the new m and the old h, and no bias. Ā, B̄ are fixed: m holds the Legendre coefficients
    of u over the last θ steps (`delay_network`). State (h, m), output h.

    All linear maps of a step are folded into one matrix, once per sequence:
    m' = (Ā + B̄e_mᵀ) m + B̄e_hᵀ h + B̄e_xᵀ x, and h' likewise through W_m.

    Count: I + N + d + N(I + N + d), and 10N + 10 for a readout: 102,027 at N = 212, d = 256, the
    table's 102k, and the count printed by the published notebook.

    Example:
        >>> system = Lmu(1, LmuConfig(3, 6, theta=10.0), dtype=torch.float64)
        >>> e_0 = torch.eye(6).double()[0]  # the window of a constant input 1
        >>> bool((system.A_bar @ e_0 + system.B_bar - e_0).abs().max() < 1e-13)
        True
    """

    head_init = "xavier_uniform"
    A_bar: Tensor
    B_bar: Tensor

    def build(self, new: Source) -> None:
        N, d, theta = self.config.hidden_size, self.config.order, self.config.theta
        if theta is None:
            fail("theta", "the length of the window in steps", None, "give LmuConfig.theta")
        self.state_size, self.output_size = N + d, N
        self.e_x = new.constant(1, self.input_size)
        self.e_h = new.constant(0, N)
        self.e_m = new.constant(0, d)
        self.W_x = new.constant(0, N, self.input_size)
        self.W_h = new.constant(0, N, N)
        self.W_m = new.drawn(nn.init.xavier_normal_, N, d)
        for name, value in zip(("A_bar", "B_bar"), delay_network(d, theta), strict=True):
            self.register_buffer(name, value.to(self.W_m))

    def drive(self, u: Tensor) -> Tensor:
        """[W_x x + W_m B̄ e_xᵀx; B̄ e_xᵀx]."""
        into_m = torch.outer(self.B_bar, self.e_x)
        return u @ torch.cat([self.W_x + self.W_m @ into_m, into_m]).mT

    def transition(self) -> Transition:
        N = self.output_size
        to_m = torch.cat(
            [torch.outer(self.B_bar, self.e_h), self.A_bar + torch.outer(self.B_bar, self.e_m)], 1
        )
        from_h = torch.cat([self.W_h, torch.zeros_like(self.W_m)], 1)
        linear = torch.cat([from_h + self.W_m @ to_m, to_m]).mT

        def advance(x: Tensor, d: Tensor) -> Tensor:
            y = x @ linear + d
            return torch.cat([torch.tanh(y[..., :N]), y[..., N:]], -1)

        return advance


LMU = row(Lmu, LmuConfig(3, 4), horizon="theta")
