"""The one place that words errors: the argument, what was expected, what came, and the cure."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection
from numbers import Integral, Real
from typing import NoReturn

import torch
from torch import Tensor


def fail(
    argument: str,
    expected: str,
    got: object,
    cure: str = "",
    error: type[Exception] = ValueError,
) -> NoReturn:
    """Raise `error` with one sentence."""
    raise error(f"{argument}: expected {expected}, got {got}" + (f"; {cure}" if cure else ""))


def choice(argument: str, value: object, choices: Collection[str], cure: str = "") -> str:
    """`value` if it is one of `choices`; else an error that suggests the nearest, or `cure`."""
    if isinstance(value, str) and value in choices:
        return value
    names = list(choices)
    near = (
        difflib.get_close_matches(value, names, n=1, cutoff=0.5) if isinstance(value, str) else []
    )
    cure = f"did you mean {near[0]!r}?" if near else cure
    fail(argument, "one of " + ", ".join(map(repr, names)), repr(value), cure)


def size(argument: str, value: object, least: int = 1) -> int:
    """`value` if it is an integer of at least `least`; those of numpy too."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        fail(argument, "an int", f"{value!r} of type {type(value).__name__}", error=TypeError)
    if value < least:
        fail(argument, f"at least {least}", value)
    return int(value)


def real(argument: str, value: object, *, positive: bool = False) -> float:
    """`value` as a finite float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        fail(argument, "a number", f"{value!r} of type {type(value).__name__}", error=TypeError)
    if not math.isfinite(value) or (positive and value <= 0):
        fail(argument, "a finite number" + (" above 0" if positive else ""), value)
    return float(value)


def autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of x."""
    if x.is_cpu:  # the usual case, at little cost
        return torch.is_autocast_enabled("cpu")
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and bool(torch.is_autocast_enabled(kind))


def same_dtype(argument: str, x: Tensor, like: Tensor) -> None:
    """Refuse a tensor of another dtype than the parameters (autocast apart)."""
    if x.dtype != like.dtype and not autocast(x):
        fail(
            argument,
            f"dtype {like.dtype}, as the parameters",
            x.dtype,
            f"cast it with .to({like.dtype})"
            + (f" or move the module with .to({x.dtype})" if x.is_floating_point() else ""),
        )


def same_device(argument: str, x: Tensor, like: Tensor) -> None:
    """Refuse a tensor on another device than the parameters."""
    if x.device != like.device:
        cure = f"move it with .to({str(like.device)!r})"
        fail(argument, f"device {like.device}, as the parameters", x.device, cure, RuntimeError)


def state(hx: object, wanted: tuple[int, ...], kind: str = "") -> None:
    """Refuse a first state that is no tensor of this shape."""
    if not isinstance(hx, Tensor):
        cure = "there is no cell state: of an LSTM's (h_0, c_0) pass h_0"
        fail("hx", "a tensor", f"a {type(hx).__name__}", cure, TypeError)
    if tuple(hx.shape) != wanted:
        fail("hx", f"shape {wanted}{kind}", tuple(hx.shape), error=RuntimeError)


def generator(value: object) -> None:
    """Refuse a seed in the place of a generator."""
    if value is not None and not isinstance(value, torch.Generator):
        cure = "pass torch.Generator().manual_seed(…)"
        fail("generator", "a torch.Generator", f"{value!r}", cure, TypeError)


def permutation(argument: str, index: Tensor) -> None:
    """Refuse an index (…, N) that does not hold each of 0 … N − 1 once."""
    n = index.shape[-1]
    order = torch.arange(n, device=index.device).expand_as(index)
    if not torch.equal(index.sort(-1).values, order):
        low, high = index.min().item(), index.max().item()
        fail(argument, f"each of 0 to {n - 1} once", f"numbers from {low} to {high}")
