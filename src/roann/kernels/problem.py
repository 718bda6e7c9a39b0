"""What a kernel is asked to do, and what it must offer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor

from roann.kernels.activations import Activation
from roann.kernels.linear import Linear


@dataclass(frozen=True)
class Problem:
    """One scan: x[k+1] = α φ(W x[k] + W_i u[k+1] + b) + (1 − α) O x[k], k = 0 … T−1.

    Shapes: B batch, T steps, N state, I input. A leading T on W, b, α or O means one per step
    (depth); without it, shared by all steps (time). W and O may be rectangular only if T = 1.

    Attributes:
        x0: (B, N).
        u: (T, B, I) or None.
        W: (N, N) or (T, N, N).
        W_i: (N, I), with u.
        b: (N,), (T, N) or None.
        O: the filter, see `roann.kernels.linear`.
        alpha: (), (N,), (T, 1) or (T, N).
        phi: the nonlinearity.
        steps: T.
        batch_sizes: None, or T non-increasing counts: at step k only the first batch_sizes[k]
            rows move, the others keep their state (sequences of unequal length, longest first).
    """

    x0: Tensor
    u: Tensor | None
    W: Tensor
    W_i: Tensor | None
    b: Tensor | None
    O: Linear
    alpha: Tensor
    phi: Activation
    steps: int
    batch_sizes: tuple[int, ...] | None = None

    def rows(self, k: int) -> int:
        """How many rows move at step k."""
        return self.x0.shape[0] if self.batch_sizes is None else self.batch_sizes[k]

    def alpha_at(self, k: int) -> Tensor:
        """α of step k: a scalar or (N,)."""
        return self.alpha[k] if self.alpha.dim() == 2 else self.alpha

    def segment(self, start: int, stop: int, x0: Tensor) -> Problem:
        """The same scan over steps start … stop − 1, from x[start] = x0."""
        cut = slice(start, stop)
        return replace(
            self,
            x0=x0,
            u=None if self.u is None else self.u[cut],
            W=self.W[cut] if self.W.dim() == 3 else self.W,
            b=self.b[cut] if self.b is not None and self.b.dim() == 2 else self.b,
            O=self.O.segment(start, stop),
            alpha=self.alpha[cut] if self.alpha.dim() == 2 else self.alpha,
            steps=stop - start,
            batch_sizes=None if self.batch_sizes is None else self.batch_sizes[cut],
        )


class Kernel(Protocol):
    """The two sweeps of a fast kernel; everything else (parameter gradients, memory) is shared.

    Neither records a graph; both are called with square W of one float dtype on one device.
    """

    def forward(self, p: Problem, keep_slopes: bool) -> tuple[Tensor, Tensor | None]:
        """The states x[1] … x[T] as (T, B, N) and, if asked, φ′(y[k]) as (T, B, N).

        Rows that do not move repeat their state; their slopes are zero.
        """
        ...

    def backward(
        self, p: Problem, slopes: Tensor, g_states: Tensor | None, g_last: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The adjoint sweep, from ∂ℓ/∂states (T, B, N) and ∂ℓ/∂x[T] (B, N); either may be None.

        With λ[k] = ∂ℓ/∂x[k] in full, returns a[k] = α φ′(y[k]) λ[k+1] as (T, B, N), λ[0] as
        (B, N), and λ[1] … λ[T] as (T, B, N) if `p.alpha.requires_grad`, else None. Rows that do
        not move have a = 0 (and λ whatever passes through them). It may overwrite `slopes`.
        """
        ...
