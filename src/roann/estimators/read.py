"""One way to read X, y and time stamps: what users have becomes a `Series`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, unpack_sequence

from roann import _checks
from roann.estimators.numbers import numbers, unmasked
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
    names = None if first else channel_names("X", X if long or isinstance(X, list | tuple) else [])
    X = _split(X) if long else _plain(X)
    _several(X, reset or getattr(estimator, "_columns", None) is not None)
    columns = None
    if isinstance(X, list):
        parts = [_one(part, i, first) for i, part in enumerate(X)]
        _same_channels(parts)
        series = Series.of(parts)
    elif getattr(X, "ndim", 2) == 2:
        X = _table(estimator, X, reset)
        series = _rectangle(X[:, :, None])
        columns = X.shape[1]
    else:
        series = _block(numbers("X", X), first)
    _long_enough(series, least, columns)
    _sizes(estimator, series, columns, reset)
    same_names("X", estimator, "_channel_names", names, reset)
    return series if times is None else stamped(series, times)


def channel_names(argument: str, X: Any) -> list[str] | None:
    """The columns of a table, or those that all tables of a list have; None without names."""
    tables = [X] if hasattr(X, "columns") else [x for x in X if hasattr(x, "columns")]
    found = [list(table.columns) for table in tables]
    if not found or not all(isinstance(name, str) for row in found for name in row):
        return None
    for row in found:
        if row != found[0]:
            cure = "give all tables the same columns, in one order"
            _checks.fail(argument, f"columns {found[0]}", f"{row} in another table", cure)
    return found[0]


def same_names(argument: str, estimator: Any, kept: str, names: Any, reset: bool) -> None:
    """Note the names of channels on the estimator, or hold new data to them."""
    known = getattr(estimator, kept, None)
    if reset:
        setattr(estimator, kept, names)
    elif known is not None and names is not None and names != known:
        cure = "select the columns that fit was given, in that order"
        _checks.fail(argument, f"columns {known}", names, cure)


def _is_long(X: Any) -> bool:
    """Whether X is a table whose index has the levels series and time."""
    return getattr(getattr(X, "index", None), "nlevels", 1) == 2


def _split(X: Any) -> list[Any]:
    """The series of a table with two levels, each (T_i, C)."""
    parts = []
    for i, (_, group) in enumerate(X.groupby(level=0, sort=False)):
        if not group.index.get_level_values(1).is_monotonic_increasing:
            cure = "sort it with X.sort_index()"
            _checks.fail("X", "rows in the order of time", f"others in series {i}", cure)
        parts.append(group)
    return parts


def _several(X: Any, tables: bool) -> None:
    """Refuse what is no set of series; without `tables`, one series (T, 1) too."""
    cure = "Reshape your data with X[None] if it is one series"  # scikit-learn wants these words
    shape = getattr(X, "shape", None)
    if hasattr(X, "toarray"):
        _checks.fail("X", "dense data", "a sparse matrix", "pass X.toarray()", TypeError)
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
    """What torch and numpy have for sets of series as an array, or as a list of unequal ones."""
    if isinstance(X, PackedSequence):
        X = unpack_sequence(X)
    if isinstance(X, Tensor) and X.is_nested:
        X = list(X.unbind())
    X = unmasked(X)
    if hasattr(X, "__array__") and not hasattr(X, "shape"):
        return np.asarray(X)
    boxed = getattr(X, "ndim", 0) == 1 and getattr(X.dtype, "kind", "") == "O" and len(X) > 0
    if boxed and all(np.ndim(part) in (1, 2) for part in X):
        X = list(X)
    if isinstance(X, list | tuple) and len(X):
        parts = [unmasked(part) for part in X]
        depths = {np.ndim(part) for part in parts}
        unequal = depths == {1} and len({len(part) for part in parts}) > 1
        return parts if unequal or depths not in ({0}, {1}) else tuple(parts)
    return X


def _one(part: Any, i: int, first: bool) -> Floats:
    """One series of a list as (T_i, C)."""
    values = numbers("X", part, f" in series {i}")
    if values.ndim not in (1, 2):
        _checks.fail("X", "series of shape (T,) or (T, C)", f"{values.shape} for series {i}")
    values = values[:, None] if values.ndim == 1 else (values.T if first else values)
    if not values.size:
        _checks.fail("X", "at least one step in each series", f"none in series {i}")
    return values


def _same_channels(parts: list[Floats]) -> None:
    for i, part in enumerate(parts):
        if part.shape[1] != parts[0].shape[1]:
            _checks.fail(
                "X", f"{parts[0].shape[1]} channels, as in series 0",
                f"{part.shape[1]} in series {i}", "check the layout of each series",
            )  # fmt: skip


def _table(estimator: Any, X: Any, reset: bool) -> Floats:
    """X (n, T) through scikit-learn's own checks too, which know the names of columns."""
    values = numbers("X", X)
    length = getattr(estimator, "_columns", None)
    if not reset and length is None:  # fitted on series of any length
        return values
    shape = values.shape
    if not reset and len(shape) == 2 and shape[1] != length:
        raise ValueError(
            f"X has {shape[1]} features, but {type(estimator).__name__} is expecting {length} "
            "features as input; pass series of another length as an array (n, T, 1) or a list"
        )
    allowed = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
    named = X if hasattr(X, "columns") else values
    return np.asarray(validate_data(estimator, named, reset=reset, **allowed))


