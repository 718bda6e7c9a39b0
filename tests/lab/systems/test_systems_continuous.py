"""Systems that are steps of a differential equation, and leaky ones: stability and Jacobians."""

import math

import pytest
import torch
from given_weights import F, filled, inputs, noise, rng
from torch.func import jacrev

from roann import PAPER, RoaEuler, RoaRNN
from roann.lab.models.antisymmetric import AntisymmetricRnn, AntisymmetricRnnConfig
from roann.lab.models.cornn import CoRnn, CoRnnConfig
from roann.lab.models.fastrnn import FastRnn, FastRnnConfig
from roann.lab.models.leaky_esn import LeakyEsn, LeakyEsnConfig
from roann.lab.models.lem import Lem, LemConfig
from roann.lab.models.lipschitz import LipschitzRnn, LipschitzRnnConfig
from roann.lab.models.unicornn import Unicornn, UnicornnConfig

N = 5
EYE = torch.eye(N, dtype=torch.float64)
X, U = F(5, N), F(6, 2)


def slope(y: torch.Tensor) -> torch.Tensor:
    return torch.diag(1 - torch.tanh(y) ** 2)


def lipschitz(**settings: float) -> LipschitzRnn:
    system = LipschitzRnn(2, LipschitzRnnConfig(N, **settings), rng())
    return filled(system, M_A=noise(N, N), M_W=noise(N, N, seed=1))


def test_lipschitz_matrices_are_their_formula_and_bound_their_spectrum():
    system = lipschitz(beta=0.7, gamma=0.2)
    for S, M in zip(system.matrices(), (system.M_A, system.M_W), strict=True):
        torch.testing.assert_close(S, 0.7 * (M - M.mT) + 0.3 * (M + M.mT) - 0.2 * EYE)
        largest = torch.linalg.eigvalsh(M + M.mT).max()
        assert torch.linalg.eigvals(S).real.max() <= 0.3 * largest - 0.2 + 1e-12


def test_lipschitz_step_is_euler_of_its_equation_and_its_jacobian_the_formula():
    system = lipschitz(epsilon=0.1)
    A, W = system.matrices()
    pre = W @ X + system.U @ U + system.b
    wanted = X + 0.1 * (A @ X + torch.tanh(pre))
    torch.testing.assert_close(system.step(X, U), wanted)
    J = jacrev(system.step)(X, U)
    torch.testing.assert_close(J, EYE + 0.1 * A + 0.1 * slope(pre) @ W)


def test_lipschitz_starts_with_entries_of_size_one_over_n():
    system = LipschitzRnn(1, LipschitzRnnConfig(200, init_std=0.1), rng())
    for M in (system.M_A, system.M_W):
        assert float(M.detach().std()) == pytest.approx(0.1 / 200, rel=0.02)


@pytest.mark.parametrize("filter", ["rotations", "haar", "permutation"])
def test_a_roarnn_is_a_lipschitz_rnn_with_this_A(filter):
    """β = 1/2 leaves M free: M_A = α⁻¹((1−α)O − I) + γI, M_W = W + γI give the roaRNN."""
    alpha, f64 = 0.05, torch.float64
    settings = PAPER | {"filter": filter}
    roa = RoaEuler(2, N, "tanh", alpha=alpha, dtype=f64, generator=rng(), **settings)
    weights = {"M_A": roa.friction() + 0.3 * EYE, "M_W": roa.weight() + 0.3 * EYE}
    weights |= {"U": roa.weight_ih_l0, "b": roa.bias_l0}

    def same(gap: float = 1.0) -> LipschitzRnn:
        config = LipschitzRnnConfig(N, alpha * gap, beta=0.5, gamma=0.3)
        return filled(LipschitzRnn(2, config, rng()), **weights)

    u = noise(15, 2, 2, seed=3)
    torch.testing.assert_close(same()(u)[0], roa(u)[0], rtol=1e-10, atol=1e-12)
    gaps = 3 * noise(15, seed=4).sigmoid()
    x, states = torch.zeros(2, N, dtype=f64), []
    for k in range(15):
        x = same(float(gaps[k])).step(x, u[k])
        states.append(x)
    found, _ = roa(u, intervals=gaps)
    torch.testing.assert_close(torch.stack(states), found, rtol=1e-10, atol=1e-12)


