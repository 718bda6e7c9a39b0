"""The readout head from a system's output to a prediction: linear, or with a hidden layer."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from roann._checks import choice
from roann.lab.models.base import HeadInit
from roann.lab.models.recurrence import Source

Drawn = tuple[nn.Parameter, nn.Parameter]


def _uniform(new: Source, n_in: int, n_out: int) -> Drawn:
    bound = 1 / math.sqrt(n_in)
    return new.uniform(bound, n_out, n_in), new.uniform(bound, n_out)


def _kaiming_normal(new: Source, n_in: int, n_out: int) -> Drawn:
    _, bias = _uniform(new, n_in, n_out)
    return new.drawn(nn.init.kaiming_normal_, n_out, n_in), bias


def _without_bias(init: Callable[..., object], new: Source, n_in: int, n_out: int) -> Drawn:
    return new.drawn(init, n_out, n_in), new.constant(0, n_out)


HEAD_INITS: dict[HeadInit, Callable[[Source, int, int], Drawn]] = {
    # N(0, 1): roaRNN, Dilated RNN
    "normal": lambda new, n_in, n_out: (new.normal(1, n_out, n_in), new.normal(1, n_out)),
    "uniform": _uniform,  # U(±1/√H): the paper's vanilla RNN and LSTM
    "kaiming_normal": _kaiming_normal,  # bias as "uniform": LEM
    "xavier_normal": partial(_without_bias, nn.init.xavier_normal_),  # NRU
    "xavier_uniform": partial(_without_bias, nn.init.xavier_uniform_),  # uRNN
    # The recipe: a random readout must first be unlearned.
    "zero": lambda new, n_in, n_out: (new.constant(0, n_out, n_in), new.constant(0, n_out)),
}


def linear_head(
    in_features: int, out_features: int, init: HeadInit, generator: torch.Generator
) -> nn.Linear:
    """A linear map with bias, drawn from `generator` as the named initialisation says."""
    draw = HEAD_INITS[choice("head_init", init, HEAD_INITS)]  # type: ignore[index]
    head = nn.Linear(in_features, out_features, device="meta")
    head.weight, head.bias = draw(Source(generator), in_features, out_features)
    return head


def make_head(
    in_features: int, hidden: int, out_features: int, init: HeadInit, generator: torch.Generator
) -> nn.Module:
    """A linear head, or one with a layer of ReLU units that start as torch's linear layers do."""
    if not hidden:
        return linear_head(in_features, out_features, init, generator)
    first = linear_head(in_features, hidden, "uniform", generator)
    return nn.Sequential(first, nn.ReLU(), linear_head(hidden, out_features, init, generator))
