"""Checks of configuration fields: each names the field, what is allowed, and what came."""

from __future__ import annotations

import math
from collections.abc import Iterable

MAX_WIDTH = 16_384
MAX_LENGTH = 10_000_000
MAX_BATCH = 1_000_000
MAX_LAYERS = 1_000_000


def whole(field: str, value: object, low: int, high: int) -> None:
    """Require an integer in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ValueError(f"{field} must be a whole number from {low:,} to {high:,}, got {value!r}.")


def real(field: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    """Require a finite number in [low, high], or in (low, high]."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    if good:
        assert isinstance(value, int | float)
        good = math.isfinite(value) and low <= value <= high and not (open_low and value == low)
    if not good:
        bracket = "(" if open_low else "["
        raise ValueError(f"{field} must be a number in {bracket}{low:g}, {high:g}], got {value!r}.")


def flag(field: str, value: object) -> None:
    """Require true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"{field} must be true or false, got {value!r}.")


def choice(field: str, value: object, allowed: Iterable[str]) -> None:
    """Require one of the allowed names."""
    names = list(allowed)
    if value not in names:
        raise ValueError(f"{field} must be one of {', '.join(names)}, got {value!r}.")