def antisymmetric(gated: bool = False, epsilon: float = 0.1, gamma: float = 0.3):
    config = AntisymmetricRnnConfig(N, epsilon, gamma, gated)
    return filled(AntisymmetricRnn(2, config, rng()), A=noise(10))


def test_antisymmetric_eigenvalues_lie_on_one_line():
    values = torch.linalg.eigvals(antisymmetric().recurrent_matrix())
    torch.testing.assert_close(values.real, torch.full((N,), -0.3, dtype=torch.float64))
    assert values.imag.abs().max() > 0.5


@pytest.mark.parametrize("gamma", [0.0, 0.02, 0.7])
def test_antisymmetric_euler_is_stable_exactly_where_its_inequality_says(gamma):
    epsilon = 0.1
    M = antisymmetric(epsilon=epsilon, gamma=gamma).recurrent_matrix().detach()
    omega = torch.linalg.eigvals(M).imag.abs().max()
    radius = torch.linalg.eigvals(EYE + epsilon * M).abs().max()
    assert (radius <= 1) == (gamma >= epsilon * (gamma**2 + omega**2) / 2)
    assert (radius <= 1) == (gamma == 0.7)


def test_antisymmetric_jacobians():
    plain, gated = antisymmetric(), antisymmetric(gated=True)
    M = plain.recurrent_matrix()
    pre = M @ X + plain.V @ U + plain.b
    torch.testing.assert_close(jacrev(plain.step)(X, U), EYE + 0.1 * slope(pre) @ M)
    # One M in the update and in the gate.
    for_y, for_z = (gated.V @ U + gated.b).chunk(2)
    y, z = torch.tanh(M @ X + for_y), torch.sigmoid(M @ X + for_z)
    J = EYE + 0.1 * (torch.diag(z * (1 - y**2)) + torch.diag(y * z * (1 - z))) @ M
    torch.testing.assert_close(jacrev(gated.step)(X, U), J)


def test_antisymmetric_without_weights_decays():
    system = antisymmetric()
    for p in system.parameters():
        torch.nn.init.zeros_(p)
    torch.testing.assert_close(system.step(X, U), X + 0.1 * torch.tanh(-0.3 * X))


def test_antisymmetric_starts_with_the_variance_of_w_minus_its_transpose():
    system = AntisymmetricRnn(4, AntisymmetricRnnConfig(300, sigma_w=0.5), rng())
    assert float(system.A.detach().var()) == pytest.approx(2 * 0.25 / 300, rel=0.03)
    assert float(system.V.detach().var()) == pytest.approx(1 / 4, rel=0.1)


def cornn() -> CoRnn:
    return filled(CoRnn(2, CoRnnConfig(N, dt=0.2, gamma=1.5, epsilon=2.0), rng()))


def test_cornn_jacobian_and_determinant():
    system = cornn()
    y, z = F(5, 2 * N).chunk(2)
    W_y, W_z = system.W.split(N, 1)
    D = slope(W_y @ y + W_z @ z + system.V @ U + system.b)
    zz, zy = (1 - 0.2 * 2.0) * EYE + 0.2 * D @ W_z, 0.2 * (D @ W_y - 1.5 * EYE)
    J = torch.cat([torch.cat([EYE + 0.2 * zy, 0.2 * zz], 1), torch.cat([zy, zz], 1)])
    found = jacrev(system.step)(torch.cat([y, z]), U)
    torch.testing.assert_close(found, J)
    torch.testing.assert_close(torch.linalg.det(found), torch.linalg.det(zz))


def test_cornn_without_weights_is_a_damped_oscillator():
    system = cornn()
    for p in system.parameters():
        torch.nn.init.zeros_(p)
    dt, gamma, eps = 0.2, 1.5, 2.0
    turn = torch.tensor(
        [[1 - dt**2 * gamma, dt * (1 - dt * eps)], [-dt * gamma, 1 - dt * eps]], dtype=torch.float64
    )
    x = F(5, 2 * N)
    _, after = system(torch.zeros(7, 1, 2, dtype=torch.float64), x[None])
    wanted = torch.linalg.matrix_power(turn, 7) @ x.view(2, N)
    torch.testing.assert_close(after.view(2, N), wanted)


