"""The one place that words errors: the argument, what was expected, what came, and the cure."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
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


def choice(argument: str, value: object, choices: Iterable[str]) -> str:
    """`value` if it is one of `choices`; else an error that suggests the nearest."""
    names = list(choices)
    if isinstance(value, str) and value in names:
        return value
    near = (
        difflib.get_close_matches(value, names, n=1, cutoff=0.5) if isinstance(value, str) else []
    )
    cure = f"did you mean {near[0]!r}?" if near else ""
    fail(argument, "one of " + ", ".join(map(repr, names)), repr(value), cure)


def size(argument: str, value: object, least: int = 1) -> int:
    """`value` if it is an integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        fail(argument, "an int", f"{value!r} of type {type(value).__name__}", error=TypeError)
    if value < least:
        fail(argument, f"at least {least}", value)
    return value


def real(argument: str, value: object, *, positive: bool = False) -> float:
    """`value` as a finite float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        fail(argument, "a number", f"{value!r} of type {type(value).__name__}", error=TypeError)
    if not math.isfinite(value) or (positive and value <= 0):
        fail(argument, "a finite number" + (" above 0" if positive else ""), value)
    return float(value)


def mixing(rho: object, horizon: object, alpha: object, features: int | None) -> float | Tensor:
    """α from `alpha`, or as rho / horizon; a float, or an (features,) tensor."""
    if alpha is None and horizon is None:
        fail(
            "horizon",
            "the number of steps (or maps) gradients must survive",
            "neither horizon nor alpha",
            "pass horizon=T to get alpha = rho / T, or pass alpha itself",
        )
    if alpha is None:
        alpha = real("rho", rho, positive=True) / real("horizon", horizon, positive=True)
        cure = f"rho={rho} and horizon={horizon} give alpha = rho / horizon; lower rho"
    else:
        if horizon is not None:
            fail("horizon", "None when alpha is given", horizon, "pass one of the two")
        cure = "alpha mixes the nonlinear part (1) with the filter (0)"
    if isinstance(alpha, Tensor):
        if features is None or alpha.shape != (features,) or not alpha.is_floating_point():
            what = f"shape {tuple(alpha.shape)} of {alpha.dtype}"
            wanted = "a float" if features is None else f"a float or a float tensor ({features},)"
            fail("alpha", wanted, what)
        if not alpha.is_meta and not bool(((alpha >= 0) & (alpha <= 1)).all()):
            fail("alpha", "entries in [0, 1]", f"[{alpha.min():g}, {alpha.max():g}]", cure)
        return alpha.detach().clone()
    value = real("alpha", alpha)
    if not 0 <= value <= 1:
        fail("alpha", "a number in [0, 1]", f"{value:g}", cure)
    return value


def autocast(x: Tensor) -> bool:
    """Whether autocast is on for the device of x."""
    kind = x.device.type
    return torch.amp.is_autocast_available(kind) and bool(torch.is_autocast_enabled(kind))


def same_dtype(argument: str, x: Tensor, like: Tensor) -> None:
    """Refuse a tensor of another dtype than the parameters (autocast apart)."""
    if x.dtype != like.dtype and not autocast(x):
        fail(
            argument,
            f"dtype {like.dtype}, as the parameters",
            x.dtype,
            f"cast it with .to({like.dtype}) or move the module with .to({x.dtype})",
        )
