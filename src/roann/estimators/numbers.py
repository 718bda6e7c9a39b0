"""One way to read numbers, for X, y, times and exog: masked values are NaN; what is no real number
is refused in one sentence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from roann import _checks
from roann.estimators.series import Floats

LARGEST = 1e307  # differences of two such numbers are finite
KINDS = {
    "c": ("complex ones", "Complex data not supported: pass real and imaginary parts as channels"),
    "M": ("dates", "turn dates into numbers first"),
    "m": ("time differences", "turn them into numbers first"),
}


def numbers(argument: str, values: Any, where: str = "", *, missing: bool = True) -> Floats:
    """Values of any shape in float64, finite or, if `missing` is allowed, NaN.

    `where` says which series they belong to.
    """
    values = unmasked(values)
    for kind in _kinds(values):
        if kind in KINDS:
            got, cure = KINDS[kind]
            _checks.fail(argument, "real numbers", got + where, cure)
    try:
        found = _floats(values)
    except (TypeError, ValueError) as error:
        why = str(error).splitlines()[0].split(". ")[0].rstrip(".")
        _checks.fail(argument, "numbers", f"something else{where}", why, type(error))
    bad = np.abs(found) > LARGEST
    if not missing:
        bad |= np.isnan(found)
    if bad.any():
        first = np.argwhere(bad)[0]
        where = where or (f" in series {first[0]}" if found.ndim > 1 else "")
        value = found[tuple(first)]
        got = "infinity" if np.isinf(value) else "NaN" if np.isnan(value) else f"{value:.1e}"
        wanted, cure = "finite numbers", ""
        if missing:
            wanted, cure = "finite numbers or NaN", "mark missing values with NaN"
        _checks.fail(argument, wanted, got + where, cure)
    return found


def _floats(values: Any) -> Floats:
    if hasattr(values, "iloc"):  # of pandas, which has missing values of its own
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    return np.asarray(values, dtype=np.float64)


def unmasked(values: Any) -> Any:
    """Tensors as arrays, and masked arrays with NaN for what is masked."""
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        small = values.is_floating_point() and values.dtype != torch.float64
        return (values.double() if small else values).numpy()  # numpy has no bfloat16
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "biuf":
        return np.where(values.mask, np.nan, values.data)
    return values


def _kinds(values: Any) -> set[str]:
    """The kinds of numpy's dtypes in an array, a table or a list."""
    if hasattr(values, "columns"):  # a table has one for each
        return {getattr(dtype, "kind", "O") for dtype in values.dtypes}
    dtype = getattr(values, "dtype", None)
    if dtype is None:
        try:
            dtype = np.asarray(values).dtype
        except ValueError:  # rows of unequal length, which the caller refuses
            return set()
    return {getattr(dtype, "kind", "O")}
