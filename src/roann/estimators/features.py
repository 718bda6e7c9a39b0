"""Features of series from layers that are not trained.

Note [Fixed features]
---------------------
A layer with drawn weights and a short horizon is a bank of damped oscillators of many speeds. How
often the state of a neuron is above a threshold says how often a pattern occurs, whatever its size
and place; MiniRocket reads its convolutions that way. Thresholds are quantiles of states on the
training data, spread evenly over the neurons. ‖W‖ stays below 1, so states neither grow nor die
however much longer than the horizon a series is. A ridge does the rest, in closed form.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import TransformerMixin, is_classifier
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from roann import _checks
from roann.estimators import graphs, targets
from roann.estimators.fitting import MOST, generator_of
from roann.estimators.layers import layer_options
from roann.estimators.network import share
from roann.estimators.prepare import Preparation
from roann.estimators.read import ReadsSeries, read
from roann.estimators.series import Batch, Prepared
from roann.export import Graph
from roann.nn import HypothesisWarning, RoaRNN

MAX_NORM = 0.9  # of W: Note [Fixed features]
SAMPLE = 4096  # states that thresholds are quantiles of
SAMPLE_SERIES = 32
EDGE = 0.05  # no quantile is nearer to 0 or 1
GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly
ALPHAS = tuple(np.logspace(-1, 5, 13).tolist())


@final
class RoaFeatures(TransformerMixin, ReadsSeries):
    """Turn series of equal or unequal length into features, with layers that are not trained.

    A feature is the part of the steps at which the state of a neuron is above a threshold. For a
    few hundred series or fewer, a ridge on them takes seconds, and on the sets that were measured
    it is as good as a trained network or better: `fixed_classifier` and `fixed_regressor`.

    Args:
        hidden_size: N, neurons of each layer.
        horizons: the memory of each layer, in steps.
        thresholds: how many each neuron has.
        nonlinearity: φ of the layers; "identity", "tanh" or "relu".
        differences: whether differences from step to step are inputs too.
        layout: "channels_last" or "channels_first".
        random_state: an int for features that can be repeated to the bit.

    Attributes:
        layers_: the layers, one for each horizon.
        thresholds_: their thresholds, (thresholds, N) each.
        n_channels_in_: C.
        n_features_in_: T if X was (n, T), else C.

    Example:
        >>> X = torch.randn(10, 50).cumsum(1).numpy()
        >>> RoaFeatures(hidden_size=16, random_state=0).fit_transform(X).shape
        (10, 256)
    """

    layers_: list[RoaRNN]
    thresholds_: list[Tensor]
    n_channels_in_: int
    _preparation: Preparation

    def __init__(
        self,
        *,
        hidden_size: int = 128,
        horizons: Sequence[float] = (4, 8, 16, 32),
        thresholds: int = 4,
        nonlinearity: str = "identity",
        differences: bool = True,
        layout: str = "channels_last",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.horizons = horizons
        self.thresholds = thresholds
        self.nonlinearity = nonlinearity
        self.differences = differences
        self.layout = layout
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw the layers, and set scales and thresholds from series X; y is not used."""
        series = read(self, X, reset=True)
        N = _checks.size("hidden_size", self.hidden_size)
        if not len(self.horizons):
            _checks.fail("horizons", "at least one", "none")
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._preparation = Preparation.of(series, self.differences)
        self.layers_, self.thresholds_ = [], []
        chosen = np.random.default_rng(seed).permutation(len(series))[:SAMPLE_SERIES]
        sample = self._preparation(series.take(np.sort(chosen)))
        for k, horizon in enumerate(self.horizons):
            with warnings.catch_warnings():  # nothing is trained: no gradient has to survive
                warnings.simplefilter("ignore", HypothesisWarning)
                layer = RoaRNN(
                    self._preparation.inputs, N, nonlinearity=self.nonlinearity,
                    **layer_options(N, _checks.real("horizons", horizon, positive=True), {}),
                    max_norm=MAX_NORM, generator=generator_of(seed, k),
                )  # fmt: skip
            self.layers_.append(layer.requires_grad_(False))
            self.thresholds_.append(self._quantiles(layer, sample, generator_of(seed, k, 1)))
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """The features of each series, (n, horizons · thresholds · N)."""
        check_is_fitted(self)
        prepared = self._preparation(read(self, X, reset=False, least=1))
        pairs = list(zip(self.layers_, self.thresholds_, strict=True))
        out = np.empty((len(prepared), self._n_features_out))
        for batch in prepared.in_order(_batch_size(self.hidden_size, prepared)):
            parts = [
                share(states, threshold, batch)
                for layer, thresholds in pairs
                for states in [_states(layer, batch)]
                for threshold in thresholds
            ]
            out[batch.rows.numpy()] = torch.cat(parts, dim=1).numpy()
        return out

    def _add_features(self, graph: Graph, given: graphs.Given) -> str:
        """The features in a graph, (B, features) in float64."""
        u = graphs.prepared(graph, self._preparation, given.values)
        parts: list[str] = []
        for layer, thresholds in zip(self.layers_, self.thresholds_, strict=True):
            states, _ = graphs.scanned(graph, layer, u, given.lengths)
            parts += [graphs.share(graph, states, threshold) for threshold in thresholds]
        return graph.node("Cast", graph.node("Concat", *parts, axis=1), to=graphs.DOUBLE)

    @property
    def _n_features_out(self) -> int:
        return sum(thresholds.numel() for thresholds in self.thresholds_)

    def _quantiles(self, layer: RoaRNN, sample: Prepared, generator: torch.Generator) -> Tensor:
        """Thresholds (thresholds, N): for each neuron other quantiles of its states."""
        batches = sample.in_order(_batch_size(self.hidden_size, sample))
        states = torch.cat([_states(layer, batch).flatten(0, -2) for batch in batches])
        some = torch.randperm(len(states), generator=generator)[:SAMPLE]
        ordered = states[some].sort(0)[0]
        count = _checks.size("thresholds", self.thresholds) * self.hidden_size
        spread = torch.arange(count, dtype=torch.float64) * GOLDEN % 1
        spread = spread[torch.randperm(count, generator=generator)]
        levels = EDGE + (1 - 2 * EDGE) * spread.reshape(self.thresholds, -1)
        below = (levels * (len(ordered) - 1)).long()
        # Between two states, where rounding decides nothing.
        above = (below + 1).clamp(max=len(ordered) - 1)
        return (ordered.gather(0, below) + ordered.gather(0, above)) / 2


