"""The count of operations, by hand and against torch's own counter."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import flops
from benchmarks.peers import LIMIT_SIZE, Sequences, in_limit

SIZES = {"T": 3, "B": 2, "N": 4}


def test_a_tiny_case_by_hand():
    # One product of (2, 4) with (4, 4) is 2·4·4 multiply-adds, so 64 operations; 3 steps of it.
    assert flops.recurrent(flops.ROA_DENSE, "forward", **SIZES) == 2 * 192
    assert flops.recurrent(flops.ROA_DENSE, "train", **SIZES) == 5 * 192
    assert flops.recurrent(flops.ROA_STRUCTURED, "train", **SIZES) == 3 * 192


def roa(filter, case):
    """The layer of a case without the cap, whose products are those of one call and not counted."""
    return case.roa(filter, backend="reference", max_norm=None)


@pytest.mark.parametrize("work", ["forward", "train"])
@pytest.mark.parametrize(
    ("layer", "products", "gates"),
    [
        *((partial(roa, filter), products, 1) for filter, products in flops.FILTERS.items()),
        (lambda c: nn.RNN(c.I, c.N, nonlinearity="relu"), flops.RNN, 1),
        (lambda c: nn.GRU(c.I, c.N), flops.GRU, 3),
        (lambda c: nn.LSTM(c.I, c.N), flops.LSTM, 4),
    ],
)
def test_torch_counts_the_same(layer, products, gates, work):
    case = Sequences(T=5, B=3, N=4, I=2, rho=1.0, horizon=5)
    # In float64 no product of torch's LSTM hides in an operation the counter cannot see.
    module = layer(case).double()
    # A state that wants a gradient, so that the first step has the products of any other.
    hx = torch.zeros(1, case.B, case.N, dtype=torch.float64, requires_grad=True)
    hx = (hx, torch.zeros_like(hx, requires_grad=True)) if isinstance(module, nn.LSTM) else hx
    with FlopCounterMode(display=False) as counter:
        output, _ = module(case.input().double(), hx)
        if work == "train":
            output.sum().backward()
    # W_i u, and in training the gradient of W_i, which are not counted; u itself needs none.
    projection = 2 * case.T * case.B * case.N * case.I * gates * (1 if work == "forward" else 2)
    expected = case.count(products, work) + projection
    assert counter.get_total_flops() == expected


def test_the_limit_is_one_product_at_its_own_size():
    operations = 2 * LIMIT_SIZE**3
    assert in_limit(0.25, operations) == 0.25
    assert in_limit(0.25, operations // 2) == 0.125
