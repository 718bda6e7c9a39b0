"""Highway network and residual MLP."""

import pytest
import torch
from given_weights import F, noise, rng
from torch.func import jacrev

from roann.lab.models.highway import Highway, HighwayConfig
from roann.lab.models.residual_mlp import ResidualMlp, ResidualMlpConfig

D = torch.float64
N = 4


def highway(gate_bias: float = -2.0, nonlinearity: str = "tanh", depth: int = 3) -> Highway:
    config = HighwayConfig(depth + 2, N, nonlinearity, gate_bias)
    return Highway([N] * (depth + 1) + [1], config, rng(), dtype=D)


def test_highway_jacobian():
    net, x = highway(), F(5, N)
    W_H, W_T = net.W[1].chunk(2)
    b_H, b_T = net.b[1].chunk(2)
    H, T = torch.tanh(W_H @ x + b_H), torch.sigmoid(W_T @ x + b_T)
    J = torch.diag(T * (1 - H**2)) @ W_H + torch.diag(1 - T)
    J = J + torch.diag((H - x) * T * (1 - T)) @ W_T
    torch.testing.assert_close(jacrev(lambda x: net.layers()[1](x))(x), J)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_highway_limits_are_the_identity_and_a_plain_network(nonlinearity):
    x = noise(5, N)
    torch.testing.assert_close(highway(-800.0, nonlinearity).trunk(x), x)
    net = highway(800.0, nonlinearity)
    y, phi = x, {"tanh": torch.tanh, "relu": torch.relu}[nonlinearity]
    for W, b in zip(net.W, net.b, strict=True):
        y = phi(y @ W[:N].mT + b[:N])
    torch.testing.assert_close(net.trunk(x), y)


def test_highway_starts_open():
    x = noise(100, N)
    deep, halved = highway(depth=10), highway(gate_bias=0.0, depth=10)
    assert bool((deep.b[:, N:] == -2).all() and (deep.b[:, :N] == 0).all())
    kept = [jacrev(net.trunk)(x[0]).norm().item() for net in (deep, halved)]
    # σ(−2) = 0.12: a tenth is transformed; with b_T = 0 a half, and (1/2)^10 is what arrives.
    assert kept[0] > 0.3
    assert kept[1] < 0.1


@pytest.mark.parametrize(("scaling", "s"), [("none", 1.0), ("sqrt", 3**-0.5), ("depth", 1 / 3)])
def test_residual_jacobian_and_scalings(scaling, s):
    config = ResidualMlpConfig(5, N, scaling=scaling)
    net, x = ResidualMlp([N, N, N, N, 1], config, rng(), dtype=D), F(5, N)
    slope = torch.diag(1 - torch.tanh(net.W[2] @ x + net.b[2]) ** 2)
    J = torch.eye(N, dtype=D) + s * slope @ net.W[2]
    torch.testing.assert_close(jacrev(lambda x: net.layers()[2](x))(x), J)


def test_residual_trunk_explodes_unscaled_and_not_scaled_by_depth():
    def growth(scaling):
        config = ResidualMlpConfig(52, 2, "tanh", scaling)
        net = ResidualMlp([2] * 51 + [1], config, rng(), dtype=D)
        return net.trunk(torch.zeros(2, dtype=D)).abs().max().item()

    assert growth("none") > 5
    assert growth("depth") <= 1  # fifty layers add at most 1/50 each


@pytest.mark.parametrize("made", ["highway", "residual"])
def test_a_map_leads_in_where_the_width_differs(made):
    sizes = [3, N, N, 2]
    if made == "highway":
        net = Highway(sizes, HighwayConfig(4, N, "tanh"), rng(), dtype=D)
    else:
        net = ResidualMlp(sizes, ResidualMlpConfig(4, N), rng(), dtype=D)
    assert net.depth == 1
    x = noise(5, 3)
    inside = torch.tanh(x @ net.W_in.mT + net.b_in)
    wanted = torch.tanh(net.layers()[0](inside) @ net.W_out.mT + net.b_out)
    torch.testing.assert_close(net(x), wanted)
    assert net(x).shape == (5, 2)
