"""Where public versions of the systems went wrong: starts never used, nothing to normalise by."""

import math

import pytest
import torch
from given_weights import F, filled, noise, rng, skew_entries
from torch import Tensor

from roann.lab.models.bn_lstm import EPS, BnLstm, BnLstmConfig
from roann.lab.models.exprnn import ExpRnn, ExpRnnConfig
from roann.lab.models.nnrnn import NnRnn, NnRnnConfig
from roann.lab.models.scornn import ScoRnn, ScoRnnConfig
from roann.lab.models.skew import skew

D = torch.float64
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


# expRNN and nnRNN: the chosen start is the one that is used ------------------------------------

SKEWED = {
    "exprnn": (ExpRnn, ExpRnnConfig, ExpRnn.recurrent_matrix),
    "nnrnn": (NnRnn, NnRnnConfig, NnRnn.orthogonal_matrix),
}
every_skewed = pytest.mark.parametrize("name", SKEWED)


@every_skewed
@pytest.mark.parametrize(
    ("angles", "low", "high"), [("henaff", -math.pi, math.pi), ("cayley", -1.0, 0.0)]
)
def test_the_chosen_angles_are_those_of_the_first_matrix(name, angles, low, high):
    make, config, matrix = SKEWED[name]
    P = matrix(make(2, config(200, angles), rng(), dtype=D)).detach()
    cos, sin = P[0::2, 0::2].diagonal(), P[0::2, 1::2].diagonal()
    found = torch.atan2(sin, cos)
    # A hundred angles, drawn from all of the range (nnRNN's own port of "henaff": its lower half).
    fifth = (high - low) / 5
    assert low <= float(found.min()) < low + fifth
    assert high - fifth < float(found.max()) <= high
    turns = torch.stack([cos, sin, -sin, cos], -1).view(-1, 2, 2)
    torch.testing.assert_close(P, torch.block_diag(*turns), rtol=0, atol=1e-13)


@every_skewed
def test_the_first_input_matrix_is_kaiming_s_and_the_first_step(name):
    make, config, _ = SKEWED[name]
    system = make(2, config(200), rng(), dtype=D)
    # std √(2/I) = 1 from 400 numbers, to five standard errors; torch's own start has 0.41.
    assert float(system.W_i.detach().std()) == pytest.approx(1, abs=5 / math.sqrt(800))
    filled(system, b=torch.zeros(200))
    u = noise(2, seed=1)
    torch.testing.assert_close(system.step(torch.zeros(200, dtype=D), u), system.W_i @ u)


def test_nnrnn_turns_by_its_first_matrix_and_the_planes_do_not_hide_it():
    system = NnRnn(2, NnRnnConfig(6, "henaff"), rng(), dtype=D)
    angles = skew(system.A.detach(), 6)[0::2, 1::2].diagonal()
    assert bool((angles != 0).all())
    turns = [[[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]] for a in angles.tolist()]
    P = torch.block_diag(*torch.tensor(turns, dtype=D))
    # At T = 0 plane rotations commute, and W is Λ whatever P is; T shows P.
    torch.testing.assert_close(system.recurrent_matrix(), system.schur_form())
    filled(system, T=noise(12), b=torch.zeros(6))
    h = noise(6, seed=1)
    found = system.step(h, torch.zeros(2, dtype=D))
    torch.testing.assert_close(found, P @ system.schur_form() @ P.mT @ h)
    assert (found - system.schur_form() @ h).abs().max() > 0.1


# scoRNN: close to the eigenvalue −1 ------------------------------------------------------------


def near_minus_one(a: float, dtype: torch.dtype) -> tuple[ScoRnn, Tensor]:
    """scoRNN with planes of ±ia, ±0.5i, ±0.2i in general position; and W D̃ in closed form."""
    planes, (Q, _) = (a, 0.5, 0.2), torch.linalg.qr(noise(6, 6))
    A = torch.block_diag(*torch.tensor([[[0, x], [-x, 0]] for x in planes], dtype=D))
    W = torch.block_diag(
        *torch.tensor([[[1 - x * x, -2 * x], [2 * x, 1 - x * x]] for x in planes], dtype=D)
        / torch.tensor([1 + x * x for x in planes], dtype=D).view(3, 1, 1)
    )
    system = ScoRnn(2, ScoRnnConfig(6), rng(), dtype=dtype)
    with torch.no_grad():
        system.A.copy_(skew_entries(Q @ A @ Q.mT))
    return system, Q @ W @ Q.mT


