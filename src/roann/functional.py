"""The corridor: one step and one scan of a random orthogonal additive network, without state.

`roa_step` and `roa_scan` take tensors and a filter, check them, pick a kernel, and return.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from roann import _checks
from roann.kernels import fused, native, reference
from roann.kernels import step as single
from roann.kernels.activations import ACTIVATIONS
from roann.kernels.linear import Dense, Gather, Linear, Rotation
from roann.kernels.memory import MEMORIES
from roann.kernels.problem import Kernel, Problem
from roann.kernels.ragged import Ragged
from roann.kernels.scan import scan, tensors_of

BACKENDS = ("auto", "reference", "fused", "native")


@runtime_checkable
class HasForm(Protocol):
    """Anything that can say how a kernel may multiply by it, such as `roann.filters.Filter`."""

    def form(self) -> Linear:
        """The filter as a kernel consumes it."""
        ...


Orthogonal = Tensor | Linear | HasForm


def roa_step(
    x: Tensor,
    W: Tensor,
    O: Orthogonal,
    alpha: float | Tensor,
    *,
    u: Tensor | None = None,
    W_i: Tensor | None = None,
    b: Tensor | None = None,
    nonlinearity: str = "relu",
) -> Tensor:
    r"""One step of a random orthogonal additive network.

    .. math:: x' = \alpha\, \phi(W x + W_i u + b) + (1 - \alpha)\, O x

    Args:
        x: the state x.
        W: the weights W.
        O: the filter O: a matrix, or a filter of `roann.filters`.
        alpha: α, a number or one per neuron.
        u: the input u, with `W_i`.
        W_i: the input weights W_i.
        b: the bias b.
        nonlinearity: the name of φ.

    Shape:
        x (…, N_in), u (…, I), W and O (N_out, N_in), W_i (N_out, I), b and alpha (N_out,);
        the result is (…, N_out).

    Example:
        >>> x, O = torch.randn(3, 4), torch.eye(4)
        >>> W = torch.zeros(4, 4)
        >>> step = roa_step(x, W, O, 0.25)
        >>> float((step - 0.75 * x).abs().max())
        0.0

    Reference: Eq. (12) and (19) of the paper.
    """
    phi = ACTIVATIONS[_checks.choice("nonlinearity", nonlinearity, ACTIVATIONS)]
    form = _form(O, x)
    x_next = single.step(x, u, W, W_i, b, form, alpha, phi)
    if x_next is not None:
        return x_next
    drive = b if u is None or W_i is None else F.linear(u, W_i, b)
    return reference.step(x, drive, W, form, alpha, phi)


def roa_scan(
    x0: Tensor,
    W: Tensor,
    O: Orthogonal,
    alpha: float | Tensor,
    *,
    u: Tensor | None = None,
    W_i: Tensor | None = None,
    b: Tensor | None = None,
    nonlinearity: str = "relu",
    steps: int | None = None,
    batch_sizes: tuple[int, ...] | None = None,
    backend: str = "auto",
    memory: str = "store",
    last_only: bool = False,
) -> tuple[Tensor | None, Tensor]:
    r"""All states of a random orthogonal additive network over time or depth.

    .. math:: x_{k+1} = \alpha\, \phi(W x_k + W_i u_{k+1} + b) + (1 - \alpha)\, O x_k

    A leading dimension T on W, b, O or alpha means one per step (depth); without it they are
    shared by all steps (time).

    Args:
        x0: the first state.
        W: the weights W.
        O: the filter O: a matrix, or a filter of `roann.filters`.
        alpha: α, a number, one per neuron, or one (or one per neuron) for each step.
        u: the inputs u, with `W_i`.
        W_i: the input weights W_i.
        b: the bias b.
        nonlinearity: the name of φ.
        steps: T, where neither u nor W tells.
        batch_sizes: for sequences of unequal length, how many rows (the first ones) still move at
            each step. Then u and the states hold these rows alone, step after step, as the data of
            a `torch.nn.utils.rnn.PackedSequence`; the last state is that of every row.
        backend: "auto", "reference" (the plain loop), "fused" (torch, own adjoint) or "native".
        memory: "store", "checkpoint" (O(√T)) or "reversible" (O(1)): what backward is given.
        last_only: return None in place of the states; no (T, B, N) array need exist.

    Shape:
        x0 (B, N); u (T, B, I), or (S, I) with S = Σ batch_sizes; W and O (N, N) or (T, N, N);
        W_i (N, I); b (N,) or (T, N); alpha (), (N,), (T, 1) or (T, N). Returns the states
        (T, B, N), or (S, N), and the last one (B, N).

    Example:
        >>> x0 = torch.randn(2, 3)
        >>> states, last = roa_scan(x0, torch.randn(3, 3), torch.eye(3), 0.0, steps=5)
        >>> float((last - x0).abs().max())  # alpha = 0: a pure isometry
        0.0

    Reference: Eq. (12) and (19) of the paper.
    """
    phi = ACTIVATIONS[_checks.choice("nonlinearity", nonlinearity, ACTIVATIONS)]
    _checks.choice("backend", backend, BACKENDS)
    _checks.choice("memory", memory, MEMORIES)
    if _checks.autocast(x0):
        # The state must not be rounded T times: under autocast the scan runs in full precision.
        x0, W = _full(x0), _full(W)
        u, W_i, b = (None if t is None else _full(t) for t in (u, W_i, b))
    a = (
        alpha
        if isinstance(alpha, Tensor)
        else torch.full((), alpha, dtype=x0.dtype, device=x0.device)
    )
    ragged = _ragged(batch_sizes, x0, u)
    T = _steps(None if ragged else u, W, b, ragged, steps)
    p = Problem(x0, u, W, W_i, b, _form(O, x0), a.to(x0.dtype), phi, T, ragged)
    _check_shapes(p)
    if torch.compiler.is_compiling():
        # One opaque call: a traced loop would become a graph of T nodes. Not as a decorator, which
        # would import the compiler with the package.
        opaque = torch.compiler.disable(_run)  # type: ignore[no-untyped-call]
        result: tuple[Tensor | None, Tensor] = opaque(p, backend, memory, last_only)
        return result
    return _run(p, backend, memory, last_only)


def _run(p: Problem, backend: str, memory: str, last_only: bool) -> tuple[Tensor | None, Tensor]:
    with (
        torch.autocast(p.x0.device.type, enabled=False) if _checks.autocast(p.x0) else nullcontext()
    ):
        if _plain(p, backend):
            states, last = reference.scan(p)
            return None if last_only else states, last
        kernel = _kernel(p, backend)
        if p.u is not None:
            p = replace(p, u=p.u.contiguous())  # kernels read it row by row
        if torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in tensors_of(p)
        ):
            return scan(kernel, MEMORIES[memory], p, last_only)
        if last_only:
            return None, MEMORIES["checkpoint"].forward(kernel, p, True)[1]
        states, _ = kernel.forward(p, False)
        return states, p.final(states).clone()


def _full(t: Tensor) -> Tensor:
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def _form(O: Orthogonal, x: Tensor) -> Linear:
    """O as a kernel consumes it, in the dtype of x."""
    if type(O) is Dense and O.matrix.dtype is x.dtype:  # the usual case, at no cost
        return O
    form = Dense(O) if isinstance(O, Tensor) else O if isinstance(O, Linear) else O.form()
    tensors = form.tensors()
    if all(t.dtype == x.dtype or not t.is_floating_point() for t in tensors):
        return form
    return form.with_tensors(tuple(t.to(x.dtype) if t.is_floating_point() else t for t in tensors))


def _steps(
    u: Tensor | None, W: Tensor, b: Tensor | None, ragged: Ragged | None, steps: int | None
) -> int:
    found = {
        "u": None if u is None else u.shape[0],
        "W": W.shape[0] if W.dim() == 3 else None,
        "b": b.shape[0] if b is not None and b.dim() == 2 else None,
        "batch_sizes": None if ragged is None else len(ragged.sizes),
        "steps": steps,
    }
    lengths = {n for n in found.values() if n is not None}
    if len(lengths) != 1 or min(lengths) < 1:
        said = {k: v for k, v in found.items() if v is not None}
        sources = "u, W, b, batch_sizes or steps"
        _checks.fail("steps", f"one length of at least 1 from {sources}", said or "none")
    return lengths.pop()


def _ragged(batch_sizes: tuple[int, ...] | None, x0: Tensor, u: Tensor | None) -> Ragged | None:
    if batch_sizes is None:
        return None
    ordered = all(m >= n >= 1 for m, n in pairwise((x0.shape[0], *batch_sizes)))
    if not batch_sizes or not ordered:
        expected = (
            f"counts from at most {x0.shape[0]} down to at least 1, none above the one before"
        )
        _checks.fail(
            "batch_sizes", expected, batch_sizes, "sort sequences by length, longest first"
        )
    if u is not None and (u.dim() != 2 or u.shape[0] != sum(batch_sizes)):
        expected = f"shape ({sum(batch_sizes)}, I), the rows that move step after step"
        _checks.fail("u", expected, tuple(u.shape), "use the data of a PackedSequence")
    return Ragged(tuple(batch_sizes))


def _check_shapes(p: Problem) -> None:
    """Refuse what does not fit together: kernels read memory by these sizes."""
    if p.x0.dim() != 2 or p.W.dim() not in (2, 3):
        got = f"{tuple(p.x0.shape)} and {tuple(p.W.shape)}"
        _checks.fail("x0 and W", "shapes (B, N) and (N, N) or (T, N, N)", got)
    T, N, out = p.steps, p.x0.shape[1], p.W.shape[-2]
    if T > 1 and out != N:
        _checks.fail("W", f"shape ({N}, {N}) or ({T}, {N}, {N})", tuple(p.W.shape))
    if (p.u is None) != (p.W_i is None):
        _checks.fail("u and W_i", "both or neither", "one of them")
    I = 0 if p.W_i is None else p.W_i.shape[-1]
    fitting: list[tuple[str, Tensor | None, list[tuple[int, ...]]]] = [
        ("W", p.W, [(out, N), (T, out, N)]),
        ("u", p.u, [p.shape(I)]),
        ("W_i", p.W_i, [(out, I)]),
        ("b", p.b, [(out,), (T, out)]),
        ("alpha", p.alpha, [(), (out,), (T, 1), (T, out)]),
    ]
    if isinstance(p.O, Dense):
        fitting.append(("O", p.O.matrix, [(out, N), (T, out, N)]))
    elif isinstance(p.O, Gather | Rotation):
        fitting += [("O", t, [(out,), (T, out)]) for t in p.O.tensors()]
    for name, t, shapes in fitting:
        if t is None:
            continue
        if tuple(t.shape) not in shapes:
            _checks.fail(name, "shape " + " or ".join(map(str, shapes)), tuple(t.shape))
        if t.is_floating_point() and t.dtype != p.x0.dtype:
            _checks.fail(name, f"dtype {p.x0.dtype}, as x0", t.dtype, f"cast it to {p.x0.dtype}")


def _transformed(t: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(t)


def _plain(p: Problem, backend: str) -> bool:
    """Whether only the plain loop can serve: transforms, forward mode, tracing, a learned O."""
    if backend == "reference":
        return True
    tensors = [t for t in tensors_of(p) if t is not None]
    needs_loop = (
        any(_transformed(t) for t in tensors)
        or single.watched()
        or any(t.requires_grad for t in p.O.tensors())
        or p.x0.is_meta
    )
    if needs_loop and backend != "auto":
        _checks.fail(
            "backend",
            "'auto' or 'reference' under torch.func, forward mode, tracing or with a learned O",
            repr(backend),
            error=RuntimeError,
        )
    return needs_loop


def _kernel(p: Problem, backend: str) -> Kernel:
    square = p.W.shape[-1] == p.W.shape[-2] and p.x0.shape[0] > 0
    if backend == "native" and not native.available():
        _checks.fail(
            "backend", "a kernel that can run here", "'native'", native.why_not(), RuntimeError
        )
    if backend == "native" and square and not native.supports(p):
        what = f"{p.W.dtype} on {p.W.device}"
        _checks.fail(
            "backend", "float32 or float64 on the CPU for 'native'", what, error=RuntimeError
        )
    if backend in ("auto", "native") and square and native.available() and native.supports(p):
        return native
    return fused
