"""One step and one scan of a random orthogonal additive network, without state.

`roa_step` and `roa_scan` take tensors and a filter, check them, and call the operator of
`roann.kernels.operator`, or the reference loop where only that can serve.
"""

from __future__ import annotations

from collections import ChainMap
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad

from roann import _checks
from roann.kernels import operator, reference
from roann.kernels import step as single
from roann.kernels.activations import ACTIVATIONS, Activation
from roann.kernels.linear import FORMS, Dense, Linear
from roann.kernels.memory import MEMORIES
from roann.kernels.problem import Problem
from roann.kernels.ragged import Ragged
from roann.kernels.watch import without_autocast

BACKENDS = ChainMap[str, Any](operator.KERNELS, {"auto": None, "reference": None})  # a live view
_HALF = (torch.float16, torch.bfloat16)
_TRACERS = "torch.jit.trace or an exporter built on it"
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@runtime_checkable
class HasForm(Protocol):
    """Anything that can say how a kernel may multiply by it, such as `roann.filters.Filter`."""

    def form(self) -> Linear:
        """The filter as a kernel consumes it."""


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
    return step(x, u, W, W_i, b, as_form(O, x.dtype), alpha, phi)


def step(
    x: Tensor,
    u: Tensor | None,
    W: Tensor,
    W_i: Tensor | None,
    b: Tensor | None,
    O: Linear,
    alpha: float | Tensor,
    phi: Activation,
) -> Tensor:
    """`roa_step` of a filter's form and an activation, for cells that are called in a loop."""
    x_next = single.step(x, u, W, W_i, b, O, alpha, phi)
    if x_next is not None:
        return x_next
    given = _one_dtype({"x": x, "u": u, "W": W, "W_i": W_i, "b": b})
    wide = {name: _widened(t) for name, t in given.items()}
    drive = b = wide["b"]
    with without_autocast(x):
        if wide["u"] is not None and wide["W_i"] is not None:
            drive = F.linear(wide["u"], wide["W_i"], b)
        x, W = wide["x"], wide["W"]  # type: ignore[assignment]
        x_next = reference.step(x, drive, W, as_form(O, x.dtype), _alpha(alpha, x), phi)
    return x_next.to(given["x"].dtype)  # type: ignore[union-attr]


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
        W, O, W_i, b, nonlinearity: as in `roa_step`.
        alpha: α, a number, one per neuron, or one (or one per neuron) for each step.
        u: the inputs u, with `W_i`.
        steps: T, where neither u nor W tells.
        batch_sizes: for sequences of unequal length, how many rows (the first ones) still move at
            each step. Then u and the states hold these rows alone, step after step, as the data of
            a `torch.nn.utils.rnn.PackedSequence`; the last state is that of every row.
        backend: "auto", "reference" (the plain loop), "fused" (torch, own adjoint) or "native".
        memory: "store", "checkpoint" (O(√T)) or "reversible" (O(1)): what backward is given.
        last_only: return None in place of the states; no (T, B, N) array need exist.

    All tensors have one float dtype (O is cast to it). A scan in float16 or bfloat16 runs in
    float32 and rounds its results: a state that is rounded T times is lost.

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
    if backend != "auto":
        _checks.choice("backend", backend, BACKENDS)
    _checks.choice("memory", memory, MEMORIES)
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
        cure = "a trace holds for one length only; for ONNX, use roann.export_onnx"
        _checks.fail("tracing", "torch.export or torch.compile", _TRACERS, cure, RuntimeError)
    given = _one_dtype({"x0": x0, "u": u, "W": W, "W_i": W_i, "b": b})
    dtype = given["x0"].dtype  # type: ignore[union-attr]
    if dtype in _HALF:
        given = {name: _widened(t) for name, t in given.items()}
    x0, u, W, W_i, b = given.values()  # type: ignore[assignment]
    ragged = _ragged(batch_sizes, x0, u)
    T = _steps(None if ragged else u, W, b, ragged, steps)
    form = as_form(O, x0.dtype)
    if FORMS.get(form.name) is not type(form):
        form = Dense(form.to_dense())
    p = Problem(x0, u, W, W_i, b, form, _alpha(alpha, x0), phi, T, ragged)
    states: Tensor | None
    if _needs_loop(p, backend):
        p.check()
        with without_autocast(x0):
            states, last = reference.scan(p)
    else:
        states, last = operator.scan(p, backend, memory, last_only)
    if last.dtype is not dtype:
        states, last = None if states is None else states.to(dtype), last.to(dtype)
    return (None if last_only else states), last


