"""Windows of series and what follows them: the training data of a forecaster.

Note [Exogenous inputs]
-----------------------
Exogenous inputs are known for the steps to be forecast too. A window with them goes on over these
steps: the series itself is missing there, as any missing value is (see `prepare`), so the network
is told which steps lie ahead, and how far.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from roann import _checks
from roann.estimators.series import Floats, Series

MOST = 20_000  # windows; from longer series they are cut further apart


@dataclass(frozen=True)
class Windows:
    """Windows, and what follows each of them.

    Attributes:
        series: the inputs, C channels and, if there are any, E exogenous ones.
        base: (n, C), what forecasts are counted from: the last value seen, or 0.
        targets: (n, steps, C), less the base; NaN where missing.
        ahead: (n,), the number of steps from the end of a window to the end of its series.
    """

    series: Series
    base: Floats
    targets: Floats
    ahead: NDArray[np.int64]


def cut(
    parts: list[Floats], exog: list[Floats] | None, window: int, steps: int, relative: bool
) -> Windows:
    """All windows of series (T_i, C), with the `steps` values that follow each."""
    for i, part in enumerate(parts):
        if len(part) <= steps:
            _checks.fail("X", f"series of at least steps + 1 = {steps + 1} steps",
                         f"{len(part)} in series {i}")  # fmt: skip
    total = sum(max(1, len(part) - window - steps + 1) for part in parts)
    stride = math.ceil(total / MOST)
    places = [
        (i, end)
        for i, part in enumerate(parts)
        for end in range(len(part) - steps, min(window, len(part) - steps) - 1, -stride)
    ]
    inputs, bases, targets, ahead = [], [], [], []
    for i, end in places:
        base = last_seen(parts[i][:end], relative)
        inputs.append(
            _window(parts[i][:end], base, None if exog is None else exog[i], window, steps)
        )
        bases.append(base)
        targets.append(parts[i][end : end + steps] - base)
        ahead.append(len(parts[i]) - end)
    return Windows(Series.of(inputs), np.array(bases), np.array(targets), np.array(ahead))


def ends(
    parts: list[Floats], exog: list[Floats] | None, window: int, steps: int, relative: bool
) -> tuple[Series, Floats]:
    """The window at the end of each series, and its base; exog (T_i + steps, E)."""
    bases = [last_seen(part, relative) for part in parts]
    inputs = [
        _window(part, base, None if exog is None else exog[i], window, steps)
        for i, (part, base) in enumerate(zip(parts, bases, strict=True))
    ]
    return Series.of(inputs), np.array(bases)


def last_seen(past: Floats, relative: bool) -> Floats:
    """The last value of each channel that is not missing, (C,); 0 if none, or if not relative."""
    base = np.zeros(past.shape[1])
    if not relative:
        return base
    if not np.isnan(past[-1]).any():
        return np.array(past[-1])
    for c in range(past.shape[1]):
        seen = np.flatnonzero(~np.isnan(past[:, c]))
        base[c] = past[seen[-1], c] if len(seen) else 0.0
    return base


def _window(past: Floats, base: Floats, exog: Floats | None, window: int, steps: int) -> Floats:
    """The last steps of the past; with exogenous inputs, the steps ahead too."""
    own = past[-window:] - base
    if exog is None:
        return own
    own = np.concatenate([own, np.full((steps, past.shape[1]), np.nan)])
    return np.concatenate([own, exog[len(past) + steps - len(own) : len(past) + steps]], axis=1)
