"""Classify series."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor
from torch.nn.functional import cross_entropy

from roann import _checks
from roann.estimators import graphs, targets
from roann.estimators.base import Objective, RoaEstimator
from roann.export import Graph


@final
@dataclass(kw_only=True, eq=False, repr=False)
class RoaClassifier(ClassifierMixin, RoaEstimator):
    """Classify series of equal or unequal length with roaRNNs.

    The network reads each series in both directions, pools its states, and answers through
    LayerNorm, dropout and a linear layer that starts at zero. It is trained with Adam, 20 steps of
    warm-up, a cosine to zero and gradient norms of at most 1. With a few hundred series or fewer,
    try `fixed_classifier` first.

    Args:
        hidden_size: N, neurons in each direction.
        horizon: over how many steps gradients survive; None is the longest training series.
        learning_rate, max_epochs, batch_size: of the training.
        validation: the part of the series that is held out: training ends when they get no better,
            and the best weights stay. 0 is none; "auto" is a fifth from 200 series on.
        class_weight: None, "balanced", or a dictionary from class to weight.
        options: what you rarely need, such as layers, pooling and dropout: `Options`.
        layout: "channels_last" or "channels_first".
        warm_start: whether `fit` continues from the weights of the last one.
        verbose: 1 for a progress line on stderr.
        callbacks: called after each epoch: see `roann.estimators.Callback`.
        device: where the networks live.
        random_state: an int for results that can be repeated to the bit.

    Attributes:
        classes_: the classes, sorted.
        networks_: the trained networks.
        history_: a dictionary for each network and epoch: losses, score, learning rate.
        horizon_: the horizon in use.
        n_channels_in_: C.
        n_features_in_: T if X was (n, T), else C.

    Example:
        >>> t = torch.linspace(0, 6, 50)
        >>> slow, fast = (torch.sin(f * t + torch.rand(20, 1) * 6) for f in (1, 2))
        >>> X = torch.cat([slow, fast]).numpy()
        >>> y = ["slow"] * 20 + ["fast"] * 20
        >>> model = RoaClassifier(hidden_size=16, max_epochs=30, random_state=0).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
    """

    class_weight: Mapping[Any, float] | str | None = None

    def fit(self, X: Any, y: Any, times: Any = None) -> Self:
        """Train on series X with labels y (n,); times are those of the steps, if irregular."""
        series = self._read(X, times)
        labels = self._labels(y, len(series))
        classes = targets.classes(labels)
        if self.warm_start and hasattr(self, "networks_"):
            self._known(labels)
        else:
            self.classes_: NDArray[Any] = classes
        self._train(series, self._objective(labels))
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, times: Any = None) -> Self:
        """Train for one epoch on more series; the first call needs all `classes`."""
        first = not hasattr(self, "networks_")
        if first and classes is None:
            _checks.fail("classes", "all classes at the first call of partial_fit", "None")
        if not first and classes is not None and set(classes) != set(self.classes_):
            cure = "the first call decides them"
            _checks.fail("classes", "those of the first fit, or None", "others", cure)
        series = self._read(X, times, partial=True)
        labels = self._labels(y, len(series))
        if first:
            self.classes_ = np.unique(np.asarray(classes))
            if len(self.classes_) < 2:
                _checks.fail("classes", "at least two classes", "one class")
        self._known(labels)
        self._train(series, self._objective(labels), partial=True)
        return self

    def _labels(self, y: Any, n: int) -> NDArray[Any]:
        labels = targets.labels(self, y)
        check_consistent_length(labels, np.empty(n))
        return labels

    def _known(self, labels: NDArray[Any]) -> None:
        strange = np.setdiff1d(labels, self.classes_)
        if len(strange):
            _checks.fail("y", "classes of the first fit", f"{strange.tolist()[0]!r}")

    def _objective(self, labels: NDArray[Any]) -> Objective:
        codes = np.searchsorted(self.classes_, labels)
        counts = np.bincount(codes, minlength=len(self.classes_))
        weights = None
        if self.class_weight is not None:
            present = self.classes_[counts > 0]
            found = compute_class_weight(self.class_weight, classes=present, y=labels)
            if not (np.isfinite(found).all() and (found >= 0).all() and found.sum() > 0):
                _checks.fail("class_weight", "finite weights of at least 0", self.class_weight)
            weights = torch.ones(len(self.classes_))
            weights[torch.from_numpy(counts > 0)] = torch.tensor(found, dtype=torch.float32)

        def loss(outputs: Tensor, wanted: Tensor) -> Tensor:
            w = None if weights is None else weights.to(outputs)
            return cross_entropy(outputs, wanted, weight=w)

        def score(outputs: Tensor, wanted: Tensor) -> float:
            return float((outputs.argmax(1) == wanted).float().mean())

        rare = (counts < 2)[codes]
        return Objective(torch.tensor(codes), len(self.classes_), loss, score, codes, rare)

    def predict_proba(self, X: Any, times: Any = None) -> NDArray[np.float64]:
        """The probability of each class, (n, classes), in the order of `classes_`."""
        found = [out.double().softmax(1) for out in self._answers(X, times)]
        mean: NDArray[np.float64] = torch.stack(found).mean(0).numpy()
        return mean

    def predict(self, X: Any, times: Any = None) -> NDArray[Any]:
        """The most probable class of each series, (n,)."""
        check_is_fitted(self)
        found: NDArray[Any] = self.classes_[self.predict_proba(X, times).argmax(1)]
        return found

    def _add_answers(self, graph: Graph, given: graphs.Given) -> None:
        found = [
            graph.node("Softmax", outputs, axis=1)
            for outputs in self._outputs(graph, given.values, given.lengths)
        ]
        mean = graphs.averaged(graph, found)
        graph.output("probabilities", mean, ["batch", len(self.classes_)], torch.float64)
        graphs.labels(graph, graph.node("ArgMax", mean, axis=1, keepdims=0), self.classes_)

    def score(self, X: Any, y: Any, sample_weight: Any = None, times: Any = None) -> float:
        """Accuracy."""
        found = self.predict(X, times)
        right = found == self._labels(y, len(found))
        check_consistent_length(right, sample_weight)
        return float(np.average(right, weights=sample_weight))

    def _answer(self, outputs: Tensor) -> Tensor:
        """The margin of the most probable class over the mean of all."""
        return outputs.amax(1) - outputs.mean(1)