def _one_dtype(given: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    """The tensors, if all have the float dtype of the first; under autocast, made so."""
    name, first = next(iter(given.items()))
    assert first is not None
    if _checks.autocast(first):
        given = {name: _widened(t) for name, t in given.items()}
    elif first.is_floating_point():
        dtype = first.dtype
        for t in given.values():
            if t is not None and t.dtype is not dtype:
                break
        else:
            return given
    for other, t in given.items():
        if t is not None and not t.is_floating_point():
            _checks.fail(other, "a tensor of a float dtype", t.dtype, f"cast it to {first.dtype}")
    wanted = given[name].dtype  # type: ignore[union-attr]
    for other, t in given.items():
        if t is not None and t.dtype != wanted:
            _checks.fail(other, f"dtype {wanted}, as {name}", t.dtype, f"cast it to {wanted}")
    return given


def _widened(t: Tensor | None) -> Tensor | None:
    """In float32, if it is in half precision."""
    return t.float() if t is not None and t.dtype in _HALF else t


def _alpha(alpha: float | Tensor, x: Tensor) -> Tensor:
    """α in the dtype of x."""
    if not isinstance(alpha, Tensor):
        return x.new_full((), alpha)
    if not alpha.is_floating_point():
        _checks.fail("alpha", "a number or a tensor of a float dtype", alpha.dtype)
    return alpha.to(x.dtype)


def as_form(O: Orthogonal, dtype: torch.dtype) -> Linear:
    """O as a kernel consumes it: numbers in `dtype`, or float32 for half precision."""
    form = Dense(O) if isinstance(O, Tensor) else O if isinstance(O, Linear) else O.form()
    if type(form) is Dense and form.matrix.dtype is dtype and dtype not in _HALF:
        return form  # the usual case, at little cost
    dtype = torch.float32 if dtype in _HALF else dtype
    tensors = form.tensors()
    wanted = [torch.int64 if name in form.integers else dtype for name in form.names]
    if [t.dtype for t in tensors] == wanted:
        return form
    cast = []
    for name, t, kind in zip(form.names, tensors, wanted, strict=True):
        integer = name in form.integers
        if not (t.dtype in _INTEGERS if integer else t.is_floating_point()):
            expected = "an integer" if integer else "a float"
            _checks.fail("O", f"{expected} dtype for its {name}", t.dtype)
        cast.append(t.to(kind))
    return form.with_tensors(tuple(cast))


def _steps(
    u: Tensor | None, W: Tensor, b: Tensor | None, ragged: Ragged | None, steps: int | None
) -> int:
    shared = W.dim() == 2 and (b is None or b.dim() == 1)
    if u is not None and shared and ragged is None and steps is None and u.shape[0] > 0:
        return u.shape[0]  # the usual case, at little cost
    found = {
        "u": None if u is None else u.shape[0],
        "W": W.shape[0] if W.dim() == 3 else None,
        "b": b.shape[0] if b is not None and b.dim() == 2 else None,
        "batch_sizes": None if ragged is None else len(ragged.sizes),
        "steps": steps,
    }
    said = {k: n for k, n in found.items() if n is not None}
    T = next(iter(said.values()), 0)
    if T < 1 or any(n != T for n in said.values()):
        sources = "u, W, b, batch_sizes or steps"
        _checks.fail("steps", f"one length of at least 1 from {sources}", said or "none")
    return T


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


def _needs_loop(p: Problem, backend: str) -> bool:
    """Whether only the plain loop can serve: asked for, torch.func, forward mode, a learned O."""
    if backend == "reference":
        return True
    needs = any(t.requires_grad for t in p.O.tensors()) or _are_transformed(p.tensors())
    if needs and backend != "auto":
        expected = "'auto' or 'reference' under torch.func, in forward mode or with a learned O"
        _checks.fail("backend", expected, repr(backend), error=RuntimeError)
    return needs


def _are_transformed(tensors: tuple[Tensor | None, ...]) -> bool:
    """Whether a transform of torch.func, or forward mode, follows one of the tensors."""
    if torch.compiler.is_dynamo_compiling():  # it cannot look; an operator says so by itself
        return False
    unwrap = torch.func.debug_unwrap
    for t in tensors:
        if t is not None and unwrap(t) is not t:
            return True
    unpack: Any = forward_ad.unpack_dual
    x0 = tensors[0]
    if unpack(x0).primal is x0:  # the tensor itself: forward mode is off
        return False
    return any(t is not None and unpack(t).tangent is not None for t in tensors)
