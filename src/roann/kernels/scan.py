"""One autograd node for a whole scan, over any kernel and any memory mode.

Derivatives of derivatives take the reference path: the fast kernels need no second adjoint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from roann.kernels import reference
from roann.kernels.activations import Activation
from roann.kernels.gradients import Gradients
from roann.kernels.linear import Linear
from roann.kernels.memory import Memory
from roann.kernels.problem import Kernel, Problem
from roann.kernels.ragged import Ragged
from roann.kernels.step import watched

Tensors = tuple[Tensor | None, ...]


class Frame(NamedTuple):
    """A problem without its tensors, which autograd must keep itself."""

    form: type[Linear]
    phi: Activation
    steps: int
    ragged: Ragged | None

    def fill(self, tensors: Tensors) -> Problem:
        """The problem over these tensors, in the order of `tensors_of`."""
        x0, u, W, W_i, b, alpha, *of_O = tensors
        assert x0 is not None
        assert W is not None
        assert alpha is not None
        O = self.form(*of_O)
        return Problem(x0, u, W, W_i, b, O, alpha, self.phi, self.steps, self.ragged)


def tensors_of(p: Problem) -> Tensors:
    """Every tensor of a problem, in the order `Frame.fill` takes them."""
    return (p.x0, p.u, p.W, p.W_i, p.b, p.alpha, *p.O.tensors())


def scan(
    kernel: Kernel, memory: Memory, p: Problem, last_only: bool
) -> tuple[Tensor | None, Tensor]:
    """(states over time or None, x[T]), differentiable."""
    frame = Frame(type(p.O), p.phi, p.steps, p.ragged)
    outputs: tuple[Tensor | None, Tensor] = _Scan.apply(  # type: ignore[no-untyped-call]
        kernel, memory, frame, last_only, *tensors_of(p)
    )
    return outputs


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kernel: Kernel, memory: Memory, frame: Frame, last_only: bool, *tensors: Tensor
    ) -> tuple[Tensor | None, Tensor]:
        states, last, kept, ctx.scratch = memory.forward(kernel, frame.fill(tensors), last_only)
        ctx.kernel, ctx.memory, ctx.frame, ctx.inputs = kernel, memory, frame, len(tensors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *kept)
        return states, last

    @staticmethod
    def backward(ctx: Any, g_states: Tensor | None, g_last: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # read once: under torch.utils.checkpoint that recomputes them
        tensors, kept = saved[: ctx.inputs], saved[ctx.inputs :]
        wanted = ctx.needs_input_grad[4:]
        if torch.is_grad_enabled() or watched() or _many(g_states) or _many(g_last):
            p = ctx.frame.fill(tensors)
            return (None,) * 4 + _differentiable(p, tensors, wanted, g_states, g_last)
        # Detached, because the sweeps write in place; still marked with what is wanted of each.
        bare = (
            None if t is None else t.detach().requires_grad_(need)
            for t, need in zip(tensors, wanted, strict=True)
        )
        p = ctx.frame.fill(tuple(bare))
        grads = Gradients.wanted(p)
        scratch, ctx.scratch = ctx.scratch, None  # consumed: a second backward makes its own
        lam = ctx.memory.backward(ctx.kernel, p, kept, scratch, g_states, g_last, grads)
        found = (lam, grads.u, grads.W, grads.W_i, grads.b, grads.alpha)
        return (None,) * 4 + found + (None,) * (len(tensors) - len(found))


def _many(g: Tensor | None) -> bool:
    """Whether this is a batch of gradients, as autograd's own batching hands it over."""
    return g is not None and torch._C._functorch.is_legacy_batchedtensor(g)


def _differentiable(
    p: Problem,
    tensors: Tensors,
    wanted: tuple[bool, ...],
    g_states: Tensor | None,
    g_last: Tensor | None,
) -> Tensors:
    """The same gradients by operations of torch: the adjoint of the reference loop."""
    deeper = torch.is_grad_enabled()
    with torch.enable_grad():
        outputs = zip(reference.scan(p), (g_states, g_last), strict=True)
        pairs = [(o, g) for o, g in outputs if g is not None]
        inputs = [t for t, need in zip(tensors, wanted, strict=True) if need and t is not None]
        grads = iter(
            torch.autograd.grad(
                [o for o, _ in pairs],
                inputs,
                [g for _, g in pairs],
                create_graph=deeper,
                allow_unused=True,
            )
        )
    return tuple(next(grads) if need else None for need in wanted)
