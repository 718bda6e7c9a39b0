"""The optimisers: one table, one row per optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import optim


@dataclass(frozen=True)
class OptimizerRow:
    """One optimiser."""

    make: Callable[..., optim.Optimizer]  # its class in torch
    # The tensors it keeps of each parameter; a checkpoint must have these and no others.
    moments: frozenset[str]
    # From `roann.lab.config.Train` to its options without lr and weight_decay.
    options: Callable[[Any], dict[str, Any]] = lambda plan: {}


OPTIMIZERS: dict[str, OptimizerRow] = {
    "adam": OptimizerRow(optim.Adam, frozenset({"step", "exp_avg", "exp_avg_sq"})),
    "sgd": OptimizerRow(optim.SGD, frozenset({"momentum_buffer"})),
    "nag": OptimizerRow(
        optim.SGD,
        frozenset({"momentum_buffer"}),
        lambda plan: {"momentum": plan.momentum, "nesterov": True},
    ),
    "rmsprop": OptimizerRow(
        optim.RMSprop,
        frozenset({"step", "square_avg"}),
        lambda plan: {"alpha": 0.99 if plan.alpha is None else plan.alpha},
    ),
    "adagrad": OptimizerRow(optim.Adagrad, frozenset({"step", "sum"})),
}
