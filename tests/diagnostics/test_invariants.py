"""Where the state can go when φ is bounded: a ball for any O, a cube only for some."""

from __future__ import annotations

import math

import pytest
import torch
from drawn_models import normal, seeded, theorem
from hypothesis import given
from hypothesis import strategies as st

from roann import RoaRNN
from roann.filters import FILTERS
from roann.kernels.activations import ACTIVATIONS

# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

BOUNDED = sorted(name for name, phi in ACTIVATIONS.items() if phi.R is not None)


@theorem
@given(
    N=st.integers(1, 12),
    alpha=st.floats(0.0, 1.0),
    phi=st.sampled_from(BOUNDED),
    filter=st.sampled_from(sorted(FILTERS)),
    seed=st.integers(0, 1000),
)
def test_the_ball_is_invariant(N: int, alpha: float, phi: str, filter: str, seed: int) -> None:
    """‖x‖ ≤ R√N is kept, for every filter and every size of the weights."""
    R = ACTIVATIONS[phi].R
    assert R is not None
    rnn = RoaRNN(
        3,
        N,
        nonlinearity=phi,
        alpha=alpha,
        filter=filter,
        dtype=torch.float64,
        generator=seeded(seed),
    )
    start = normal(1, 4, N, seed=seed)
    start = start / start.norm(dim=-1, keepdim=True) * R * math.sqrt(N)  # on its surface
    states, _ = rnn(10 * normal(25, 4, 3, seed=seed + 1), start)
    assert float(states.detach().norm(dim=-1).max()) <= R * math.sqrt(N) * (1 + 1e-13)


@pytest.mark.parametrize("filter", ["identity", "cycle", "permutation"])
def test_the_cube_is_invariant_for_permutations(filter: str) -> None:
    rnn = RoaRNN(
        3,
        8,
        nonlinearity="tanh",
        alpha=0.1,
        filter=filter,
        dtype=torch.float64,
        generator=seeded(0),
    )
    corner = torch.ones(1, 4, 8, dtype=torch.float64)
    states, _ = rnn(10 * normal(200, 4, 3), corner)
    assert float(states.detach().abs().max()) <= 1 + 1e-13


def test_the_cube_is_not_invariant_for_a_general_filter() -> None:
    """A rotation by 45° carries the corner (1, 1) to (0, √2), outside the cube [−1, 1]²."""
    c = math.sqrt(0.5)
    O = torch.tensor([[c, -c], [c, c]], dtype=torch.float64)
    rnn = RoaRNN(1, 2, nonlinearity="tanh", alpha=0.01, filter=O, dtype=torch.float64)
    x = rnn.step(torch.ones(2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)).detach()
    assert float(x.max()) > 1.3
    assert float(x.norm()) <= math.sqrt(2)
