"""The arguments of estimators, each in one place: those that all share, and the rarely used.

They are fields of dataclasses, so that a subclass adds its own, and scikit-learn finds all of them
in the signature of its `__init__`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import torch
from sklearn.base import BaseEstimator

from roann import _checks
from roann.estimators.callbacks import Callback
from roann.estimators.network import LAST, POOLINGS
from roann.nn import RoaRNN

# What an estimator decides itself, from its other arguments and the data.
OWN = ("self", "input_size", "hidden_size", "num_layers", "bidirectional", "batch_first", "device",
       "dtype", "generator")  # fmt: skip
LAYER = tuple(name for name in inspect.signature(RoaRNN).parameters if name not in OWN)


@final
@dataclass(kw_only=True)
class Options(BaseEstimator):
    """Settings of an estimator that you rarely need.

    Args:
        num_layers: recurrent layers on each other.
        bidirectional: whether a second scan runs from the end to the beginning.
        pooling: what is read from the states: any of "last", "mean_abs", "mean", "max", "change".
        differences: whether differences from step to step are inputs too.
        dropout: probability of dropout on the pooled states.
        n_networks: how many networks are trained, whose answers are averaged; with validation,
            each holds out another part.
        weight_decay: of all weights but biases and norms.
        patience: how many epochs after the best one training goes on, where a part validates.
        layer: further arguments of `RoaRNN` (or `RoaODE`), such as rho and max_norm.

    A search sets one of them as `options__dropout`.

    Example:
        >>> from roann.estimators import RoaClassifier
        >>> model = RoaClassifier(options=Options(num_layers=2, layer={"rho": 0.5}))
        >>> model.set_params(options__dropout=0.4).options.dropout
        0.4
    """

    num_layers: int = 1
    bidirectional: bool = True
    pooling: Sequence[str] = (LAST, "mean_abs")
    differences: bool = True
    dropout: float = 0.2
    n_networks: int = 1
    weight_decay: float = 0.0
    patience: int = 20
    layer: dict[str, Any] | None = None

    def checked(self) -> Self:
        """Itself, if all settings are possible."""
        for name in ("num_layers", "n_networks", "patience"):
            _checks.size(name, getattr(self, name))
        if _checks.real("weight_decay", self.weight_decay) < 0:
            _checks.fail("weight_decay", "at least 0", self.weight_decay)
        if not 0 <= _checks.real("dropout", self.dropout) < 1:
            _checks.fail("dropout", "a probability in [0, 1)", self.dropout)
        if not self.poolings:
            _checks.fail("pooling", "at least one name", "none")
        for name in self.poolings:
            _checks.choice("pooling", name, (LAST, *POOLINGS))
        if self.layer is not None and not isinstance(self.layer, Mapping):
            cure = 'pass {"rho": 0.5}, for example'
            _checks.fail("layer", "a dictionary", repr(self.layer), cure, TypeError)
        for name in self.layer or ():
            _checks.choice("layer", name, LAYER)
        return self

    @property
    def poolings(self) -> tuple[str, ...]:
        """The names in `pooling`, which may be one alone."""
        if isinstance(self.pooling, str):
            return (self.pooling,)
        if not isinstance(self.pooling, Sequence):
            _checks.fail("pooling", "names of statistics", repr(self.pooling), error=TypeError)
        return tuple(self.pooling)


@dataclass(kw_only=True, eq=False, repr=False)
class Settings(BaseEstimator):
    """Abstract: the arguments that all estimators share; see `RoaClassifier`."""

    hidden_size: int = 128
    horizon: float | None = None
    learning_rate: float = 0.01
    max_epochs: int = 100
    batch_size: int = 16
    validation: float | str = "auto"
    options: Options | None = None
    layout: str = "channels_last"
    warm_start: bool = False
    verbose: int = 0
    callbacks: Sequence[Callback] | None = None
    device: torch.device | str | None = None
    random_state: int | np.random.RandomState | None = None

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; `options__NAME` is one of `Options`."""
        if self.options is None and any(name.startswith("options__") for name in params):
            self.options = Options()
        super().set_params(**params)
        return self

    @property
    def _rare(self) -> Options:
        """The rarely used settings, checked."""
        if self.options is None:
            return Options()
        if not isinstance(self.options, Options):
            got, cure = type(self.options).__name__, "pass Options(dropout=0.4), for example"
            _checks.fail("options", "roann.estimators.Options", got, cure, TypeError)
        return self.options.checked()

    @property
    def _place(self) -> torch.device:
        """Where networks live, checked."""
        try:
            return torch.empty(0, device=self.device).device
        except (AssertionError, RuntimeError, TypeError) as error:
            why = str(error).splitlines()[0]
            _checks.fail("device", "a device that torch has here", repr(self.device), why)

    def _called(self) -> list[Callback]:
        """The callbacks, checked."""
        given = self.callbacks
        if given is not None and (
            not isinstance(given, Sequence) or not all(callable(one) for one in given)
        ):
            cure = "pass [callback], even if there is one"
            _checks.fail("callbacks", "a list of functions", repr(given), cure, TypeError)
        return list(given or ())

    def _held_out(self, n: int) -> float:
        """The part of n rows that validates."""
        if isinstance(self.validation, str):
            cure = "or a fraction, 0 for none"
            _checks.choice("validation", self.validation, ("auto",), cure)
            return AUTO_VALIDATION if n >= AUTO_ROWS else 0.0
        part = _checks.real("validation", self.validation)
        if not 0 <= part < 1:
            cure = "0 holds out nothing"
            _checks.fail("validation", "a fraction of at least 0 and below 1", part, cure)
        return part


AUTO_ROWS, AUTO_VALIDATION = 200, 0.2  # "auto" holds out this part from so many rows on
