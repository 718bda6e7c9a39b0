"""One way to read y: labels of classes, or numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from roann import _checks
from roann.estimators.numbers import numbers, unmasked
from roann.estimators.series import Floats


def labels(estimator: Any, y: Any) -> NDArray[Any]:
    """The label of each series, (n,)."""
    found: NDArray[Any] = column_or_1d(unmasked(_given(estimator, y)), warn=True)
    if found.dtype.kind == "f":
        assert_all_finite(found, input_name="y")
    check_classification_targets(found)
    return found


def classes(found: NDArray[Any]) -> NDArray[Any]:
    """The classes among labels: at least two."""
    different = np.unique(found)
    if len(different) < 2:
        got = f"one class, {different.tolist()[0]!r}" if len(different) else "no label"
        _checks.fail("y", "at least two classes", got)
    return different


def reals(estimator: Any, y: Any) -> Floats:
    """The target of each series, (n,) or (n, K)."""
    found = numbers("y", _given(estimator, y), missing=False)
    if found.ndim not in (1, 2) or not found.size:
        _checks.fail("y", "shape (n,) or (n, K)", found.shape)
    return found


def _given(estimator: Any, y: Any) -> Any:
    if y is None:
        raise ValueError(  # scikit-learn wants these words
            f"This {type(estimator).__name__} estimator requires y to be passed, "
            "but the target y is None"
        )
    return y
