"""What the figures of the report take for granted, checked where a run is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from roann.lab.records import check, is_number


def _optional(value: object) -> bool:
    """A number, or null where it was not finite."""
    return value is None or is_number(value)


def _row(value: object) -> bool:
    return isinstance(value, list) and all(map(_optional, value))


def _whole(value: object) -> bool:
    return isinstance(value, int) and is_number(value)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _scores(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_number, value.values()))


def _tuples(value: object, size: int) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list) and len(row) == size and all(map(is_number, row)) for row in value
    )


def _bound(value: object) -> bool:
    return isinstance(value, dict) and all(_optional(value.get(end)) for end in ("lower", "upper"))


def _surface(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    extent, rows, points = (value.get(key) for key in ("extent", "values", "points"))
    width = len(rows[0]) if isinstance(rows, list) and rows and isinstance(rows[0], list) else 0
    return (
        _tuples([extent], 4)
        and width > 1
        and isinstance(rows, list)
        and len(rows) > 1
        and all(_row(row) and len(row) == width for row in rows)
        and (points is None or _tuples(points, 3))
    )


_Fields = Mapping[str, Callable[[Any], bool]]
_PROBE: _Fields = {
    "norm_W": _optional,
    "sigma": _row,
    "sigma_max": _optional,
    "sigma_min": _optional,
    "eigenvalues": lambda value: _tuples(value, 2),
    "gradient_at": lambda value: _tuples([value], len(value) if isinstance(value, list) else -1),
    "gradient_by_step": _row,
    "bound": _bound,
    "surface": _surface,
}
_FACTS: _Fields = {"primary": _text, "better": _text, "trivial": _scores}
_RESULT: _Fields = {"status": _text, "steps": _whole, "seconds": is_number, **_FACTS}
_TOGETHER = (("sigma_max", "sigma_min"), ("gradient_at", "gradient_by_step"))


def check_record(record: Mapping[str, Any]) -> None:
    """Raise a ValueError unless this is a record that the figures can draw."""
    check(record)
    if record["kind"] == "probe":
        _check(record, _PROBE)
        for one, other in _TOGETHER:
            if (one in record) != (other in record):
                raise ValueError(f"it has only one of {one} and {other}")
        if len(record.get("gradient_at", [])) != len(record.get("gradient_by_step", [])):
            raise ValueError("gradient_at and gradient_by_step have different lengths")
    elif record["kind"] == "eval":
        names = [key for key in record if key not in ("kind", "set")]
        _check(record, dict.fromkeys(names, _optional))
    elif record["kind"] == "event":
        _check(record, _FACTS)


def check_result(result: Mapping[str, Any]) -> None:
    """Raise a ValueError unless this is a result as a run writes it, as far as it goes."""
    _check(result, _RESULT)


def _check(values: Mapping[str, Any], fields: _Fields) -> None:
    for name, fits in fields.items():
        if name in values and not fits(values[name]):
            raise ValueError(f"its {name} is not of the shape that a run writes")
