"""One way to read X, y and time stamps: what users have becomes a `Series`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, validate_data
from torch import Tensor

from roann import _checks
from roann.estimators.series import Floats, Series

LAYOUTS = ("channels_last", "channels_first")


class ReadsSeries(BaseEstimator):
    """Abstract: an estimator whose X is a set of series, with missing values."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags


def read(estimator: Any, X: Any, times: Any = None, *, reset: bool, least: int = 2) -> Series:
    """X as a set of series, checked; with `reset`, its sizes are noted on the estimator.

    X is (n, T), (n, T, C), a list of (T_i,) or (T_i, C), or a table whose index has the two levels
    series and time. With layout="channels_first" it is (n, C, T), or a list of (C, T_i).
    """
    _checks.choice("layout", estimator.layout, LAYOUTS)
    long = _is_long(X)  # its columns are channels in any layout
    first = estimator.layout == "channels_first" and not long
    X = _split(X) if long else _plain(X)
    _several(X, reset or getattr(estimator, "_columns", None) is not None)
    if isinstance(X, list):
        parts = [_one(part, i, first) for i, part in enumerate(X)]
        _same_channels(parts)
        series = Series.of(parts)
        columns = None
    elif getattr(X, "ndim", 2) == 3:
        X = check_array(
            X, dtype=np.float64, ensure_all_finite="allow-nan", allow_nd=True, input_name="X",
            estimator=estimator,
        )  # fmt: skip
        series = _rectangle(np.swapaxes(X, 1, 2) if first else X)
        columns = None
    else:
        X = _table(estimator, X, reset)
        series = _rectangle(X[:, :, None])
        columns = X.shape[1]
    _long_enough(series, least, columns)
    _sizes(estimator, series, columns, reset)
    return series if times is None else stamped(series, times)


def _is_long(X: Any) -> bool:
    """Whether X is a table whose index has the levels series and time."""
    return getattr(getattr(X, "index", None), "nlevels", 1) == 2


def _split(X: Any) -> list[NDArray[Any]]:
    """The series of a table with two levels, each (T_i, C)."""
    parts = []
    for i, (_, group) in enumerate(X.groupby(level=0, sort=False)):
        if not group.index.get_level_values(1).is_monotonic_increasing:
            cure = "sort it with X.sort_index()"
            _checks.fail("X", "rows in the order of time", f"others in series {i}", cure)
        parts.append(group.to_numpy())
    return parts


def _several(X: Any, tables: bool) -> None:
    """Refuse what is no set of series; without `tables`, one series (T, 1) too."""
    cure = "Reshape your data with X[None] if it is one series"  # scikit-learn wants these words
    shape = getattr(X, "shape", None)
    if shape is None and not isinstance(X, list | tuple):
        got = f"a {type(X).__name__}"
        _checks.fail("X", "an array, a tensor, a table or a list of series", got, error=TypeError)
    if shape is None and not len(X):
        _checks.fail("X", "at least one series", "an empty list: 0 sample(s)")
    alone = shape is None and all(np.ndim(value) == 0 for value in X)
    if alone or (shape is not None and len(shape) < 2):
        got = "one row" if shape is None else f"shape {tuple(shape)}"
        _checks.fail("X", "series as (n, T), (n, T, C) or a list", got, cure)
    if shape is not None and len(shape) == 2 and shape[0] > 1 and shape[1] == 1 and not tables:
        _checks.fail("X", "(n, T, C) or a list, as fit was given", f"shape {tuple(shape)}", cure)


def _plain(X: Any) -> Any:
    """Tensors, and what offers `__array__`, as arrays; sequences of arrays as lists of arrays."""
    if isinstance(X, Tensor):
        return X.detach().cpu().numpy()
    if hasattr(X, "__array__") and not hasattr(X, "shape"):
        return np.asarray(X)
    if isinstance(X, np.ndarray) and X.ndim == 1 and X.dtype == object and len(X):
        X = list(X) if all(np.ndim(part) in (1, 2) for part in X) else X
    if isinstance(X, list | tuple) and len(X):
        parts = [p.detach().cpu().numpy() if isinstance(p, Tensor) else p for p in X]
        depths = {np.ndim(part) for part in parts}
        unequal = depths == {1} and len({len(part) for part in parts}) > 1
        return parts if 2 in depths or unequal else tuple(parts)
    return X


