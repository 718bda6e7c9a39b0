"""The non-saturating recurrent unit: a memory that is written and erased."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.linalg import vector_norm

from roann.lab.limits import HiddenSettings, Width, fail
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


class NruConfig(HiddenSettings):
    """Settings of the non-saturating recurrent unit."""

    hidden_size: Width = 212  # number of hidden units, N.
    # m, the length of the memory; m·k must be the square of a multiple of k.
    memory_size: Width = 256
    heads: Width = 4  # k, the number of directions written, and of those erased, at each step.

    def __post_init__(self) -> None:
        super().__post_init__()
        product = self.memory_size * self.heads
        side = math.isqrt(product)
        if side**2 != product or side % self.heads:
            wanted = "memory_size × heads to be the square of a multiple of heads"
            fail("memory_size", wanted, f"{self.memory_size} × {self.heads}")


class Nru(DrivenSystem[NruConfig]):
    r"""Non-saturating recurrent unit, `Chandar et al. 2019 <https://arxiv.org/abs/1902.06704>`_.

        h' = ReLU(W [x; h; m] + b),    q = [h'; m]
        m' = m + (1/k) Σ_i (α_i v_i^α − β_i v_i^β)

    α, β ∈ R^k are affine in q. v^α comes from an affine u(q) ∈ R^{2s}, s = √(mk): the outer product
    of its halves, s × s, read row by row as k rows of m, each divided by its 5-norm; v^β likewise.
    State (h, m), output h. Nothing saturates: ∂m'/∂m = I + the paths through α, β and v.

    Row i of v is itself an outer product, of the i-th part a_i (s/k numbers) of the left half and
    the right half r, and ‖a_i rᵀ‖₅ = ‖a_i‖₅ ‖r‖₅. So Σ_i α_i v_i = (Σ_i α_i a_i/‖a_i‖₅) rᵀ/‖r‖₅:
    the k directions are never written out.

    Count, with s = √(mk): 4s(m + N + 1) + 2k(m + N + 1) + N(m + N + I + 1), and 10N + 10 for a
    readout: 165,554 at N = 212, m = 256, k = 4, the table's 165k.

    Published code reads the last *batch element* of every output in its `forward`; only its cell
    is right.

    Example:
        >>> system = Nru(1, NruConfig(3, 16, 4))
        >>> change = system.change(torch.randn(16), torch.tensor([0.0, 1.0, 0.0, 0.0]))
        >>> bool((change.norm(5) - 1).abs() < 1e-6)  # one row alone, of 5-norm 1
        True
    """

    head_init = "xavier_normal"
    input_map = ("W_x", "b_h")

    def build(self, new: Source) -> None:
        N, m, k = self.config.hidden_size, self.config.memory_size, self.config.heads
        self.state_size, self.output_size = N + m, N
        self.side = math.isqrt(m * k)
        bound = (self.input_size + N + m) ** -0.5
        self.W_x = new.uniform(bound, N, self.input_size)
        self.W_h = new.uniform(bound, N, N + m)
        self.b_h = new.uniform(bound, N)
        # The four affine maps of q, one above the other: u^α (2s), u^β (2s), α (k), β (k).
        self.W_q, self.b_q = new.linear(N + m, 4 * self.side + 2 * k)

    def change(self, u: Tensor, strength: Tensor) -> Tensor:
        """Σ_i strength_i v_i (…, m), from u (…, 2s) and strength (…, k)."""
        left, right = u.chunk(2, -1)
        a = left.reshape(*left.shape[:-1], self.config.heads, -1)
        norms = vector_norm(a, 5, -1) * vector_norm(right, 5, -1, keepdim=True)
        weight = strength / norms.clamp_min(1e-12)
        column = (weight.unsqueeze(-1) * a).sum(-2)
        total: Tensor = (column.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2)
        return total

    def transition(self) -> Transition:
        N, s, k = self.output_size, self.side, self.config.heads
        W_h, W_q, b_q = self.W_h.mT, self.W_q.mT, self.b_q

        def advance(x: Tensor, d: Tensor) -> Tensor:
            m = x[..., N:]
            q = torch.cat([torch.relu(x @ W_h + d), m], -1)
            u, strength = torch.split(q @ W_q + b_q, [4 * s, 2 * k], -1)
            # Writing and erasing side by side: (…, 2, 2s) and (…, 2, k).
            u, strength = u.reshape(*u.shape[:-1], 2, -1), strength.reshape(*u.shape[:-1], 2, -1)
            write, erase = self.change(u, strength / k).unbind(-2)
            return torch.cat([q[..., :N], m + write - erase], -1)

        return advance


NRU = row(Nru, NruConfig(3, 4, 4))