def test_frozen_fastrnn_is_the_additive_network_with_the_identity_filter():
    alpha, logit = 0.02, math.log(0.02 / 0.98)
    config = FastRnnConfig(N, a=logit, c=-logit, learn_scalars=False)
    fast = FastRnn(2, config, rng(), dtype=torch.float64)
    filled(fast, U=F(1, N, N), W=F(2, N, 2), b=F(3, N))
    settings = PAPER | {"filter": "identity"}
    roa = RoaRNN(2, N, nonlinearity="tanh", alpha=alpha, dtype=torch.float64, **settings)
    with torch.no_grad():
        roa.weight_hh_l0.copy_(fast.U)
        roa.weight_ih_l0.copy_(fast.W)
        roa.bias_l0.copy_(fast.b)
    torch.testing.assert_close(fast(inputs(3))[0], roa(inputs(3))[0])
    assert fast.effective_parameters() == FastRnn(2, FastRnnConfig(N)).effective_parameters() - 2


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "sigmoid"])
def test_fastrnn_keeps_by_sigmoids_with_every_nonlinearity(nonlinearity):
    system = filled(FastRnn(2, FastRnnConfig(N, nonlinearity), rng()), U=F(1, N, N))
    y = system.U @ X + system.W @ U + system.b
    phi = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}[nonlinearity]
    take, keep = 1 / (1 + math.exp(3)), 1 / (1 + math.exp(-3))
    torch.testing.assert_close(system.step(X, U), keep * X + take * phi(y))
    D = jacrev(phi)(y)
    torch.testing.assert_close(jacrev(system.step)(X, U), keep * EYE + take * D @ system.U)
    # Without the sigmoids the state would be multiplied by 3 at every step.
    far = system(torch.zeros(500, 1, 2, dtype=torch.float64))[0]
    assert far.abs().max() < 50


FORMS = [("common", 0.3), ("jaeger2007", 1.0)]


def esn(**settings) -> LeakyEsn:
    return filled(LeakyEsn(2, LeakyEsnConfig(N, bias_scale=0.2, **settings), rng()))


@pytest.mark.parametrize(("form", "take"), FORMS)
def test_esn_jacobian(form, take):
    system = esn(form=form)
    D = slope(system.W @ X + system.W_in @ U + system.b)
    J = jacrev(system.step)(X, U)
    torch.testing.assert_close(J, 0.7 * EYE + take * D @ system.W)


@pytest.mark.parametrize(("form", "take"), FORMS)
def test_esn_forgets_its_start_at_least_at_the_proven_rate(form, take):
    system = esn(form=form)
    # The sufficient condition: σ_max(W) below 1, or below a for the form of 2007.
    system.W *= (0.9 if form == "common" else 0.25) / torch.linalg.matrix_norm(system.W, 2)
    rate = 0.7 + take * torch.linalg.matrix_norm(system.W, 2).item()
    assert rate < 1
    u = noise(60, 1, 2)
    start = noise(2, 1, N, seed=1)
    one, other = system(u, start[0])[0], system(u, start[1])[0]
    gap = (one - other).norm(dim=-1)[:, 0]
    bound = (start[0] - start[1]).norm() * rate ** torch.arange(1, 61, dtype=torch.float64)
    assert bool((gap <= bound + 1e-15).all())
    assert gap[-1] < 0.2 * gap[0]


def test_esn_with_full_leak_is_a_plain_reservoir_and_with_identity_a_linear_filter():
    plain = esn(leak=1.0)
    torch.testing.assert_close(plain.step(X, U), torch.tanh(plain.W @ X + plain.W_in @ U + plain.b))
    linear = LeakyEsn(2, LeakyEsnConfig(N, leak=0.3, nonlinearity="identity"), rng()).double()
    M = 0.7 * EYE + 0.3 * linear.W
    impulse = torch.zeros(6, 1, 2, dtype=torch.float64)
    impulse[0] = U
    wanted = torch.linalg.matrix_power(M, 5) @ (0.3 * linear.W_in @ U)
    torch.testing.assert_close(linear(impulse)[1][0], wanted)


