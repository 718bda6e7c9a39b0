"""The count of operations, by hand and against torch's own counter."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.contenders import DENSE, FILTERS, LIMIT_SIZE, ONE, TORCH, Sequences, over_time
from benchmarks.peak import library, peak


def test_a_tiny_case_by_hand():
    # One product of (2, 4) with (4, 4) is 2·4·4 multiply-adds, so 64 operations; 3 steps of it.
    case = Sequences(T=3, B=2, N=4, I=1, rho=1.0, horizon=3)
    assert case.count(DENSE, "forward") == 2 * 192
    assert case.count(DENSE, "train") == 5 * 192
    assert case.count(ONE, "train") == 3 * 192


GATES = {"nn.RNN": 1, "nn.GRU": 3, "nn.LSTM": 4}


def torch_layer(name, case):
    return TORCH[name][0](case.I, case.N)


def roa(filter, case):
    """The layer of a case without the cap, whose products are those of one call and not counted."""
    return case.roa(filter, backend="reference", max_norm=None)


@pytest.mark.parametrize("work", ["forward", "train"])
@pytest.mark.parametrize(
    ("layer", "products", "gates"),
    [
        *((partial(roa, filter), products, 1) for filter, products in FILTERS.items()),
        *((partial(torch_layer, name), TORCH[name][1], gates) for name, gates in GATES.items()),
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
    # As many operations as one product at 1024³: two of (4, 1024) with (1024, 1024) in 128 steps.
    case = Sequences(T=128, B=4, N=LIMIT_SIZE, I=1, rho=1.0, horizon=128)
    for part, scale in ((1, 1.0), (2, 0.5)):
        limit = over_time(replace(case, T=case.T // part), "forward")[-1]
        assert (limit.name, limit.scale) == ("limit", scale)


def test_the_peak_does_the_multiply_adds_that_it_counts():
    if library() is None:
        pytest.skip("no C compiler")
    # On lane i every one of the twelve chains tends to x = x / 2 + i, which is 2 i.
    run, operations = peak(threads=2, rounds=100)
    lanes = operations // (2 * 12 * 2 * 100)
    assert lanes in (4, 8, 16)
    assert run() == 2 * [pytest.approx(12 * 2 * sum(range(lanes)), rel=1e-6)]
