"""Limits of configuration fields: types are strict, sizes are capped, errors are ValueErrors.

A class of settings derives from `Settings`, annotates each field with its limits, and says what the
field is in a comment beside or above it, which is its help on the command line::

    hidden_size: Width = 128  # number of hidden units, N.
    leak: Annotated[float, Range(0, 1)] = 0.3  # fraction of the state that is replaced.
    cell: Annotated[str, OneOf(("rnn", "gru"))] = "rnn"  # type of the recurrent cell.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, dataclass_transform, get_args, get_origin, get_type_hints

from roann._checks import choice as choice
from roann._checks import fail as fail

WIDTH = 16_384  # of a state, a layer or a batch
LENGTH = 1_000_000  # of a sequence, of a depth, of a data set


@dataclass(frozen=True)
class Range:
    """The limits of an int or a float, both included."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)  # hashed by identity: a table of choices has no hash
class OneOf:
    """The values that a str may have."""

    choices: Collection[str]


Width = Annotated[int, Range(1, WIDTH)]
Length = Annotated[int, Range(1, LENGTH)]
Horizon = Annotated[int, Range(1, 10 * LENGTH)]
Layers = Annotated[int, Range(1, 1000)]
Batches = Annotated[int, Range(1, 10_000)]
NonNegative = Annotated[float, Range(0, 1e6)]
Fraction = Annotated[float, Range(0, 1)]

_hints: Callable[[type], dict[str, Any]] = cache(partial(get_type_hints, include_extras=True))


@dataclass_transform(frozen_default=True)
@dataclass(frozen=True)
class Settings:
    """Base of settings: subclasses are frozen dataclasses that check the limits of their fields."""

    def __init_subclass__(cls, kw_only: bool = False) -> None:
        dataclass(frozen=True, kw_only=kw_only)(cls)

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            _check(name, hint, getattr(self, name))


class HiddenSettings(Settings):
    """Base of the settings of a recurrent system."""

    hidden_size: Width = 128  # number of hidden units, N.


def _check(field: str, hint: Any, value: Any) -> None:
    if hint is bool:
        if not isinstance(value, bool):
            fail(field, "true or false", repr(value))
    elif get_origin(hint) is tuple:
        for item in value or ():
            _check(field, get_args(hint)[0], item)
    elif get_origin(hint) is Annotated:
        kind, limit = get_args(hint)
        if isinstance(limit, OneOf):
            choice(field, value, limit.choices)
        else:
            (whole if kind is int else real)(field, value, limit.low, limit.high)
    elif NoneType in get_args(hint) and value is not None:
        _check(field, get_args(hint)[0], value)


def whole(field: str, value: object, low: float, high: float) -> int:
    """`value` if it is an int in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        fail(field, f"a whole number from {low} to {high}", repr(value))
    return value


def real(field: str, value: object, low: float, high: float) -> float:
    """`value` if it is a finite number in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        fail(field, f"a number from {low:g} to {high:g}", repr(value))
    return value