@pytest.mark.parametrize(("form", "take"), FORMS)
@pytest.mark.parametrize("of", ["matrix", "effective"])
def test_esn_has_the_radius_that_was_asked(form, take, of):
    config = LeakyEsnConfig(40, form=form, radius=0.8, radius_of=of)
    W = LeakyEsn(1, config, rng(), dtype=torch.float64).W
    eye = torch.eye(40, dtype=torch.float64)
    matrix = W if of == "matrix" else 0.7 * eye + take * W
    assert torch.linalg.eigvals(matrix).abs().max().item() == pytest.approx(0.8, abs=1e-9)


def test_esn_refuses_a_radius_below_what_the_leak_keeps():
    with pytest.raises(ValueError, match=r"radius.*0\.7"):
        LeakyEsn(1, LeakyEsnConfig(4, radius=0.5, radius_of="effective"), rng())


def test_esn_is_fixed():
    system = esn()
    assert list(system.parameters()) == []
    assert system.effective_parameters() == 0


def test_lem_reads_the_new_z_into_y():
    system = filled(Lem(2, LemConfig(N, dt=0.4), rng()))
    y, z = F(5, 2 * N).chunk(2)
    in_y, in_z, to_y, to_z = (system.V @ U + system.b_V).split(N)
    rec_y, rec_z, rec = (system.W @ y + system.b_W).split(N)
    step_y, step_z = 0.4 * torch.sigmoid(in_y + rec_y), 0.4 * torch.sigmoid(in_z + rec_z)
    z = (1 - step_z) * z + step_z * torch.tanh(rec + to_z)
    y = (1 - step_y) * y + step_y * torch.tanh(system.W_z @ z + system.b_z + to_y)
    torch.testing.assert_close(system.step(F(5, 2 * N), U), torch.cat([y, z]))


def unicornn(layers: int = 2) -> Unicornn:
    config = UnicornnConfig(N, layers, dt=0.3, alpha=2.0)
    return filled(Unicornn(2, config, rng()), w=noise(layers, N), b=noise(layers, N, seed=1))


def test_unicornn_step_inverts_and_keeps_volume():
    system = unicornn(layers=1)
    x = F(5, 2 * N)
    after = system.step(x, U)
    s = 0.3 * torch.sigmoid(system.c[0])
    y_next, z_next = after.chunk(2)
    y = y_next - s * z_next
    force = torch.tanh(system.w[0] * y + system.V[0] @ U + system.b[0]) + 2.0 * y
    torch.testing.assert_close(torch.cat([y, z_next + s * force]), x)
    J = jacrev(system.step)(x, U)
    assert torch.linalg.det(J).item() == pytest.approx(1, abs=1e-12)
    # Every oscillator is alone: four diagonal blocks, each pair of determinant 1.
    blocks = J.view(2, N, 2, N).transpose(1, 2)
    for block in blocks.flatten(0, 1):
        torch.testing.assert_close(block, torch.diag(block.diagonal()))
    a, b, c, d = (block.diagonal() for block in blocks.flatten(0, 1))
    torch.testing.assert_close(a * d - b * c, torch.ones(N, dtype=torch.float64))


def test_unicornn_layers_feed_upwards_and_share_one_mask_over_time():
    torch.manual_seed(0)  # dropout draws from the global generator
    config = UnicornnConfig(N, 2, dt=0.3, alpha=2.0, dropout=0.5)
    system = Unicornn(2, config, rng(), dtype=torch.float64).train()
    with torch.no_grad():
        system.V[1].copy_(EYE)
        system.w.zero_()
        system.b.zero_()
    u = noise(4, 1, 2)
    output, state = system(u)
    below = state[0, 2 * N : 3 * N]
    assert bool((below != 0).all())
    silent = output[:, 0] == 0  # a dropped unit is silent at every step
    assert torch.equal(silent, silent[0].expand(4, N))
    assert 0 < int(silent[0].sum()) < N