def _block(X: Floats, first: bool) -> Series:
    """X (n, T, C), or (n, C, T)."""
    if X.ndim != 3:
        _checks.fail("X", "series as (n, T), (n, T, C) or a list", f"shape {X.shape}")
    if 0 in X.shape:
        _checks.fail("X", "series, steps and channels", f"shape {X.shape}: 0 sample(s) or values")
    return _rectangle(np.swapaxes(X, 1, 2) if first else X)


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


def exogenous(exog: Any, count: int) -> list[Floats]:
    """Exogenous inputs of `count` series, (T_i, E) each; of one series, (T,) and (T, E) too."""
    values = unmasked(exog)
    if not (isinstance(values, list | tuple) or np.ndim(values)) or not len(values):
        got = f"{type(exog).__name__} without values"
        _checks.fail("exog", "an array or a list, as long as the series", got, error=TypeError)
    lone = hasattr(values, "columns") or all(np.ndim(row) < 2 for row in values)
    rows = [values] if count == 1 and lone else values
    found = [numbers("exog", row, f" for series {i}") for i, row in enumerate(rows)]
    found = [row[:, None] if row.ndim == 1 else row for row in found]
    for i, row in enumerate(found):
        if row.ndim != 2 or not row.size:
            _checks.fail("exog", "shape (T,) or (T, E)", f"{row.shape} for series {i}")
    return found


def stamped(series: Series, times: Any) -> Series:
    """The series with time stamps: (T,) for all, (n, T), or a list of (T_i,)."""
    rows = _plain(times)
    if not isinstance(rows, list):
        table = np.asarray(rows)
        if not table.ndim:
            got = type(times).__name__
            _checks.fail("times", "an array or a list of time stamps", got, error=TypeError)
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
    if stamps.dtype == object and stamps.size:
        if all(hasattr(stamp, "timestamp") for stamp in stamps.flat):
            stamps = np.array([stamp.timestamp() for stamp in stamps.flat]).reshape(stamps.shape)
        elif all(hasattr(stamp, "isoformat") for stamp in stamps.flat):
            stamps = stamps.astype("datetime64[ns]")
    if stamps.dtype.kind in "Mm":
        whole = stamps.astype(stamps.dtype.kind + "8[ns]")
        return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e9)
    if stamps.dtype.kind in "US":
        got, cure = repr(stamps.ravel().tolist()[0]), "convert text with pandas.to_datetime"
        _checks.fail("times", "numbers or dates", got, cure, TypeError)
    return numbers("times", stamps)
