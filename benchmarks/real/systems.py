"""The compared systems: each fits the training series of a set and answers for those of the test.

Networks of all kinds are trained by one loop, and each gets the same search: a part of the training
series validates, three learning rates are tried, and the best trains on all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.real.peers import PEERS
from benchmarks.real.sets import CLASSIFY, FORECAST, REGRESS, Set
from roann.estimators import Options, RoaClassifier, RoaForecaster, RoaRegressor
from roann.estimators.features import ALPHAS, fixed_classifier, fixed_regressor

VALIDATION = 0.25  # of the training series, in a search
RATES = (0.01, 0.003, 0.03)  # of equally good ones, the first
BASES: dict[str, Any] = {CLASSIFY: RoaClassifier, REGRESS: RoaRegressor, FORECAST: RoaForecaster}
Answers = NDArray[Any]


@dataclass
class Fit:
    """What a system answered, how many numbers it learned, and what it chose on the way."""

    answers: Answers
    parameters: int
    chosen: dict[str, Any] = field(default_factory=dict)
    searched: float = 0.0  # seconds of the search before the fit


def origins(data: Set) -> range:
    """Where the forecasts of a test begin: everywhere that leaves `steps` values to compare."""
    return range(len(data.X[0]), len(data.X_test[0]) - data.steps + 1)


def windows(data: Set) -> list[NDArray[np.float64]]:
    """The past of each forecast of the test."""
    return [data.X_test[0][at - data.window : at, 0] for at in origins(data)]


def truth(data: Set) -> Answers:
    """What the answers of a system are compared with."""
    if data.kind != FORECAST:
        assert data.y_test is not None
        return data.y_test
    return np.stack([data.X_test[0][at : at + data.steps, 0] for at in origins(data)])


def score(data: Set, answers: Answers) -> float:
    """Accuracy, R², or the skill of a forecast: 1 − MSE / MSE of repeating the last value."""
    wanted = truth(data)
    if data.kind == CLASSIFY:
        return float((answers == wanted).mean())
    naive = persistence(data, 0).answers if data.kind == FORECAST else wanted.mean()
    return float(1 - np.square(answers - wanted).mean() / np.square(naive - wanted).mean())


def network(kind: Any, data: Set, seed: int, rate: float) -> Any:
    """A network of a kind with the settings of a set."""
    options: dict[str, Any] = {"learning_rate": rate, "random_state": seed}
    options |= {"max_epochs": data.epochs, "batch_size": data.batch_size, "validation": 0}
    if data.kind == FORECAST:
        options |= {"steps": data.steps, "window": data.window}
    if data.pooling is not None:
        options["options"] = Options(pooling=data.pooling, layer=data.layer)
    return kind(horizon=data.horizon, **options)


def _fitted(kind: Any, data: Set, seed: int, rate: float) -> tuple[Any, Answers]:
    model = network(kind, data, seed, rate)
    if data.kind != FORECAST:
        model.fit(data.X, data.y)
        return model, model.predict(data.X_test)
    model.fit(data.X[0][:, 0])
    return model, np.stack([model.predict(past) for past in windows(data)])


def validation(data: Set) -> Set:
    """The same set with a quarter of its training series, or its last values, as the test."""
    if data.kind == FORECAST:
        cut = len(data.X_test[0]) - len(data.X[0])
        return replace(data, X=[data.X[0][:-cut]], X_test=data.X)
    strata = data.y if data.kind == CLASSIFY else None
    X, X_test, y, y_test = train_test_split(
        data.X, data.y, test_size=VALIDATION, random_state=0, stratify=strata
    )
    return replace(data, X=X, y=y, X_test=X_test, y_test=y_test)


SEARCHED: dict[tuple[str, str], dict[float, float | None]] = {}
"""By kind of network and set: the score on the validation series at each learning rate, None where
a gradient was not finite."""


def _tried(kind: Any, held: Set, rate: float) -> float | None:
    try:
        return score(held, _fitted(kind, held, 0, rate)[1])
    except FloatingPointError:
        return None


def trained(name: str) -> Callable[[Set, int], Fit]:
    """Networks with roann's layer, an LSTM or a GRU, at the best of three learning rates."""

    def fit(data: Set, seed: int) -> Fit:
        base, start = BASES[data.kind], time.perf_counter()
        kind = PEERS.get((name, base), base)
        if (name, data.name) not in SEARCHED:
            held = validation(data)
            SEARCHED[name, data.name] = {rate: _tried(kind, held, rate) for rate in RATES}
        tried, searched = SEARCHED[name, data.name], time.perf_counter() - start
        best = max(RATES, key=lambda rate: -np.inf if tried[rate] is None else tried[rate])
        model, answers = _fitted(kind, data, seed, best)
        count = sum(p.numel() for p in model.networks_[0].parameters())
        chosen = {"learning_rate": best, "epochs": data.epochs, "validation": tried}
        return Fit(answers, count, chosen, searched)

    return fit


