"""Limits of configuration fields: types are strict, sizes are capped, errors are ValueErrors."""

from __future__ import annotations

import math

from roann._checks import choice, fail

__all__ = ["LENGTH", "WIDTH", "choice", "fail", "flag", "real", "whole"]

WIDTH = 16_384  # of a state, a layer or a batch
LENGTH = 1_000_000  # of a sequence, of a depth, of a data set


def whole(field: str, value: object, low: int, high: int) -> int:
    """`value` if it is an int in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        fail(field, f"a whole number from {low} to {high}", repr(value))
    return value


def real(field: str, value: object, low: float, high: float) -> float:
    """`value` if it is a finite number in [low, high]."""
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not low <= value <= high
    ):
        fail(field, f"a number from {low:g} to {high:g}", repr(value))
    return value


def flag(field: str, value: object) -> bool:
    """`value` if it is true or false."""
    if not isinstance(value, bool):
        fail(field, "true or false", repr(value))
    return value
