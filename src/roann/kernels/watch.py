"""Who watches a call: compilers, tracers, transforms of torch.func, forward mode, autocast."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from roann import _checks

_NOTHING = nullcontext()
_compiling: Callable[[], bool] = torch.compiler.is_compiling
_undual: Callable[[Tensor], Any] = forward_ad.unpack_dual
_tracing: Callable[[], bool] = torch.jit.is_tracing  # type: ignore[attr-defined]


def is_dual(t: Tensor) -> bool:
    """Whether forward mode follows t: outside of it, `unpack_dual` returns the tensor itself."""
    return _undual(t)[0] is not t


def watched(t: Tensor) -> bool:
    """Whether something wants to see what is done to t as operations of torch."""
    return _compiling() or is_in_torch_dispatch_mode() or _undual(t)[0] is not t or _tracing()


def applied(function: type[torch.autograd.Function], *args: Any) -> Any:
    """`function.apply(*args)`; None inside a transform of torch.func, where torch refuses it."""
    try:
        return function.apply(*args)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if "setup_context" not in str(error):  # what such a function lacks there, as torch says
            raise
        return None


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """A state must not be rounded T times: autocast is off within a scan."""
    if _checks.autocast(x):
        return torch.autocast(x.device.type, enabled=False)
    return _NOTHING
