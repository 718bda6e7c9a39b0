"""The gradients of a scan with respect to what is shared by its steps: large GEMMs at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from roann.kernels.fused import preactivations
from roann.kernels.problem import Problem


@dataclass
class Gradients:
    """Gradients of a scan, accumulated segment by segment; None where not wanted."""

    u: Tensor | None = None
    W: Tensor | None = None
    W_i: Tensor | None = None
    b: Tensor | None = None
    alpha: Tensor | None = None

    @classmethod
    def wanted(cls, p: Problem) -> Gradients:
        """Zeroed room for every tensor of p that requires a gradient."""
        return cls(
            **{
                name: torch.zeros_like(t)
                for name in ("u", "W", "W_i", "b", "alpha")
                if (t := getattr(p, name)) is not None and t.requires_grad
            }
        )

    def copy(self) -> Gradients:
        """A copy to return to if a stretch must be done again.

        Only sums are copied: what has one entry per step is overwritten, not added to.
        """
        summed = {"W": 2, "W_i": 2, "b": 1, "alpha": 1}
        return Gradients(
            **{
                name: v.clone() if v is not None and v.dim() <= summed.get(name, -1) else v
                for name, v in vars(self).items()
            }
        )

    def restore(self, copy: Gradients) -> None:
        """Return to what `copy` holds."""
        vars(self).update(vars(copy))

    def add(
        self, p: Problem, start: int, states: Tensor, a: Tensor, adjoints: Tensor | None
    ) -> None:
        """Add what the steps of segment `p`, beginning at step `start`, contribute (Eq. 13, 23).

        a[k] = α φ′(y[k]) λ[k+1]; the states before each step are p.x0 and states[:-1].
        """
        cut = slice(start, start + p.steps)
        if self.W is not None and self.W.dim() == 3:
            torch.matmul(a[0].mT, p.x0, out=self.W[start])
            if p.steps > 1:
                torch.bmm(a[1:].mT, states[:-1], out=self.W[start + 1 : start + p.steps])
        elif self.W is not None:
            self.W.addmm_(a[0].mT, p.x0)
        if self.b is not None and self.b.dim() == 2:
            torch.sum(a, 1, out=self.b[cut])
        if self.u is not None and p.W_i is not None:
            torch.matmul(a, p.W_i, out=self.u[cut])
        for low, high, rows in _blocks(p):
            flat = a[low:high, :rows].flatten(0, 1)
            self._add_shared(p, flat, states, slice(low, high), rows)
        if self.alpha is not None and adjoints is not None:
            self._add_alpha(p, cut, states, adjoints)

    def _add_shared(
        self, p: Problem, flat: Tensor, states: Tensor, steps: slice, rows: int
    ) -> None:
        """Add what a block of steps gives to sums over all; `flat` is its a, row after row."""
        if self.b is not None and self.b.dim() == 1:
            self.b += flat.sum(0)
        if self.W_i is not None and p.u is not None:
            self.W_i.addmm_(flat.mT, p.u[steps, :rows].flatten(0, 1))
        if self.W is not None and self.W.dim() == 2:
            # The first step of all has its state in x0, and is done with already.
            first = rows if steps.start == 0 else 0
            previous = states[max(steps.start - 1, 0) : steps.stop - 1, :rows].flatten(0, 1)
            if previous.shape[0]:
                self.W.addmm_(flat[first:].mT, previous)

    def _add_alpha(self, p: Problem, cut: slice, states: Tensor, adjoints: Tensor) -> None:
        """∂ℓ/∂α[k] = Σ λ[k+1] (φ(y[k]) − O x[k]), over the rows that moved."""
        assert self.alpha is not None
        # A single step may change the width: then its states do not stack behind x0.
        x0 = p.x0.unsqueeze(0)
        previous = x0 if p.steps == 1 else torch.cat([x0, states[:-1]])
        moved = p.phi.value(preactivations(p, previous)) - p.O.apply(previous)
        g = moved.mul_(adjoints)
        if p.batch_sizes is not None:
            for k, n in enumerate(p.batch_sizes):
                g[k, n:] = 0
        per_step = g.sum(1)
        if self.alpha.dim() == 2:
            self.alpha[cut] = per_step.sum(1, True) if self.alpha.shape[1] == 1 else per_step
        else:
            self.alpha += per_step.sum(0) if self.alpha.dim() == 1 else per_step.sum()


def _blocks(p: Problem) -> Iterator[tuple[int, int, int]]:
    """(first step, last + 1, rows that move) of blocks whose products are one GEMM each.

    One block, unless sequences end early: then a block of few steps, so that the rows that have
    ended are left out.
    """
    if p.batch_sizes is None:
        yield 0, p.steps, p.x0.shape[0]
        return
    size = max(1, p.steps // 64)
    for low in range(0, p.steps, size):
        yield low, min(low + size, p.steps), p.batch_sizes[low]