@torch.no_grad()
def _states(layer: RoaRNN, batch: Batch) -> Tensor:
    """(T, B, N); or, of unequal lengths, (S, N) as packed."""
    output = layer(batch.pack(batch.inputs))[0]
    found: Tensor = output if isinstance(output, Tensor) else output.data
    return found


def _batch_size(width: int, series: Prepared) -> int:
    return max(1, min(256, MOST // (width * int(series.lengths.max()))))


@final
class FixedPipeline(Pipeline):
    """A pipeline of `RoaFeatures`, a scaler and a ridge, which `roann.export_onnx` can write."""

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Draw features and fit the ridge to targets y."""
        if is_classifier(self):
            y = targets.labels(self, y)
            targets.classes(y)
        else:
            y = targets.reals(self, y)
            if len(y) < 2:
                _checks.fail("y", "at least two targets", len(y))
        super().fit(X, y, **params)
        return self

    def onnx_graph(self, *, lengths: bool = False) -> Graph:
        """The fitted pipeline as an ONNX graph, which `roann.export_onnx` writes."""
        check_is_fitted(self)
        features, scaler, ridge = (step for _, step in self.steps)
        graph = Graph()
        given = graphs.given(graph, features.n_channels_in_, features.layout, lengths)
        x = features._add_features(graph, given)
        x = graph.node("Sub", x, graphs.real(graph, scaler.mean_))
        x = graph.node("Div", x, graphs.real(graph, scaler.scale_))
        weights = (np.atleast_2d(ridge.coef_), np.atleast_1d(ridge.intercept_))
        scores = graph.node("Gemm", x, *(graphs.real(graph, w) for w in weights), transB=1)
        classes = getattr(ridge, "classes_", None)
        flat = np.ndim(ridge.coef_) == 1 or (classes is not None and len(classes) == 2)
        table = scores
        if flat:
            scores = graph.node("Squeeze", scores, graph.constant([1]))
        shape: list[int | str] = ["batch"] if flat else ["batch", len(weights[0])]
        name = "prediction" if classes is None else "scores"
        graph.output(name, scores, shape, torch.float64)
        if classes is not None:
            graphs.labels(graph, _codes(graph, table, flat), classes)
        return graph


def _codes(graph: Graph, scores: str, binary: bool) -> str:
    """The numbers of the classes with the largest scores, (B,)."""
    if not binary:
        return graph.node("ArgMax", scores, axis=1, keepdims=0)
    second = graph.node("Greater", scores, graphs.real(graph, 0.0))
    return graph.node("Squeeze", graph.node("Cast", second, to=graphs.INT64), graph.constant([1]))


def _pipeline(options: dict[str, Any], ridge: Any) -> FixedPipeline:
    named = make_pipeline(RoaFeatures(**options), StandardScaler(), ridge)
    return FixedPipeline(named.steps)


def fixed_classifier(**options: Any) -> FixedPipeline:
    """A classifier for few series: `RoaFeatures(**options)`, scaled, and a ridge.

    The strength of the ridge is chosen by leave-one-out on the training data.

    Example:
        >>> t = torch.linspace(0, 6, 50)
        >>> slow, fast = (torch.sin(f * t + torch.rand(20, 1) * 6) for f in (1, 2))
        >>> X, y = torch.cat([slow, fast]).numpy(), ["slow"] * 20 + ["fast"] * 20
        >>> model = fixed_classifier(hidden_size=32, random_state=0).fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.9
        True
    """
    return _pipeline(options, RidgeClassifierCV(ALPHAS))


def fixed_regressor(**options: Any) -> FixedPipeline:
    """A regressor for few series, as `fixed_classifier`.

    Example:
        >>> X = torch.randn(60, 30).cumsum(1).numpy()
        >>> model = fixed_regressor(hidden_size=32, random_state=0).fit(X, X.std(1))
        >>> model.predict(X[:2]).shape
        (2,)
    """
    return _pipeline(options, RidgeCV(ALPHAS))