def _one(part: Any, i: int, first: bool) -> Floats:
    """One series of a list as (T_i, C)."""
    try:
        values = np.asarray(part, dtype=np.float64)
    except (TypeError, ValueError):
        _checks.fail("X", "numbers", f"something else in series {i}")
    if values.ndim not in (1, 2):
        _checks.fail("X", "series of shape (T,) or (T, C)", f"{values.shape} for series {i}")
    values = values[:, None] if values.ndim == 1 else (values.T if first else values)
    if not values.size:
        _checks.fail("X", "at least one step in each series", f"none in series {i}")
    if np.isinf(values).any():
        cure = "mark missing values with NaN"
        _checks.fail("X", "finite numbers or NaN", f"infinity in series {i}", cure)
    return values


def _same_channels(parts: list[Floats]) -> None:
    for i, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            _checks.fail(
                "X", f"{parts[0].shape[1]} channels, as in series 0",
                f"{part.shape[1]} in series {i}", "check the layout of each series",
            )  # fmt: skip


def _table(estimator: Any, X: Any, reset: bool) -> Floats:
    """X (n, T) through scikit-learn's own checks."""
    allowed = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
    length = getattr(estimator, "_columns", None)
    if not reset and length is None:  # fitted on series of any length
        return np.asarray(check_array(X, input_name="X", estimator=estimator, **allowed))
    shape: tuple[int, ...] = tuple(np.shape(X))
    if not reset and len(shape) == 2 and shape[1] != length:
        raise ValueError(
            f"X has {shape[1]} features, but {type(estimator).__name__} is expecting {length} "
            "features as input; pass series of another length as an array (n, T, 1) or a list"
        )
    return np.asarray(validate_data(estimator, X, reset=reset, **allowed))


def _rectangle(X: Floats) -> Series:
    n, T, C = X.shape
    return Series(X.reshape(n * T, C), np.full(n, T, np.int64))


def _long_enough(series: Series, least: int, columns: int | None) -> None:
    longest = int(series.lengths.max())
    if longest >= least:
        return
    shape = f"T = {longest}" + (f", {columns} feature(s)" if columns else "")
    cure = "check layout="
    if columns:
        cure = "pass one series as [X], and tables to a plain scikit-learn model"
    _checks.fail("X", f"series of at least {least} steps", shape, cure)


def _sizes(estimator: Any, series: Series, columns: int | None, reset: bool) -> None:
    """Note the number of channels, or hold X to it."""
    if reset:
        estimator._columns = columns
        estimator.n_channels_in_ = series.channels
        if columns is None:
            estimator.n_features_in_ = series.channels
    elif series.channels != estimator.n_channels_in_:
        cure = "pass the channels that fit was given, in the same layout"
        _checks.fail("X", f"{estimator.n_channels_in_} channels", series.channels, cure)


def stamped(series: Series, times: Any) -> Series:
    """The series with time stamps: (T,) for all, (n, T), or a list of (T_i,)."""
    rows = _plain(times)
    if not isinstance(rows, list):
        table = np.asarray(rows)
        rows = [table] * len(series) if table.ndim == 1 else list(table)
    stamps = [_seconds(np.asarray(row)) for row in rows]
    if [len(s) if s.ndim == 1 else -1 for s in stamps] != series.lengths.tolist():
        got = f"{len(stamps)} rows of other lengths" if len(stamps) > 1 else "another length"
        _checks.fail("times", "one time stamp for each step of each series", got)
    flat = np.concatenate(stamps)
    steps = np.diff(flat, prepend=flat[:1])
    steps[series.starts] = 0
    if not np.isfinite(flat).all() or (steps < 0).any():
        _checks.fail("times", "finite numbers that never fall within a series", "others")
    return Series(series.values, series.lengths, flat)


def _seconds(stamps: NDArray[Any]) -> Floats:
    """Time stamps as numbers; dates as seconds, those with a time zone too."""
    if stamps.dtype.kind == "M":
        return stamps.astype("datetime64[ns]").astype(np.int64) / 1e9
    if stamps.dtype == object and all(hasattr(stamp, "timestamp") for stamp in stamps.flat):
        stamps = np.array([stamp.timestamp() for stamp in stamps.flat]).reshape(stamps.shape)
    try:
        return stamps.astype(np.float64)
    except (TypeError, ValueError):
        got, cure = repr(stamps.ravel().tolist()[0]), "convert text with pandas.to_datetime"
        _checks.fail("times", "numbers or dates", got, cure, TypeError)