def _ridge(data: Set, model: Any, X: Any, X_test: Any) -> Fit:
    model.fit(X, data.y)
    last = model[-1]
    return Fit(model.predict(X_test), int(np.size(last.coef_) + np.size(last.intercept_)))


def fixed(data: Set, seed: int) -> Fit:
    """A ridge on features of roann's layers, which are not trained."""
    make = fixed_classifier if data.kind == CLASSIFY else fixed_regressor
    options = {} if data.width is None else {"hidden_size": data.width}
    return _ridge(data, make(random_state=seed, **options), data.X, data.X_test)


def summary(X: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Simple features of each series and channel: moments, quantiles, ends, slope, roughness."""
    rows = []
    for x in X:
        t = np.linspace(-1, 1, len(x))[:, None]
        rows.append(
            np.concatenate([
                x.mean(0), x.std(0), *np.quantile(x, (0, 0.25, 0.5, 0.75, 1), axis=0), x[0], x[-1],
                (t * x).mean(0), np.abs(np.diff(x, axis=0)).mean(0) if len(x) > 1 else 0 * x[0],
            ])
        )  # fmt: skip
    return np.stack(rows)


def ridge(data: Set, seed: int) -> Fit:
    """A ridge on simple features; of a forecast, on the values of the window (AR)."""
    if data.kind != FORECAST:
        last = RidgeClassifierCV(ALPHAS) if data.kind == CLASSIFY else RidgeCV(ALPHAS)
        return _ridge(
            data, make_pipeline(StandardScaler(), last), summary(data.X), summary(data.X_test)
        )
    x = data.X[0][:, 0]
    ends = range(data.window, len(x) - data.steps + 1)
    past = np.stack([x[at - data.window : at] for at in ends])
    ahead = np.stack([x[at : at + data.steps] for at in ends]) - past[:, -1:]
    model = make_pipeline(StandardScaler(), RidgeCV(ALPHAS)).fit(past - past[:, -1:], ahead)
    test = np.stack(windows(data))
    answers = model.predict(test - test[:, -1:]) + test[:, -1:]
    return Fit(answers, int(model[-1].coef_.size + model[-1].intercept_.size))


def persistence(data: Set, seed: int) -> Fit:
    """The last value, repeated."""
    return Fit(np.stack([np.repeat(past[-1], data.steps) for past in windows(data)]), 0)


def seasonal(data: Set, seed: int) -> Fit:
    """The values of one season before."""
    steps = np.arange(data.steps) % data.season - data.season
    return Fit(np.stack([past[steps] for past in windows(data)]), 0)


ROA, FIXED, RIDGE = "roann, trained", "roann, fixed", "ridge"
SYSTEMS: dict[str, Callable[[Set, int], Fit]] = {
    FIXED: fixed,
    RIDGE: ridge,
    "persistence": persistence,
    "seasonal": seasonal,
    ROA: trained(ROA),
    "LSTM": trained("LSTM"),
    "GRU": trained("GRU"),
}
DRAW_NOTHING = (RIDGE, "persistence", "seasonal")  # one seed is all


def takes(name: str, kind: str) -> bool:
    """Whether a system is for sets of this kind."""
    if name in ("persistence", "seasonal"):
        return kind == FORECAST
    return name != FIXED or kind != FORECAST
