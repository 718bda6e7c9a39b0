"""The Lipschitz RNN and the roaRNN are one equation: they coincide where they should."""

import pytest
import torch

from roann import RoaODE
from roann.lab.models.lipschitz import LipschitzRnn, LipschitzRnnConfig

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def F(k, *shape):
    n = torch.arange(torch.Size(shape).numel(), dtype=f64)
    return 0.4 * torch.sin(k + n).reshape(shape)


def lipschitz(N, I, epsilon, **kw):
    kw = {"beta": 0.75, "gamma": 0.001} | kw
    return RoaODE(
        I, N, "tanh", alpha=epsilon, reading="euler", matrices="lipschitz", dtype=f64,
        generator=gen(), **kw,
    )  # fmt: skip


def test_the_golden_vector():
    """State after six steps, as the authors' code gives it."""
    model = lipschitz(4, 2, 0.1)
    with torch.no_grad():
        model.weight_a_l0.copy_(F(1, 4, 4))
        model.weight_hh_l0.copy_(F(2, 4, 4))
        model.weight_ih_l0.copy_(F(3, 4, 2))
        model.bias_l0.copy_(F(4, 4))
    t, j = torch.arange(6, dtype=f64).unsqueeze(1), torch.arange(2, dtype=f64)
    _, h_n = model(torch.cos(0.5 * t + j).unsqueeze(1))
    wanted = [-0.205780278, -0.165407048, -0.072193647, 0.144512390]
    assert h_n.flatten().tolist() == pytest.approx(wanted, abs=1e-9, rel=0)


def test_it_is_the_compared_system():
    """States and every gradient of the lab's Lipschitz RNN."""
    theirs = LipschitzRnn(3, LipschitzRnnConfig(8, 0.03, 0.8, 0.01), gen(), dtype=f64)
    ours = lipschitz(8, 3, 0.03, beta=0.8, gamma=0.01)
    pairs = {"weight_a_l0": "M_A", "weight_hh_l0": "M_W", "weight_ih_l0": "U", "bias_l0": "b"}
    ours.load_state_dict({mine: getattr(theirs, other) for mine, other in pairs.items()})
    u = torch.randn(20, 4, 3, generator=gen(1), dtype=f64)
    exact, _ = theirs(u)
    found, _ = ours(u)
    torch.testing.assert_close(found, exact, rtol=1e-11, atol=1e-13)
    found.sin().sum().backward()
    exact.sin().sum().backward()
    for mine, other in pairs.items():
        torch.testing.assert_close(
            ours.get_parameter(mine).grad, theirs.get_parameter(other).grad, rtol=1e-9, atol=1e-11
        )
    A, W = theirs.matrices()
    torch.testing.assert_close(ours.friction(), A, rtol=1e-13, atol=1e-15)
    torch.testing.assert_close(ours.weight(), W, rtol=1e-13, atol=1e-15)


def test_it_starts_as_its_authors_say():
    model = lipschitz(200, 3, 0.03)
    for name in ("weight_a_l0", "weight_hh_l0"):
        assert float(model.get_parameter(name).detach().std()) == pytest.approx(0.1 / 200, rel=0.02)
    assert not hasattr(model, "filter_l0")
    shared = lipschitz(8, 3, 0.03, beta=(0.5, 1.0), gamma=(0.2, 0.0))
    W = shared.weight().detach()
    torch.testing.assert_close(W, -W.T, rtol=0, atol=1e-15)  # β = 1, γ = 0: skew
    free = shared.weight_a_l0.detach() - 0.2 * torch.eye(8, dtype=f64)
    torch.testing.assert_close(shared.friction().detach(), free, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("filter", ["rotations", "haar", "permutation"])
def test_a_roarnn_is_a_lipschitz_rnn_with_this_A(filter):
    """β = 1/2 leaves M free: M_A = α⁻¹((1−α)O − I) + γI, M_W = W + γI give the roaRNN."""
    roa = RoaODE(
        3, 6, "tanh", alpha=0.05, reading="euler", filter=filter, dtype=f64, generator=gen()
    )
    same = lipschitz(6, 3, 0.05, beta=0.5, gamma=0.3)
    damping = 0.3 * torch.eye(6, dtype=f64)
    same.load_state_dict(
        {
            "weight_a_l0": roa.friction() + damping,
            "weight_hh_l0": roa.weight_hh_l0 + damping,
            "weight_ih_l0": roa.weight_ih_l0,
            "bias_l0": roa.bias_l0,
        }
    )
    u = torch.randn(15, 2, 3, generator=gen(1), dtype=f64)
    gaps = torch.rand(15, generator=gen(2), dtype=f64) * 3
    for how in ({}, {"intervals": gaps}, {"intervals": gaps.unsqueeze(1).expand(15, 2)}):
        torch.testing.assert_close(same(u, **how)[0], roa(u, **how)[0], rtol=1e-10, atol=1e-12)
