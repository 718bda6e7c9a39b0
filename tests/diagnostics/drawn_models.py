"""Networks drawn at random for the theorems: sizes, ρ, φ, filters, and how large W is."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from roann import RoaFNN, RoaRNN
from roann.filters import FILTERS
from roann.kernels.activations import ACTIVATIONS

theorem = settings(deadline=None, max_examples=40, derandomize=True, database=None)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


@dataclass(frozen=True)
class Drawn:
    """A roaRNN, the inputs of one run, and the facts the theorems speak of."""

    rnn: RoaRNN
    inputs: Tensor
    h0: Tensor


@st.composite
def recurrent(draw: st.DrawFn, vector_alpha: bool | None = None) -> Drawn:
    N, T = draw(st.integers(1, 7)), draw(st.integers(1, 30))
    seed = draw(st.integers(0, 10_000))
    rho = draw(st.sampled_from([1 / 300, 1 / 50, 1 / 2, 1.0, 3.0, 5.0]))
    vector = draw(st.booleans()) if vector_alpha is None else vector_alpha
    top = min(rho / T, 1.0)
    alpha: float | Tensor = top
    if vector:
        alpha = top * torch.rand(N, generator=seeded(seed + 1), dtype=torch.float64)
    rnn = RoaRNN(
        2,
        N,
        nonlinearity=draw(st.sampled_from(sorted(ACTIVATIONS))),
        bias=draw(st.booleans()),
        alpha=alpha,
        filter=draw(st.sampled_from(sorted(FILTERS))),
        dtype=torch.float64,
        generator=seeded(seed),
    )
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(draw(st.sampled_from([0.0, 0.1, 1.0, 3.0])))
    return Drawn(rnn, normal(T, 2, seed=seed + 2), normal(1, N, seed=seed + 3))


@st.composite
def feed_forward(draw: st.DrawFn, order: str) -> tuple[RoaFNN, Tensor]:
    widths = draw(st.lists(st.integers(1, 5), min_size=2, max_size=9))
    if order != "any":
        widths = sorted(widths, reverse=order == "falling")
    seed = draw(st.integers(0, 10_000))
    net = RoaFNN(
        widths,
        draw(st.sampled_from(sorted(ACTIVATIONS))),
        alpha=min(1.0, draw(st.sampled_from([1 / 50, 1 / 2, 3.0])) / (len(widths) - 1)),
        filter=draw(st.sampled_from(["qr", "haar", "permutation", "identity"])),
        recycle=draw(st.booleans()),
        dtype=torch.float64,
        generator=seeded(seed),
    )
    return net, normal(widths[0], seed=seed + 1)
