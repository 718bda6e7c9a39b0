"""What all estimators share: parameters, members, validation, answers, certificate, plots."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from roann import _checks, diagnostics
from roann.estimators import fitting, graphs, plots
from roann.estimators.callbacks import Lines
from roann.estimators.layers import layer_options
from roann.estimators.network import Network, Plan
from roann.estimators.prepare import Preparation
from roann.estimators.read import ReadsSeries, read
from roann.estimators.series import Prepared, Series
from roann.estimators.settings import Settings
from roann.export import Graph
from roann.nn import HypothesisWarning

WARMUP = 20  # training steps
MAX_GRAD_NORM = 1.0
EVERY, UNUSED = -2, -3  # folds: validates every network; overlaps with what validates


@dataclass(frozen=True)
class Objective:
    """What a network learns: targets (n, …), and how its outputs are held to them.

    `strata` (n,) are classes or numbers that every fold should have alike; rows of `rare` always
    train. For windows of series, `strata` are the steps to the end of the series, and `ahead` how
    many of them the targets take: the last windows validate, and none trains on their targets.
    """

    targets: Tensor
    outputs: int
    loss: fitting.Loss
    score: fitting.Score
    strata: NDArray[Any]
    rare: NDArray[np.bool_] | None = None
    ahead: int | None = None


class RoaEstimator(Settings, ReadsSeries, ABC):
    """Abstract: reads series, trains networks on them, averages their answers."""

    networks_: list[Network]
    history_: list[dict[str, Any]]
    horizon_: float
    n_channels_in_: int
    _members: list[fitting.Member]
    _preparation: Preparation
    _built: dict[str, Any]
    _sample: Tensor
    _certificate: diagnostics.Certificate | None

    def _read(self, X: Any, times: Any, *, partial: bool = False) -> Series:
        """X for fit, or for partial_fit: with the channels of before, if it is to continue."""
        known = hasattr(self, "networks_") and (partial or self.warm_start)
        series = read(self, X, times, reset=not known)
        if known and (series.times is None) != (self._preparation.dt is None):
            _checks.fail("times", *self._stamps_wanted())
        return series

    def _stamps_wanted(self) -> tuple[str, str]:
        wanted = self._preparation.dt is not None
        return ("time stamps, as fit was given", "None") if wanted else (
            "None, since fit was given none", "time stamps")  # fmt: skip

    def _train(self, series: Series, objective: Objective, *, partial: bool = False) -> None:
        """Train all networks, new ones unless a fit is continued."""
        recipe = self._recipe(partial)
        known = hasattr(self, "networks_") and (partial or self.warm_start)
        if known and self.networks_[0].plan.outputs != objective.outputs:
            cure = "set warm_start=False"
            _checks.fail("y", f"{self.networks_[0].plan.outputs} outputs", objective.outputs, cure)
        if known:
            self._unchanged()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        folds = self._folds(objective, seed, partial)
        if not known:
            self._begin(
                series.take(np.flatnonzero((folds == -1) | (folds > 0))),
                objective.outputs,
                seed,
                recipe,
            )
        prepared = self._preparation(series, self._place)
        self._sample = prepared.inputs[: int(prepared.lengths[0])].cpu()
        self._certificate = None
        lines = Lines(type(self).__name__, len(self._members)) if self.verbose else None
        callbacks = [*self._called(), *([lines] if lines else ())]
        everything = torch.arange(len(series))
        for member in self._members:
            held = torch.from_numpy((folds == member.number) | (folds == EVERY))
            used = torch.from_numpy(folds != UNUSED)
            data = fitting.Data(
                prepared, objective.targets.to(prepared.inputs.device), everything[~held & used],
                everything[held], objective.loss, objective.score,
            )  # fmt: skip
            fitting.train(member, data, recipe, callbacks)
        if lines:
            lines.close()
        self.networks_ = [member.network.eval() for member in self._members]
        self.history_ = [asdict(row) for member in self._members for row in member.rows]

    def _begin(self, series: Series, outputs: int, seed: int, recipe: fitting.Recipe) -> None:
        """Scales, horizon and fresh networks, from the training data alone."""
        rare = self._rare
        self._built = self._architecture()
        self._preparation = Preparation.of(series, rare.differences)
        span = self._preparation.span(series)
        chosen = self.horizon
        self.horizon_ = max(2.0, span) if chosen is None else _checks.real("horizon", chosen)
        N = _checks.size("hidden_size", self.hidden_size)
        options = layer_options(N, self.horizon_, dict(rare.layer or {}))
        stamped = self._preparation.dt is not None
        if stamped:
            options["dt"] = self._preparation.dt
            if rare.num_layers != 1:
                cure = "the layer in continuous time has one"
                _checks.fail("num_layers", "1 with time stamps", rare.num_layers, cure)
        plan = Plan(
            self._preparation.inputs, outputs, N,
            rare.num_layers, bool(rare.bidirectional), rare.poolings, rare.dropout, stamped,
            options,
        )  # fmt: skip
        self._members = []
        for m in range(rare.n_networks):
            with warnings.catch_warnings():  # very short series: the certificate says it too
                warnings.simplefilter("ignore", HypothesisWarning)
                network = plan.build(fitting.generator_of(seed, m)).to(self._place)
            self._members.append(fitting.Member.of(network, m, seed, recipe))

    def _architecture(self) -> dict[str, Any]:
        """The settings that networks are built from, which a continued fit cannot change."""
        rare = {name: value for name, value in asdict(self._rare).items() if name != "patience"}
        rare["pooling"] = self._rare.poolings
        return {"hidden_size": self.hidden_size, "horizon": self.horizon} | rare

    def _unchanged(self) -> None:
        now = self._architecture()
        for name, before in self._built.items():
            if now[name] != before:
                cure = "set warm_start=False and fit, to begin anew"
                _checks.fail(name, f"{before!r}, as in the fit that goes on", repr(now[name]), cure)

    def _recipe(self, partial: bool) -> fitting.Recipe:
        rare = self._rare
        recipe = fitting.Recipe(
            _checks.real("learning_rate", self.learning_rate, positive=True),
            rare.weight_decay,
            _checks.size("max_epochs", self.max_epochs),
            _checks.size("batch_size", self.batch_size),
            WARMUP, MAX_GRAD_NORM, rare.patience,
        )  # fmt: skip
        return replace(recipe, epochs=1, constant=True) if partial else recipe

    def _folds(self, objective: Objective, seed: int, partial: bool) -> NDArray[np.int64]:
        """The fold of each row: a network validates on that of its number, and on EVERY."""
        n = len(objective.strata)
        folds = np.full(n, -1)
        part = self._held_out(n)
        if partial or not part or n < 2:
            return folds
        count = min(n, max(2, round(1 / part), self._rare.n_networks))
        if objective.ahead is not None:
            last = np.quantile(objective.strata, part)
            folds[objective.strata < last + objective.ahead] = UNUSED
            folds[objective.strata <= last] = EVERY
            return folds if (folds == -1).any() else np.full(n, -1)
        random = np.random.default_rng([seed, count])
        order = random.permutation(n)
        order = order[np.argsort(objective.strata[order], kind="stable")]
        folds[order] = np.arange(n) % count
        if objective.rare is not None:
            folds[objective.rare] = -1
        return folds

    def _prepared(self, X: Any, times: Any) -> Prepared:
        """X of a fitted estimator as its networks take it."""
        check_is_fitted(self)
        series = read(self, X, times, reset=False, least=1)
        if (series.times is None) != (self._preparation.dt is None):
            _checks.fail("times", *self._stamps_wanted())
        return self._preparation(series, self._place)

    def _answers(self, X: Any, times: Any) -> list[Tensor]:
        """The outputs of each network, (n, outputs)."""
        prepared = self._prepared(X, times)
        return fitting.answers(self.networks_, prepared)

    def onnx_graph(self, *, lengths: bool = False) -> Graph:
        """The fitted estimator as an ONNX graph, which `roann.export_onnx` writes."""
        check_is_fitted(self)
        graph = Graph()
        given = graphs.given(graph, self.n_channels_in_, self.layout, lengths)
        self._add_answers(graph, given)
        return graph

    def _outputs(self, graph: Graph, values: str, lengths: str | None) -> list[str]:
        """Scaling and networks in a graph: the outputs of each, (B, outputs)."""
        inputs = graphs.prepared(graph, self._preparation, values)
        return graphs.answers(graph, self.networks_, inputs, lengths)

    @abstractmethod
    def _add_answers(self, graph: Graph, given: graphs.Given) -> None:
        """Add to a graph what `predict` does with its inputs."""

    @abstractmethod
    def _answer(self, outputs: Tensor) -> Tensor:
        """The number whose gradient `memory` measures, (B,), from outputs (B, outputs)."""

    @property
    def certificate_(self) -> diagnostics.Certificate:
        """What the theorem promises for the fitted recurrence, and what was measured.

        It is computed at the first access, on the first training series, with `roann.certify`.
        """
        check_is_fitted(self)
        if self._certificate is None:
            layer = self.networks_[0].layers[0]
            self._certificate = diagnostics.certify(layer, self._sample.to(self._place))
        return self._certificate

    def memory(self, X: Any, times: Any = None) -> list[NDArray[np.float64]]:
        """Which steps an answer depends on: for each series, the gradient norm at each step.

        It is the norm of the gradient of the answer (the decision margin of the predicted class,
        or the prediction) with respect to the scaled inputs of a step, averaged over networks.
        """
        prepared = self._prepared(X, times)
        return plots.memory(self.networks_, prepared, self._answer)

    def plot_history(self, ax: Any = None) -> Any:
        """Draw training and validation loss by epoch; returns matplotlib's axes."""
        check_is_fitted(self)
        return plots.history(self.history_, ax)

    def plot_memory(self, X: Any, times: Any = None, ax: Any = None) -> Any:
        """Draw which past steps the answers depend on: see `memory`; returns matplotlib's axes."""
        return plots.past(self.memory(X, times), ax)
