"""One step of few rows by the compiled kernel, for cells that are called in a loop.

The work of such a call is a few microseconds, so everything around it is written for few Python
operations: the library looks at the tensors itself (native_call.inl). Nothing is remembered from
one call to the next, so modules may be moved, loaded, copied and shared by threads at any time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from roann.kernels import native, reference
from roann.kernels.activations import Activation
from roann.kernels.linear import FORMS, Linear
from roann.kernels.watch import applied, watched

FEW = 8  # rows
LARGE = 1 << 20  # rows times numbers in W; above either, torch's products are faster

_FORMS = {form: form.code for form in FORMS.values()}
_PLAIN = frozenset({Tensor, nn.Parameter, type(None)})
_casting: Callable[[str], bool] = torch.is_autocast_enabled
_recording: Callable[[], bool] = torch.is_grad_enabled
_room: Callable[[Any], Tensor] = torch.empty_like


class _Library:
    """The functions of the library that take tensors; they are called with the GIL held."""

    def __init__(self, path: str, isa: int, api: object) -> None:
        dll, number, thing = ctypes.PyDLL(path), ctypes.c_int64, ctypes.py_object
        address = ctypes.pythonapi.PyCapsule_GetPointer
        address.argtypes, address.restype = [thing, ctypes.c_char_p], ctypes.c_void_p
        exchange, method = dll.roann_exchange, dll.roann_method
        exchange.argtypes, exchange.restype = [ctypes.c_void_p, thing], number
        method.argtypes, method.restype = [number], thing
        self.step, self.adjoint = method(0), method(1)
        self.isa = isa
        self.usable = bool(exchange(address(api, b"dlpack_exchange_api"), None))


@cache
def _load() -> _Library | None:
    """The library, where it was built and torch can show it tensors."""
    api = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if api is None or not native.available():
        return None
    built = native.library()
    library = _Library(str(built.path), built.isa, api)
    return library if library.usable else None


def step(
    x: Tensor,
    u: Tensor | None,
    W: Tensor,
    W_i: Tensor | None,
    b: Tensor | None,
    O: Linear,
    alpha: Tensor | float,
    phi: Activation,
) -> Tensor | None:
    """`reference.step` with drive W_i u + b; None where that one must serve, or is faster."""
    if watched(x) or _casting("cpu"):
        return None
    library, form = _load(), _FORMS.get(type(O))
    size, weights = x.numel() ** 2, W.numel()  # (B N)² and N²
    if size > FEW**2 * weights or size * weights > LARGE**2 or library is None or form is None:
        return None
    if u is None or W_i is None:
        u = W_i = None
    elif u.is_neg():  # a bit that the library does not see
        return None
    number, vector = (0.0, alpha) if isinstance(alpha, Tensor) else (alpha, None)
    of_O = O.tensors()
    tensors = (x, u, W, W_i, b, vector, *of_O)
    if not _PLAIN.issuperset(map(type, tensors)) or x.is_neg():
        return None
    recording = _recording()
    if recording:
        for t in of_O if vector is None else (vector, *of_O):
            if t.requires_grad:
                return None
        recording = W.requires_grad or any(t is not None and t.requires_grad for t in tensors)
    told = (library.isa, phi.code, form, number)
    x_next = _room(x)
    # The library declines what a transform of torch.func has wrapped: it looks plain to Python.
    if not library.step(told, tensors, x_next):
        return None
    if recording:
        done = x_next, tensors, (told, phi, type(O))
        return applied(_Step, done, x, u, W, W_i, b)  # type: ignore[no-any-return]
    return x_next


class _Step(torch.autograd.Function):
    """The graph of a step that is done. It keeps the inputs alone: φ′ is found again from them."""

    @staticmethod
    def forward(ctx: Any, done: Any, *_: Tensor) -> Tensor:
        x_next: Tensor
        x_next, tensors, ctx.how = done
        ctx.save_for_backward(*tensors)
        return x_next

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        how, tensors, wanted = ctx.how, ctx.saved_tensors, ctx.needs_input_grad
        library = _load()
        if library is not None and not _recording() and not watched(g):
            x, u, W, W_i, b, *_ = tensors
            _, of_x, of_u, of_W, of_W_i, of_b = wanted
            found = (
                _room(x) if of_x else None,
                _room(u) if of_u else None,
                _room(W) if of_W else None,
                _room(W_i) if of_W_i else None,
                _room(b) if of_b else None,
            )
            if library.adjoint(how[0], tensors, g.resolve_neg().contiguous(), found):
                return None, *found
        return None, *_differentiable(how, tensors, wanted[1:], g)


def _differentiable(
    how: Any, tensors: tuple[Tensor, ...], wanted: tuple[bool, ...], g: Tensor
) -> tuple[Tensor | None, ...]:
    """The same gradients by operations of torch: the adjoint of the reference step."""
    (*_, number), phi, form = how
    deeper = torch.is_grad_enabled()
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        # Gradients with respect to views: x may depend on W, and that path is not of this step.
        own = [None if t is None else t.view_as(t) for t in tensors[:5]]
        (x, u, W, W_i, b), (vector, *of_O) = own, tensors[5:]
        drive = b if u is None else F.linear(u, W_i, b)
        x_next = reference.step(x, drive, W, form(*of_O), number if vector is None else vector, phi)
        inputs = [t for t, need in zip(own, wanted, strict=True) if need]
        grads = iter(torch.autograd.grad(x_next, inputs, g, create_graph=deeper))
    return tuple(next(grads) if need else None for need in wanted)
