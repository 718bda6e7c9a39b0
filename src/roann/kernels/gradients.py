"""The gradients of a scan with respect to its parameters and inputs, from what a sweep found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from roann.kernels.problem import Adjoint, Before, Kernel, Problem

LEAVES = ("x0", "u", "W", "W_i", "b", "alpha")  # what has a gradient, in the operators' order
_SHARED = {"W": 2, "W_i": 2, "b": 1, "alpha": 1}  # dimensions of what all steps add to, at most


@dataclass
class Gradients:
    """Gradients of a scan, accumulated segment by segment; None where not wanted."""

    of: Problem
    x0: Tensor | None = None
    u: Tensor | None = None
    W: Tensor | None = None
    W_i: Tensor | None = None
    b: Tensor | None = None
    alpha: Tensor | None = None

    @classmethod
    def wanted(cls, p: Problem, wanted: Sequence[bool]) -> Gradients:
        """Room for what is wanted of `LEAVES`; that of x0 comes from the last sweep.

        What all steps share starts at zero; what each step has of its own is written, not added to.
        """
        found = cls(p)
        for name, need in zip(LEAVES, wanted, strict=True):
            if need and name != "x0":
                shape = getattr(p, name).shape
                shared = len(shape) <= _SHARED.get(name, 0)
                make = p.x0.new_zeros if shared else p.x0.new_empty
                setattr(found, name, make(shape))
        return found

    def copy(self) -> Gradients:
        """A copy to return to if a stretch must be done again.

        Only sums are copied: what has one entry per step is overwritten, not added to.
        """
        made = replace(self)
        for name, dim in _SHARED.items():
            v = getattr(self, name)
            if v is not None and v.dim() <= dim:
                setattr(made, name, v.clone())
        return made

    def restore(self, copy: Gradients) -> None:
        """Return to what `copy` holds."""
        vars(self).update(vars(copy))

    def add(self, p: Problem, start: int, before: Before, found: Adjoint, kernel: Kernel) -> None:
        """Add what the steps of segment `p`, beginning at step `start`, contribute (Eq. 13, 23).

        `before` are the states before each step, see `Problem.before`.
        """
        if found.a is None:
            self._add_made(p, start, found)
        else:
            self._add_products(p, start, before, found.a, kernel)
        if self.alpha is not None and found.moved is not None:
            self._add_alpha(p, start, found.moved)

    def _add_made(self, p: Problem, start: int, found: Adjoint) -> None:
        """What the sweep itself has made."""
        steps = slice(start, start + p.steps)
        if self.W is not None and found.W is not None:
            self.W[steps] = found.W
        if self.b is not None and found.b is not None:
            if self.b.dim() == 1:
                self.b += found.b.sum(0)
            else:
                self.b[steps] = found.b

    def _add_products(
        self, p: Problem, start: int, before: Before, a: Tensor, kernel: Kernel
    ) -> None:
        if self.W is not None and self.W.dim() == 3:
            self._add_deep(p, self.W[start : start + p.steps], before, a)
        if self.b is not None and self.b.dim() == 2:
            self.b[start : start + p.steps] = _over_rows(p, a)
        if self.u is not None and p.W_i is not None:
            torch.matmul(a, p.W_i, out=self.u[self.of.cut(start, start + p.steps)])
        shared = {name: self._shared(name) for name in ("W", "W_i", "b")}
        if all(v is None for v in shared.values()):
            return
        rows, done = a.flatten(0, -2), 0
        u = None if p.u is None else p.u.flatten(0, -2)
        first, others, places = before
        for x, at in ((first, None), (others, places))[: p.steps]:  # a single step has no others
            x = x.flatten(0, -2)
            cut = slice(done, done + len(x if at is None else at))
            kernel.add_outer(rows[cut], x, None if u is None else u[cut], **shared, places=at)
            done = cut.stop

    def _shared(self, name: str) -> Tensor | None:
        """The gradient of what all steps share, if it is wanted."""
        found: Tensor | None = getattr(self, name)
        return found if found is not None and found.dim() == _SHARED[name] else None

    @staticmethod
    def _add_deep(p: Problem, W: Tensor, before: Before, a: Tensor) -> None:
        """One W per step."""
        first, others, places = before
        torch.matmul(p.at(a, 0).mT, first, out=W[0])
        if p.steps == 1:
            return
        if p.ragged is None:
            torch.bmm(a[1:].mT, others, out=W[1:])
            return
        others = others if places is None else others.index_select(0, places)
        for k, x in enumerate(torch.split(others, list(p.ragged.sizes[1:])), 1):
            torch.matmul(p.at(a, k).mT, x, out=W[k])

    def _add_alpha(self, p: Problem, start: int, moved: Tensor) -> None:
        """∂ℓ/∂α[k] = Σ λ[k+1] (φ(y[k]) − O x[k])."""
        assert self.alpha is not None
        if self.alpha.dim() == 2:
            per_step = _over_rows(p, moved)
            kept = per_step.sum(1, True) if self.alpha.shape[1] == 1 else per_step
            self.alpha[start : start + p.steps] = kept
        else:
            every = moved.flatten(0, -2).sum(0)
            self.alpha += every if self.alpha.dim() == 1 else every.sum()


def _over_rows(p: Problem, array: Tensor) -> Tensor:
    """An array over time summed over the rows of each step: (T, ·)."""
    if p.ragged is None:
        return array.sum(1)
    return torch.stack([rows.sum(0) for rows in torch.split(array, list(p.ragged.sizes))])
