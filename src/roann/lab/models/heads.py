"""The readout head from a system's output to a prediction: linear, or with a hidden layer."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from roann._checks import choice
from roann.lab.models.base import HeadInit
from roann.lab.models.recurrence import uniform_

Draw = Callable[[Tensor, Tensor, torch.Generator], None]


def _zeros(tensor: Tensor, generator: torch.Generator) -> None:
    nn.init.zeros_(tensor)


def _by_parts(weight_init: Callable[..., object], bias_init: Callable[..., object]) -> Draw:
    def draw(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
        weight_init(weight, generator=rng)
        bias_init(bias, generator=rng)

    return draw


def _uniform(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
    uniform_(1 / math.sqrt(weight.shape[1]), rng, weight, bias)


def _kaiming_normal(weight: Tensor, bias: Tensor, rng: torch.Generator) -> None:
    _uniform(weight, bias, rng)
    nn.init.kaiming_normal_(weight, generator=rng)


HEAD_INITS: dict[HeadInit, Draw] = {
    "normal": _by_parts(nn.init.normal_, nn.init.normal_),  # N(0, 1): roaRNN, Dilated RNN
    "uniform": _uniform,  # U(±1/√H): the paper's vanilla RNN and LSTM
    "kaiming_normal": _kaiming_normal,  # bias as "uniform": LEM
    "xavier_normal": _by_parts(nn.init.xavier_normal_, _zeros),  # bias 0: NRU
    "xavier_uniform": _by_parts(nn.init.xavier_uniform_, _zeros),  # bias 0: uRNN
    "zero": _by_parts(_zeros, _zeros),  # the recipe: a random readout must first be unlearned
}


def linear_head(
    in_features: int, out_features: int, init: HeadInit, generator: torch.Generator
) -> nn.Linear:
    """A linear map with bias, drawn from `generator` as the named initialisation says."""
    draw = HEAD_INITS[choice("head_init", init, HEAD_INITS)]  # type: ignore[index]
    head = nn.Linear(in_features, out_features, device="meta").to_empty(device="cpu")
    draw(head.weight, head.bias, generator)
    return head


def head_with_hidden(
    in_features: int, hidden: int, out_features: int, init: HeadInit, generator: torch.Generator
) -> nn.Sequential:
    """A head with one hidden layer of ReLU units, which start as torch's linear layers do."""
    first = linear_head(in_features, hidden, "uniform", generator)
    return nn.Sequential(first, nn.ReLU(), linear_head(hidden, out_features, init, generator))
