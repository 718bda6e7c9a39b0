"""Regress numbers on series."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_consistent_length
from torch import Tensor

from roann.estimators import graphs, targets
from roann.estimators.base import Objective, RoaEstimator
from roann.estimators.prepare import as_tensor
from roann.estimators.series import Floats
from roann.export import Graph


@final
class RoaRegressor(RegressorMixin, RoaEstimator):
    """Predict one number, or several, from each series with roaRNNs.

    Arguments and attributes are those of `RoaClassifier`, without those of classes.

    Example:
        >>> X = torch.randn(60, 30).numpy()
        >>> y = X[:, ::2].mean(1)  # every other step counts
        >>> model = RoaRegressor(hidden_size=32, max_epochs=60, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
    """

    def fit(self, X: Any, y: Any, times: Any = None) -> Self:
        """Train on series X with targets y (n,) or (n, K)."""
        series = self._read(X, times)
        wanted = self._numbers(y, len(series))
        if not (self.warm_start and hasattr(self, "networks_")):
            self._set_scale(wanted)
        self._train(series, self._objective(wanted))
        return self

    def partial_fit(self, X: Any, y: Any, times: Any = None) -> Self:
        """Train for one epoch on more series; the first call decides all scales."""
        series = self._read(X, times, partial=True)
        wanted = self._numbers(y, len(series))
        if not hasattr(self, "networks_"):
            self._set_scale(wanted)
        self._train(series, self._objective(wanted), partial=True)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags

    def _numbers(self, y: Any, n: int) -> Floats:
        """y as (n,) or (n, K)."""
        found = targets.reals(self, y)
        check_consistent_length(found, np.empty(n))
        return found

    def _set_scale(self, y: Floats) -> None:
        self._flat = y.ndim == 1
        self._center, spread = np.atleast_1d(y.mean(0)), np.atleast_1d(y.std(0))
        self._spread = np.where(spread > 0, spread, 1.0)

    def _objective(self, y: Floats) -> Objective:
        table = y.reshape(len(y), -1)
        scaled = as_tensor((table - self._center) / self._spread)

        def loss(outputs: Tensor, wanted: Tensor) -> Tensor:
            return (outputs - wanted).square().mean()

        def score(outputs: Tensor, wanted: Tensor) -> float:
            if len(wanted) < 2:
                return float("nan")
            return float(r2_score(wanted.cpu().numpy(), outputs.cpu().numpy()))

        return Objective(scaled, table.shape[1], loss, score, table.mean(1))

    def predict(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """The predictions, (n,) or (n, K) as the targets were."""
        mean = torch.stack(self._answers(X, times)).double().mean(0).numpy()
        found = mean * self._spread + self._center
        return np.asarray(found[:, 0] if self._flat else found)

    def _add_answers(self, graph: Graph, given: graphs.Given) -> None:
        mean = graphs.averaged(graph, self._outputs(graph, given.values, given.lengths))
        found = graphs.scaled_back(graph, mean, self._spread, self._center)
        if self._flat:
            found = graph.node("Squeeze", found, graph.constant([1]))
        shape: list[int | str] = ["batch"] if self._flat else ["batch", len(self._center)]
        graph.output("prediction", found, shape, torch.float64)

    def score(self, X: Any, y: Any, sample_weight: Any = None, times: Any = None) -> float:
        """R², the coefficient of determination."""
        found = self.predict(X, times)
        wanted = self._numbers(y, len(found))
        return float(r2_score(wanted, found, sample_weight=sample_weight))

    def _answer(self, outputs: Tensor) -> Tensor:
        return outputs.sum(1)
