"""Forecast series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from roann import _checks
from roann.estimators import fitting, graphs, plots, windows
from roann.estimators.base import Objective, RoaEstimator
from roann.estimators.numbers import numbers
from roann.estimators.prepare import as_tensor
from roann.estimators.read import channel_names, exogenous, read, same_names
from roann.estimators.series import Floats, Prepared
from roann.export import Graph


@final
@dataclass(kw_only=True, eq=False, repr=False)
class RoaForecaster(RoaEstimator):
    """Forecast the next steps of one series, or of each of many, with roaRNNs.

    Args:
        steps: how many values ahead are forecast, all at once.
        window: how many past steps a forecast is made from; None chooses from the data.
        relative: forecast the change from the last value seen, not the value itself.
        **others: as in `RoaClassifier`, without class_weight.

    Attributes:
        window_: the window in use.
        networks_, history_, horizon_, n_channels_in_, n_features_in_: as in `RoaClassifier`.

    Example:
        >>> t = np.arange(200)
        >>> series = np.sin(t / 5) + t / 100
        >>> model = RoaForecaster(steps=10, hidden_size=32, max_epochs=20, random_state=0)
        >>> model.fit(series[:190]).predict().shape
        (10,)
        >>> model.score(series) > 0.9  # 1 is perfect, 0 is repeating the last value
        True
    """

    steps: int = 1
    window: int | None = None
    relative: bool = True

    def fit(self, X: Any, y: Any = None, exog: Any = None) -> Self:
        """Train on one series (T,), or on many: (n, T), (n, T, C) or a list of (T_i, C).

        `y` is not used: the series are their own targets. `exog` are inputs that are known ahead,
        with as many steps: (T,) or (T, E) for one series, (n, T, E) or a list for many.
        """
        return self._learn(X, y, exog, partial=False)

    def partial_fit(self, X: Any, y: Any = None, exog: Any = None) -> Self:
        """Train for one epoch on more series; the first call decides all scales."""
        return self._learn(X, y, exog, partial=True)

    def _learn(self, X: Any, y: Any, exog: Any, partial: bool) -> Self:
        known = hasattr(self, "networks_") and (partial or self.warm_start)
        steps = _checks.size("steps", self.steps)
        if _alone(X) and y is not None:
            cure = "pass the series as X and inputs known ahead as exog"
            _checks.fail("y", "None with one series", "an array", cure)
        parts = self._parts(X, reset=not known, least=2)
        extra = self._extra(exog, parts, 0, reset=not known)
        if not known:
            self._form = 1 if _alone(X) else 2 if self._columns is not None else 3
            longest = max(len(part) for part in parts)
            some = min(max(32, 4 * steps), max(1, 2 * (longest - steps) // 3))
            self.window_: int = some if self.window is None else _checks.size("window", self.window)
        w = windows.cut(parts, extra, self.window_, steps, bool(self.relative))
        if not known:
            blank = np.isnan(w.targets).all(axis=(0, 1))
            if blank.any():
                got = f"NaN alone in channel {blank.argmax()}"
                _checks.fail("X", f"values after the first {self.window_} steps", got)
            largest = np.maximum(np.nanmax(np.abs(w.targets), axis=(0, 1)), np.finfo(float).tiny)
            spread = largest * np.sqrt(np.nanmean(np.square(w.targets / largest), axis=(0, 1)))
            center = np.zeros_like(spread) if self.relative else np.nanmean(w.targets, axis=(0, 1))
            self._spread, self._center = np.where(spread > 0, spread, 1.0), center
        self._past = [part[-self.window_ :] for part in parts]
        self._past_exog = None if extra is None else [e[-self.window_ :] for e in extra]
        self._train(w.series, self._objective(w), partial=partial)
        return self

    def _objective(self, w: windows.Windows) -> Objective:
        scaled = as_tensor((w.targets - self._center) / self._spread).flatten(1)
        start = as_tensor(np.tile(-self._center / self._spread, w.targets.shape[1]))

        def loss(outputs: Tensor, targets: Tensor) -> Tensor:
            seen = ~targets.isnan()
            return (
                (outputs - targets)[seen].square().mean() if bool(seen.any()) else 0 * outputs.sum()
            )

        def score(outputs: Tensor, targets: Tensor) -> float:
            return _skill(outputs, targets, start.to(targets).expand_as(targets))

        return Objective(scaled, scaled.shape[1], loss, score, w.ahead, ahead=w.targets.shape[1])

    def predict(self, X: Any = None, exog: Any = None) -> NDArray[np.float64]:
        """The next `steps` values of each series of X, or of the training data if X is None.

        Shape: (steps,) for one series (T,), (n, steps) for (n, T), else (n, steps, C). With
        exogenous inputs, `exog` has T + steps steps, or, if X is None, the `steps` ahead alone.
        """
        check_is_fitted(self)
        parts, extra = self._given(X, exog)
        form = self._form if X is None else 1 if _alone(X) else 2 if _flat(X) else 3
        found = self._forecast(parts, extra)
        return found if form == 3 else found[0, :, 0] if form == 1 else found[:, :, 0]

    def score(self, X: Any, y: Any = None, exog: Any = None) -> float:
        """The skill on the last `steps` values of each series, forecast from those before.

        It is 1 − MSE / MSE of repeating the last value: 1 is perfect, 0 no better than that.
        """
        check_is_fitted(self)
        parts = self._parts(X, reset=False, least=self.steps + 1)
        extra = self._extra(exog, parts, 0, reset=False)
        past = [part[: -self.steps] for part in parts]
        truth = np.array([part[-self.steps :] for part in parts])
        if np.isnan(truth).all():
            _checks.fail("X", f"a value among the last {self.steps} steps", "NaN alone")
        last = np.array([windows.last_seen(part, True) for part in past])[:, None]
        found = self._forecast(past, extra)
        return _skill(
            *(torch.tensor(a) for a in (found, truth, np.broadcast_to(last, truth.shape)))
        )

    def _forecast(self, parts: list[Floats], extra: list[Floats] | None) -> Floats:
        prepared, base = self._windowed(parts, extra)
        outputs = torch.stack(fitting.answers(self.networks_, prepared)).double().mean(0).numpy()
        table = outputs.reshape(len(parts), self.steps, -1)
        found: Floats = table * self._spread + self._center + base[:, None]
        return found

    def _add_answers(self, graph: Graph, given: graphs.Given) -> None:
        exog = None
        if self._exog_channels is not None:
            exog = graph.input("exog", ["batch", "time_ahead", self._exog_channels], torch.float64)
            exog = graph.node("Transpose", exog, perm=[1, 0, 2])
        w = graphs.window(graph, given, self.window_, bool(self.relative), exog, self.steps)
        mean = graphs.averaged(graph, self._outputs(graph, w.values, w.lengths))
        mean = graph.node("Reshape", mean, graph.constant([0, self.steps, -1]))
        found = graphs.scaled_back(graph, mean, self._spread, self._center)
        shape: list[int | str] = ["batch", self.steps, self.n_channels_in_]
        graph.output("forecast", graph.node("Add", found, w.base), shape, torch.float64)

    def _windowed(self, parts: list[Floats], extra: list[Floats] | None) -> tuple[Prepared, Floats]:
        series, base = windows.ends(parts, extra, self.window_, self.steps, bool(self.relative))
        return self._preparation(series, self._place), base

    def _given(self, X: Any, exog: Any) -> tuple[list[Floats], list[Floats] | None]:
        """Histories and exogenous inputs for a forecast."""
        if X is None:
            ahead = self._extra(exog, self._past, self.steps, reset=False, alone=True)
            if ahead is None or self._past_exog is None:
                return self._past, None
            joined = zip(self._past_exog, ahead, strict=True)
            return self._past, [np.concatenate(pair) for pair in joined]
        parts = self._parts(X, reset=False, least=1)
        return parts, self._extra(exog, parts, self.steps, reset=False)

    def _parts(self, X: Any, *, reset: bool, least: int) -> list[Floats]:
        """X as a list of series (T_i, C)."""
        if _flat(X) and hasattr(getattr(X, "index", None), "day_of_year"):
            cure = "pass [X] for one series, its columns channels; X.to_numpy() if rows are series"
            _checks.fail("X", "a series in each row", "a table with a date for each row", cure)
        if _alone(X):
            if not reset and self._columns is not None:
                raise ValueError(
                    "X: expected many series, (n, T), as fit was given, got one. Reshape your data "
                    "using X.reshape(1, -1) if it is one series"
                )
            X = [numbers("X", X)[:, None]]
        return read(self, X, reset=reset, least=least).split()

    def _extra(
        self, exog: Any, parts: list[Floats], more: int, *, reset: bool, alone: bool = False
    ) -> list[Floats] | None:
        """Exogenous inputs as a list of (T_i + more, E), or (more, E) if `alone`."""
        known: int | None = None if reset else self._exog_channels
        if exog is None or (not reset and known is None):
            if (exog is None) != (known is None):
                got = "None" if exog is None else "an array"
                _checks.fail("exog", "exogenous inputs as fit was given", got)
            self._exog_channels: int | None = known
            return None
        rows = exogenous(exog, len(parts))
        same_names("exog", self, "_exog_names", channel_names("exog", exog), reset)
        wanted = [more + (0 if alone else len(part)) for part in parts]
        if [len(row) for row in rows] != wanted:
            what = f"{len(wanted)} arrays of {wanted[0]} steps" + (", …" if len(wanted) > 1 else "")
            _checks.fail("exog", what, f"{len(rows)} of {[len(row) for row in rows][:3]}")
        channels = {row.shape[1] for row in rows}
        if len(channels) > 1 or (known is not None and channels != {known}):
            _checks.fail("exog", f"{known or 'equally many'} channels", sorted(channels))
        if reset:
            (self._exog_channels,) = channels
        return rows

    def memory(self, X: Any, exog: Any = None) -> list[NDArray[np.float64]]:
        """Which steps of its window a forecast depends on: the gradient norm at each step."""
        check_is_fitted(self)
        prepared, _ = self._windowed(*self._given(X, exog))
        return plots.memory(self.networks_, prepared, self._answer)

    def plot_memory(self, X: Any, exog: Any = None, ax: Any = None) -> Any:
        """Draw which past steps the forecasts depend on; returns matplotlib's axes."""
        return plots.past(self.memory(X, exog), ax)

    def _answer(self, outputs: Tensor) -> Tensor:
        return outputs.sum(1)


def _alone(X: Any) -> bool:
    """Whether X is one series (T,) and not a set of them."""
    if hasattr(X, "ndim"):
        return bool(X.ndim == 1 and str(getattr(X, "dtype", "")) != "object")
    return isinstance(X, list | tuple) and len(X) > 0 and all(np.ndim(value) == 0 for value in X)


def _flat(X: Any) -> bool:
    """Whether X is a table (n, T)."""
    two_levels = getattr(getattr(X, "index", None), "nlevels", 1) == 2
    return getattr(X, "ndim", 0) == 2 and not two_levels


def _skill(found: Tensor, truth: Tensor, naive: Tensor) -> float:
    """1 − MSE / MSE of the naive forecast, over what is not missing."""
    seen = ~truth.isnan()
    error, usual = ((a - truth)[seen].double().square().mean() for a in (found, naive))
    if usual == 0:
        return 1.0 if error == 0 else 0.0
    return float(1 - error / usual)