@both_dtypes
@pytest.mark.parametrize("a", [1.0, 1e2, 1e4])
def test_scornn_close_to_the_eigenvalue_minus_one_errs_in_proportion_to_its_parameters(a, dtype):
    system, wanted = near_minus_one(a, dtype)
    G = noise(6, 6, seed=1)
    W = system.recurrent_matrix()
    (W * G.to(dtype)).sum().backward()
    W = W.detach().to(D)
    distance = (torch.linalg.eigvals(wanted) + 1).abs().min().item()
    assert distance == pytest.approx(2 / math.sqrt(1 + a * a), rel=1e-6)
    # Entries of A as large as a are rounded to a·eps, and the condition of I + A is a too.
    bound = 6 * torch.finfo(dtype).eps * (1 + a)
    assert (W * system.D.to(D) - wanted).abs().max() < bound
    assert (W @ W.mT - torch.eye(6)).abs().max() < bound
    # Skew A has ‖(I + A)⁻¹‖ ≤ 1, so by the published formula no gradient exceeds 4‖G‖.
    assert 0 < system.A.grad.abs().max() <= 4 * torch.linalg.matrix_norm(G, 2)


def test_scornn_s_orthogonality_degrades_there_in_single_precision():
    def defect(a):
        W = near_minus_one(a, torch.float32)[0].recurrent_matrix().detach().to(D)
        return (W @ W.mT - torch.eye(6)).abs().max().item()

    assert defect(1.0) < 1e-6
    assert 1e-5 < defect(1e4) < 1e-2


# BN-LSTM: nothing varies, nothing was seen -----------------------------------------------------


# The mean of 2 or 4 equal numbers is exact, so BN leaves 0. Of 5 it is not, and some BLAS treat a
# fifth row apart: a last bit then grows as gradients do in the next test, 250-fold a step.
@both_dtypes
@pytest.mark.parametrize("batch", [2, 4])
def test_bn_lstm_of_a_constant_batch_is_its_biases_with_finite_gradients(batch, dtype):
    N, T = 3, 4
    system = BnLstm(2, BnLstmConfig(N, T), rng(), dtype=D)
    system = filled(system, b=F(5, 4 * N), beta_c=F(4, N)).to(dtype).train()
    assert bool((system.x_0 == 0).all())
    u = noise(T, 1, 2).to(dtype).expand(T, batch, 2).clone().requires_grad_()
    output, state = system(u)
    f, i, o = torch.sigmoid(system.b[: 3 * N]).detach().chunk(3)
    g, beta = torch.tanh(system.b[3 * N :]).detach(), torch.tanh(system.beta_c).detach()
    atol = 10 * torch.finfo(dtype).eps / math.sqrt(EPS)  # a last bit, divided by √ε
    c = torch.zeros(N, dtype=dtype)
    for t in range(T):
        c = f * c + i * g
        wanted = (o * beta).expand(batch, N)
        torch.testing.assert_close(output[t].detach(), wanted, rtol=0, atol=atol)
    torch.testing.assert_close(state[:, N:].detach(), c.expand(batch, N), rtol=0, atol=atol)
    output[-1].sum().backward()
    for key, p in [("u", u), *system.named_parameters()]:
        assert bool(p.grad.isfinite().all()), key
    slope = batch * o * (1 - beta**2)
    torch.testing.assert_close(system.beta_c.grad, slope, rtol=1e-3, atol=atol)


def test_bn_lstm_where_nothing_varies_multiplies_gradients_by_250_a_step():
    weight = noise(5, 3)

    def gradient(T):
        system = BnLstm(2, BnLstmConfig(3, T), rng(), dtype=D).train()
        u = torch.zeros(T, 5, 2, dtype=D, requires_grad=True)
        (system(u)[0][-1] * weight).sum().backward()
        return u.grad[0].norm().item()

    # h = c = 0, o = i = ½, f = σ(1), and 1/√ε twice: the published 0.1 noise on h₀ has its reason.
    factor = 1 / (1 + math.exp(-1)) + 0.25 * 0.1 * 0.1 / EPS
    assert gradient(5) / gradient(4) == pytest.approx(factor, rel=1e-9)
    assert factor == pytest.approx(250.73, abs=0.01)


def test_bn_lstm_before_any_training_evaluates_as_an_lstm_with_rows_scaled_by_gamma():
    N = 3
    system = BnLstm(2, BnLstmConfig(N, 4), rng(), dtype=D).eval()
    scale, u = 0.1 / math.sqrt(1 + EPS), noise(6, 2, 2)  # mean 0, variance 1, at every step
    output, _ = system(u)
    h = c = torch.zeros(2, N, dtype=D)
    for t in range(6):
        a = scale * (h @ system.W_h.mT + u[t] @ system.W_x.mT) + system.b
        f, i, o = torch.sigmoid(a[:, : 3 * N]).chunk(3, -1)
        c = f * c + i * torch.tanh(a[:, 3 * N :])
        h = o * torch.tanh(scale * c)
        torch.testing.assert_close(output[t], h)
    assert output.abs().max() > 1e-3
    torch.testing.assert_close(system(u[:, :1])[0], output[:, :1])  # one sample alone, too
    # A batch without variance, seen once, leaves statistics to evaluate by.
    system.train()(torch.ones(6, 5, 2, dtype=D))
    assert bool(system.eval()(u)[0].isfinite().all())


def test_skew_entries_are_read_row_by_row():
    M = F(1, 4, 4)
    torch.testing.assert_close(skew(skew_entries(M), 4), M.triu(1) - M.triu(1).mT)
