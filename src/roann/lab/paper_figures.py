"""What the paper printed: the numbers and sentences our results stand beside, with their places.

A. Ceni, "Random orthogonal additive filters: a solution to the vanishing/exploding gradient of deep
neural networks". The paper prints few numbers: where a figure has only curves, its text is quoted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A published result.

    Attributes:
        task: name of the task.
        model: name of the model.
        text: what is claimed, short.
        source: where it stands.
        value: the score, where the paper prints one.
        where: config fields of task or model that must have these values.
    """

    task: str
    model: str
    text: str
    source: str
    value: float | None = None
    where: Mapping[str, Any] = field(default_factory=dict)


_TABLE = "table in Fig. 5"
_MEMORY = "Fig. 2 and its text"
_ADDING = "Fig. 3 and its text"

_ROA = "roa-rnn"
_OWN = {"filter": "qr", "learn_rho": None, "rho_vector": None}
_PSMNIST = _OWN | {"rho": 1 / 2}
_COPYING = _OWN | {"rho": 3.0}
_SUM = _OWN | {"rho": 1 / 200}

CLAIMS: tuple[Claim, ...] = (
    Claim("psmnist", _ROA, "97.24 %", _TABLE, 0.9724, _PSMNIST | {"hidden_size": 178}),
    Claim("psmnist", _ROA, "97.88 %", _TABLE, 0.9788, _PSMNIST | {"hidden_size": 256}),
    Claim("psmnist", _ROA, "98.25 %", _TABLE, 0.9825, _PSMNIST | {"hidden_size": 512}),
    Claim("psmnist", "vanilla-rnn", "71.6 %, ≈68k weights", _TABLE, 0.716),
    Claim("psmnist", "lstm", "92.9 %, ≈270k weights", _TABLE, 0.929),
    Claim("psmnist", "gru", "94.1 %, ≈200k weights", _TABLE, 0.941),
    Claim(
        "copying", _ROA, "100 % on most steps after 2000", _MEMORY, None, _COPYING | {"lag": 400}
    ),
    Claim(
        "copying", _ROA, "100 % on most steps after 2000", _MEMORY, None, _COPYING | {"lag": 2000}
    ),
    Claim(
        "copying", _ROA, "beats trivial within 500 steps", _MEMORY, None, _COPYING | {"lag": 10000}
    ),
    Claim("copying", "lstm", "struggles", _MEMORY, None, {"lag": 400}),
    Claim("copying", "vanilla-rnn", "NaN in all 5 trials", _MEMORY, None, {"lag": 2000}),
    Claim("adding", _ROA, "converges within 5000 steps", _ADDING, None, _SUM | {"length": 200}),
    Claim("adding", _ROA, "converges within 5000 steps", _ADDING, None, _SUM | {"length": 1000}),
    Claim("adding", _ROA, "converges within 5000 steps", _ADDING, None, _SUM | {"length": 5000}),
    Claim("adding", "vanilla-rnn", "fails", _ADDING, None, {"length": 1000}),
    Claim("adding", "lstm", "struggles", _ADDING, None, {"length": 5000}),
)
"""Of the roaRNN the paper speaks at its own ρ and with its own O; elsewhere it claims nothing."""

LINEAR_SOFTMAX = 0.9265
"""Test accuracy of a linear softmax on the 784 pixels: what psMNIST gives without any memory.

Measured, as the best along a descent by L-BFGS; a slow test measures it again.
"""

RHO = {"double-moon": 5.0, "copying": 3.0, "adding": 1 / 200, "psmnist": 1 / 2}
"""The ρ of the paper's figures, by task."""

POSSIBLE = {1: 0.94, 10: 0.98}
"""Test accuracy on psMNIST that the paper's abstract calls possible after so many epochs."""

ALL_PASS = {10: 0.97}
"""Test accuracy on psMNIST that it says all its networks pass after so many epochs."""

TRIALS = 5
"""Seeds of every experiment of the paper."""

PSMNIST_TABLE: tuple[tuple[str, str, float], ...] = (
    ("Vanilla RNN", "≈68k", 0.716),
    ("LSTM", "≈270k", 0.929),
    ("GRU", "≈200k", 0.941),
    ("Dilated CNN", "≈46k", 0.967),
    ("FC uRNN", "≈270k", 0.941),
    ("BN LSTM", "not given", 0.954),
    ("expRNN", "≈137k", 0.966),
    ("Lipschitz RNN", "≈34k", 0.963),
    ("res-IndRNN", "not given", 0.9702),
    ("dense-IndRNN", "not given", 0.972),
    ("Shuffling RNN", "≈50k", 0.9643),
    ("NRU", "≈165k", 0.9538),
    ("LMU", "≈102k", 0.9715),
    ("coRNN", "≈134k", 0.973),
    ("roaRNN", "≈34k", 0.9724),
    ("roaRNN", "≈69k", 0.9788),
    ("roaRNN", "≈270k", 0.9825),
)
"""The paper's psMNIST table: system, parameters, best test accuracy."""


def trained_for(task: Mapping[str, Any], model: Mapping[str, Any]) -> int | None:
    """For how long the paper trains: iterations, or epochs where the data end; None if not said.

    Args:
        task: the table `[task]` of a resolved config.
        model: the table `[model]`.
    """
    lengths = {"adding": 5000, "psmnist": 20}
    if task.get("lag") in (400, 2000):
        lengths["copying"] = 4000
    return lengths.get(str(task.get("name"))) if model.get("name") == _ROA else None


def claim_for(task: Mapping[str, Any], model: Mapping[str, Any]) -> Claim | None:
    """What the paper says about this model on this task, if anything.

    Args:
        task: the table `[task]` of a resolved config.
        model: the table `[model]`.

    Example:
        >>> model = {"name": "roa-rnn", "hidden_size": 256, "rho": 0.5, "filter": "qr"}
        >>> claim_for({"name": "psmnist"}, model).text
        '97.88 %'
    """
    settings = {**task, **model}
    for claim in CLAIMS:
        if (claim.task, claim.model) == (task.get("name"), model.get("name")) and all(
            _same(settings.get(name), value) for name, value in claim.where.items()
        ):
            return claim
    return None


def _same(given: object, wanted: object) -> bool:
    if isinstance(given, float) and isinstance(wanted, float):
        # A config may say 0.005 or 0.00500; it may not say a third exactly.
        return math.isclose(given, wanted, rel_tol=1e-6)
    return given == wanted
