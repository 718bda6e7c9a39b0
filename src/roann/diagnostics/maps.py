"""One map x → x′ of a chain, and its Jacobian as a linear map with three verbs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.func import jacrev, jvp, vjp, vmap

from roann.kernels import reference
from roann.kernels.activations import Activation
from roann.kernels.linear import Linear


class Jacobian(Protocol):
    """∂x′/∂x at one point (or one per row of a batch), without being a matrix until asked."""

    def matvec(self, v: Tensor) -> Tensor:
        """J v, for v (…, N_in)."""

    def matvec_transpose(self, w: Tensor) -> Tensor:
        """Jᵀ w, for w (…, N_out)."""

    def to_dense(self) -> Tensor:
        """J as (…, N_out, N_in)."""

    def row(self, index: tuple[int, ...]) -> Jacobian:
        """The Jacobian of one row of the batch."""


class Map(Protocol):
    """One map of a chain."""

    def __call__(self, x: Tensor) -> Tensor:
        """x′ (…, N_out) from x (…, N_in)."""

    def jacobian(self, x: Tensor) -> Jacobian:
        """∂x′/∂x at x."""


@dataclass(frozen=True)
class RoaJacobian:
    """α diag(φ′(y)) W + (1 − α) O: Eq. (14) and (22) of the paper."""

    slope: Tensor  # φ′(y), (…, N_out)
    W: Tensor  # (N_out, N_in)
    O: Linear
    alpha: Tensor  # () or (N_out,)

    def matvec(self, v: Tensor) -> Tensor:
        return self.alpha * self.slope * (v @ self.W.mT) + (1 - self.alpha) * self.O.matvec(v)

    def matvec_transpose(self, w: Tensor) -> Tensor:
        through_W = (self.alpha * self.slope * w) @ self.W
        return through_W + self.O.matvec_transpose((1 - self.alpha) * w)

    def to_dense(self) -> Tensor:
        O = self.O.to_dense().to(self.W.dtype)
        rest = (1 - self.alpha).unsqueeze(-1) * O
        return (self.alpha * self.slope).unsqueeze(-1) * self.W + rest

    def row(self, index: tuple[int, ...]) -> RoaJacobian:
        return replace(self, slope=self.slope[index])


@dataclass(frozen=True)
class RoaMap:
    """x′ = α φ(W x + drive) + (1 − α) O x, with its Jacobian in closed form."""

    W: Tensor
    O: Linear
    alpha: Tensor
    phi: Activation
    drive: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return reference.step(x, self.drive, self.W, self.O, self.alpha, self.phi)

    def jacobian(self, x: Tensor) -> RoaJacobian:
        y = x @ self.W.mT
        slope = self.phi.slope(self.phi.value(y if self.drive is None else y + self.drive))
        return RoaJacobian(slope, self.W, self.O, self.alpha)


@dataclass(frozen=True)
class FunctionMap:
    """x′ = function(x, u) for one input u, or function(x) where there is none."""

    function: Callable[..., Tensor]
    u: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self.function(x) if self.u is None else self.function(x, self.u)

    def jacobian(self, x: Tensor) -> FunctionJacobian:
        return FunctionJacobian(self, x)


@dataclass(frozen=True)
class FunctionJacobian:
    """The Jacobian at x of any function that acts row by row, by `torch.func`."""

    map: FunctionMap
    x: Tensor

    def matvec(self, v: Tensor) -> Tensor:
        result: Tensor = jvp(self.map, (self.x,), (v,))[1]
        return result

    def matvec_transpose(self, w: Tensor) -> Tensor:
        result: Tensor = vjp(self.map, self.x)[1](w)[0]
        return result

    def to_dense(self) -> Tensor:
        rows: Callable[..., Tensor] = jacrev(self.map.function)
        for _ in range(self.x.dim() - 1):
            rows = vmap(rows)
        return FunctionMap(rows, self.map.u)(self.x).detach()

    def row(self, index: tuple[int, ...]) -> FunctionJacobian:
        u = None if self.map.u is None else self.map.u[index]
        return FunctionJacobian(FunctionMap(self.map.function, u), self.x[index])


@dataclass(frozen=True)
class GraphMap(FunctionMap):
    """As `FunctionMap`, for a function that transforms cannot follow, such as a solver."""

    def jacobian(self, x: Tensor) -> GraphJacobian:
        return GraphJacobian(self, x)


@dataclass(frozen=True)
class GraphJacobian(FunctionJacobian):
    """The same Jacobian by autograd: one backward pass for each number of x′."""

    def matvec(self, v: Tensor) -> Tensor:
        # Jᵀw is linear in w, so that its own gradient along w is J v.
        with _graph():
            x, y = self._ends()
            w = torch.zeros_like(y).requires_grad_()
            (back,) = torch.autograd.grad(y, x, w, create_graph=True, materialize_grads=True)
            if not back.requires_grad:
                return torch.zeros_like(y)
            (found,) = torch.autograd.grad(back, w, v.clone(), materialize_grads=True)
        return found

    def matvec_transpose(self, w: Tensor) -> Tensor:
        with _graph():
            x, y = self._ends()
            (found,) = torch.autograd.grad(y, x, w.clone(), materialize_grads=True)
        return found

    def to_dense(self) -> Tensor:
        with _graph():
            x, y = self._ends()
            outputs = y.reshape(-1, y.shape[-1]).sum(0)  # rows do not meet
            kept = {"retain_graph": True, "materialize_grads": True}
            rows = [torch.autograd.grad(out, x, **kept)[0] for out in outputs]  # type: ignore[call-overload]
        return torch.stack(rows, -2)

    def row(self, index: tuple[int, ...]) -> GraphJacobian:
        part = super().row(index)
        return GraphJacobian(part.map, part.x)

    def _ends(self) -> tuple[Tensor, Tensor]:
        """x, and x′ with its graph, which is there even where x′ does not depend on x."""
        x = self.x.detach().clone().requires_grad_()
        u = None if self.map.u is None else self.map.u.detach().clone()
        return x, FunctionMap(self.map.function, u)(x) + 0 * x.sum(-1, keepdim=True)


@contextmanager
def _graph() -> Iterator[None]:
    """Autograd, whatever mode surrounds it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield
