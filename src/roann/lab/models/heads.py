"""The readout head: one linear map from a system's output to a task's prediction."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from roann._checks import choice
from roann.lab.models.base import HeadInit
from roann.lab.models.recurrence import uniform_


def _normal(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
    nn.init.normal_(weight, generator=rng)
    nn.init.normal_(bias, generator=rng)


def _uniform(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
    uniform_(1 / math.sqrt(weight.shape[1]), rng, weight, bias)


def _kaiming_normal(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
    _uniform(weight, bias, rng)
    nn.init.kaiming_normal_(weight, generator=rng)


def _xavier_normal(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
    nn.init.xavier_normal_(weight, generator=rng)
    nn.init.zeros_(bias)


def _xavier_uniform(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
    nn.init.xavier_uniform_(weight, generator=rng)
    nn.init.zeros_(bias)


HEAD_INITS: dict[HeadInit, Callable[[Tensor, Tensor, torch.Generator], None]] = {
    "normal": _normal,  # N(0, 1): roaRNN, Dilated RNN
    "uniform": _uniform,  # U(±1/√H): the paper's vanilla RNN and LSTM
    "kaiming_normal": _kaiming_normal,  # bias as "uniform": LEM
    "xavier_normal": _xavier_normal,  # bias 0: NRU
    "xavier_uniform": _xavier_uniform,  # bias 0: uRNN
}


def linear_head(
    in_features: int, out_features: int, init: HeadInit, generator: torch.Generator
) -> nn.Linear:
    """A linear map with bias, drawn from `generator` as the named initialisation says."""
    draw = HEAD_INITS[choice("head_init", init, HEAD_INITS)]  # type: ignore[index]
    head = nn.Linear(in_features, out_features, device="meta").to_empty(device="cpu")
    draw(head.weight, head.bias, generator)
    return head
