"""Orthogonal and unitary systems: their matrices by a second derivation, kept through training."""

import math

import pytest
import torch
from given_weights import filled, inputs, noise, rng, skew_entries
from torch import Tensor, nn
from torch.func import jacrev

from roann.lab.models.exprnn import ExpRnn, ExpRnnConfig
from roann.lab.models.nnrnn import NnRnn, NnRnnConfig, above_blocks
from roann.lab.models.orthogonal import modrelu
from roann.lab.models.scornn import ScoRnn, ScoRnnConfig
from roann.lab.models.skew import block_angles_, skew, skew_hermitian, skew_size
from roann.lab.models.unitary import (
    DENSE,
    FullCapacityURnn,
    FullCapacityURnnConfig,
    URnn,
    URnnConfig,
    complex_modrelu,
    restricted_unitary,
)

EYE = torch.eye(6, dtype=torch.float64)
D = torch.float64


def series(A: Tensor) -> Tensor:
    """exp(A) as Σ Aᵏ/k!, term by term."""
    total, term = torch.eye(len(A), dtype=A.dtype), torch.eye(len(A), dtype=A.dtype)
    for k in range(1, 60):
        term = term @ A / k
        total = total + term
    return total


def orthogonal_systems(N: int = 6):
    return {
        "exprnn": ExpRnn(2, ExpRnnConfig(N), rng(), dtype=D),
        "scornn": ScoRnn(2, ScoRnnConfig(N), rng(), dtype=D),
        "nnrnn": NnRnn(2, NnRnnConfig(N), rng(), dtype=D),
    }


def unitary_matrix(system: URnn | FullCapacityURnn) -> Tensor:
    """W (N, N), complex, from the map on [Re; Im]."""
    N = system.config.hidden_size
    blocks = system.unitary()(torch.eye(2 * N, dtype=system.b.dtype)).mT
    assert torch.allclose(blocks[:N, :N], blocks[N:, N:])
    assert torch.allclose(blocks[N:, :N], -blocks[:N, N:])
    return torch.complex(blocks[:N, :N], blocks[N:, :N])


def test_the_exponential_is_its_series():
    system = filled(ExpRnn(2, ExpRnnConfig(6), rng()), A=noise(15))
    W = system.recurrent_matrix()
    torch.testing.assert_close(W, series(skew(system.A, 6)), rtol=0, atol=1e-12)
    torch.testing.assert_close(W @ W.mT, EYE, rtol=0, atol=1e-13)
    assert torch.linalg.det(W).item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "make", "scale"),
    # torch's Cayley map is (I + A/2)(I − A/2)⁻¹.
    [("matrix_exp", ExpRnn, 1), ("cayley", ScoRnn, -2)],
)
def test_the_maps_are_those_of_torch_s_own_parametrisation(name, make, scale):
    config = ExpRnnConfig(6) if make is ExpRnn else ScoRnnConfig(6, 0)
    A = noise(15)
    layer = nn.Linear(6, 6, bias=False, dtype=D)
    nn.utils.parametrizations.orthogonal(layer, orthogonal_map=name, use_trivialization=False)
    with torch.no_grad():
        layer.parametrizations.weight.original.copy_(scale * skew(A, 6).tril())
    ours = filled(make(2, config, rng()), A=A).recurrent_matrix()
    torch.testing.assert_close(ours, layer.weight)
    with pytest.raises(NotImplementedError, match="not possible to assign"):
        layer.weight = ours.detach()  # see Note [Only free numbers are stored]


def test_one_plane_turns_by_its_angle():
    a = 0.7
    W = filled(ExpRnn(2, ExpRnnConfig(2), rng()), A=torch.tensor([a])).recurrent_matrix()
    turn = [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]
    torch.testing.assert_close(W, torch.tensor(turn, dtype=D), rtol=0, atol=1e-7)


@pytest.mark.parametrize("negative", [0, 1, 3, 6])
def test_the_scaled_cayley_matrix(negative):
    system = filled(ScoRnn(2, ScoRnnConfig(6, negative), rng()), A=noise(15))
    W, A = system.recurrent_matrix(), skew(system.A, 6)
    signs = torch.diag(torch.tensor([1.0] * (6 - negative) + [-1.0] * negative, dtype=D))
    # Its definition, with the inverse written out.
    torch.testing.assert_close(W, torch.linalg.inv(EYE + A) @ (EYE - A) @ signs)
    torch.testing.assert_close(W @ W.mT, EYE, rtol=0, atol=1e-13)
    assert torch.linalg.det(W).item() == pytest.approx((-1) ** negative, abs=1e-12)
    nn.init.zeros_(system.A)
    torch.testing.assert_close(system.recurrent_matrix(), signs)


def test_the_gradient_through_the_scaled_cayley_map_is_the_published_one():
    system = filled(ScoRnn(2, ScoRnnConfig(6, 3), rng()), A=noise(15))
    G, A, W = noise(6, 6, seed=1), skew(system.A, 6).detach(), system.recurrent_matrix()
    (W * G).sum().backward()
    V = torch.linalg.inv(EYE + A).mT @ G @ (torch.diag(system.D) + W.mT.detach())
    # ∂L/∂A = Vᵀ − V over all entries of A at once; an entry of the upper triangle moves two.
    torch.testing.assert_close(system.A.grad, skew_entries(V.mT - V))


@pytest.mark.parametrize("name", ["exprnn", "scornn", "nnrnn"])
def test_the_matrix_acts_from_the_left(name):
    system = orthogonal_systems()[name]
    filled(system, A=noise(15), b=torch.zeros(6))
    h, zero = noise(6, seed=1), torch.zeros(2, dtype=D)
    torch.testing.assert_close(system.step(h, zero), system.recurrent_matrix() @ h)


@pytest.mark.parametrize("name", ["exprnn", "scornn", "nnrnn"])
def test_without_a_bias_a_thousand_steps_keep_the_norm(name):
    system = filled(orthogonal_systems()[name], A=noise(15), b=torch.zeros(6))
    h = noise(3, 6, seed=1)
    output, _ = system(torch.zeros(1000, 3, 2, dtype=D), h)
    torch.testing.assert_close(output.norm(dim=-1), h.norm(dim=-1).expand(1000, 3))


@pytest.mark.parametrize("name", ["exprnn", "scornn", "nnrnn"])
@pytest.mark.parametrize("b", [-0.4, 0.1])
def test_step_jacobian_is_a_mask_times_the_matrix(name, b):
    system = filled(orthogonal_systems()[name], A=noise(15), b=torch.full((6,), b))
    h, u = noise(6, seed=1), noise(2, seed=2)
    J = jacrev(system.step)(h, u)
    W = system.recurrent_matrix()
    alive = (W @ h + system.W_i @ u).abs() + b > 0
    torch.testing.assert_close(J, alive.to(D).unsqueeze(1) * W)
    sigma = torch.linalg.svdvals(J)
    torch.testing.assert_close(sigma * (1 - sigma), torch.zeros(6, dtype=D), rtol=0, atol=1e-12)
    assert int(sigma.round().sum()) == int(alive.sum())
    assert bool(alive.all()) == (b > 0)


def test_henaff_angles_fill_the_circle_and_cayley_angles_the_first_quarter():
    n = 4001
    planes = torch.arange(0, n - 1, 2)
    at = planes * n - planes * (planes + 1) // 2
    entries = torch.empty(skew_size(n))
    for kind, low, high in (("henaff", -math.pi, math.pi), ("cayley", -1.0, 0.0)):
        block_angles_(entries, n, kind, rng())
        angles = entries[at]
        assert int((entries != 0).sum()) == len(planes)  # odd n: one direction stays
        assert low <= float(angles.min()) < low + 0.02
        assert high - 0.02 < float(angles.max()) <= high
    # Through the Cayley map the angles are U(0, π/2) themselves.
    turn = 2 * torch.atan(-angles)
    assert float(turn.mean()) == pytest.approx(math.pi / 4, abs=0.03)


def test_henaff_angles_land_in_the_planes():
    entries = torch.empty(skew_size(5), dtype=D)
    block_angles_(entries, 5, "henaff", rng())
    A = skew(entries, 5)
    keep = torch.zeros(5, 5, dtype=torch.bool)
    for i in (0, 2):
        keep[i, i + 1] = keep[i + 1, i] = True
    assert bool((A[keep] != 0).all())
    assert bool((A[~keep] == 0).all())


def test_eigenvalues_of_the_schur_form_do_not_feel_the_triangle():
    system = NnRnn(2, NnRnnConfig(6), rng(), dtype=D)
    gamma, theta = torch.tensor([1.1, 0.9, 0.5]), torch.tensor([0.5, 1.2, 3.0])
    filled(system, A=noise(15), gamma=gamma, theta=theta, T=noise(12, seed=1))
    W = system.recurrent_matrix()
    found = torch.linalg.eigvals(W)
    found = found[found.imag > 0]
    found = found[found.abs().argsort(descending=True)]
    torch.testing.assert_close(found, torch.polar(gamma.to(D), theta.to(D)))
    # P = exp(skew) is really used, and the triangle is above the blocks of Pᵀ W P.
    P = series(skew(system.A, 6))
    torch.testing.assert_close(system.orthogonal_matrix(), P)
    inside = P.mT @ W @ P
    torch.testing.assert_close(inside, system.schur_form())
    i, j = above_blocks(6, torch.device("cpu"))
    torch.testing.assert_close(inside[i, j], system.T)
    assert inside.tril(-2).abs().max() < 1e-13


def test_the_first_matrix_of_nnrnn_is_orthogonal_and_its_penalty_nothing():
    system = NnRnn(2, NnRnnConfig(6), rng(), dtype=D)
    W = system.recurrent_matrix()
    torch.testing.assert_close(W @ W.mT, EYE, rtol=0, atol=1e-13)
    assert system.penalty().item() == 0
    filled(system, gamma=torch.tensor([1.0, 1.5, 1.0]), T=torch.full((12,), 2.0))
    assert system.penalty().item() == pytest.approx(0.1 * 0.25 + 0.5 * 1e-4 * 48)
    with pytest.raises(ValueError, match=r"hidden_size.*even"):
        NnRnnConfig(5)


def test_modrelu_by_cases():
    z, b = torch.tensor([-2.0, -0.2, 0.0, 0.2, 2.0]), torch.tensor(-0.5)
    assert torch.equal(modrelu(z, b), torch.tensor([-1.5, 0.0, 0.0, 0.0, 1.5]))
    assert torch.equal(modrelu(z, -b), torch.tensor([-2.5, -0.7, 0.0, 0.7, 2.5]))


def test_complex_modrelu_is_its_formula_in_complex_numbers():
    z, b = torch.complex(noise(7, 5), noise(7, 5, seed=1)), noise(5, seed=2)
    wanted = z * torch.relu(z.abs() + b) / z.abs()
    found = complex_modrelu(torch.cat([z.real, z.imag], -1), b)
    torch.testing.assert_close(found, torch.cat([wanted.real, wanted.imag], -1))
    assert torch.equal(complex_modrelu(found, torch.zeros(5, dtype=D)), found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-19, 1e-16, 3e-13, 1e-10])
def test_the_gradient_of_complex_modrelu_is_finite_at_and_near_zero(size, dtype):
    z = torch.full((8,), size, dtype=dtype, requires_grad=True)
    b = torch.tensor([-0.3, 0.0, -1e-3, -2.0], dtype=dtype, requires_grad=True)
    value = complex_modrelu(z, b)
    value.sum().backward()
    assert bool(z.grad.isfinite().all() and b.grad.isfinite().all())
    assert value.abs().max() <= size


def test_the_product_of_urnn_is_its_factors_written_out():
    N = 8
    theta, v, p = noise(3, N), noise(2, 2, N, seed=1), torch.randperm(N, generator=rng())
    k = torch.arange(N, dtype=D)
    DFT = torch.polar(torch.ones(N, N, dtype=D), -2 * math.pi * torch.outer(k, k) / N) / N**0.5
    phases = [torch.diag(torch.polar(torch.ones(N, dtype=D), t)) for t in theta]
    w = torch.complex(v[:, 0], v[:, 1])
    R = [torch.eye(N) - 2 * torch.outer(a, a.conj()) / a.abs().square().sum() for a in w]
    P = torch.eye(N, dtype=torch.complex128)[p]
    product = phases[2] @ R[1] @ DFT.mH @ phases[1] @ P @ R[0] @ DFT @ phases[0]
    found = restricted_unitary(theta, v, p)(torch.eye(N, dtype=torch.complex128)).mT
    torch.testing.assert_close(found, product)
    torch.testing.assert_close(found @ found.mH, torch.eye(N, dtype=torch.complex128))


@pytest.mark.parametrize("N", [5, DENSE, DENSE + 1])
def test_urnn_applies_its_product_by_factors_or_multiplied_out(N):
    system = URnn(1, URnnConfig(N), rng(), dtype=D)
    h = noise(2, 2 * N)
    apply = restricted_unitary(system.theta, system.reflections, system.permutation)
    z = apply(torch.complex(*h.chunk(2, -1)))
    found = system.unitary()(h)
    torch.testing.assert_close(found, torch.cat([z.real, z.imag], -1))
    torch.testing.assert_close(found.norm(dim=1), h.norm(dim=1))


def test_urnn_without_bias_is_linear_and_uses_its_learned_first_state():
    system = filled(URnn(2, URnnConfig(4), rng()), b=torch.zeros(4))
    W, u = unitary_matrix(system).detach(), inputs()
    h = torch.complex(*system.h_0.detach().chunk(2))
    V = torch.complex(*system.V.detach().chunk(2))
    for x in u[:, 0]:
        h = W @ h + V @ x.to(torch.complex128)
    output, state = system(u)
    torch.testing.assert_close(state[0], torch.cat([h.real, h.imag]))
    # Learned, hence the same at every call, and with a gradient.
    assert torch.equal(system(u)[0], output)
    output[-1].sum().backward()
    assert system.h_0.grad.abs().max() > 0.1


def test_the_jacobian_of_urnn_is_radial_one_and_tangential_one_plus_b_over_modulus():
    b = torch.tensor([-0.2, 0.1, -5.0, 0.05])
    system = filled(URnn(2, URnnConfig(4), rng()), b=b)
    h, u = noise(8), noise(2, seed=1)
    z = system.unitary()(h) + system.V @ u
    modulus = torch.complex(*z.chunk(2)).abs()
    tangential = 1 + b / modulus
    alive = modulus + b > 0
    wanted = torch.cat([alive.to(D), torch.where(alive, tangential, 0)])
    sigma = torch.linalg.svdvals(jacrev(system.step)(h, u))
    torch.testing.assert_close(sigma, wanted.sort(descending=True).values)
    assert alive.tolist() == [True, True, False, True]


def test_skew_hermitian_entries_are_orthogonal_directions_of_length_root_two():
    basis = [skew_hermitian(e.view(3, 3)) for e in torch.eye(9, dtype=D)]
    for K in basis:
        assert torch.equal(K, -K.mH)
    gram = torch.tensor([[(a * b.conj()).sum().real for a in basis] for b in basis])
    torch.testing.assert_close(gram, 2 * torch.eye(9, dtype=D))


def full_capacity(N: int = 4) -> FullCapacityURnn:
    return FullCapacityURnn(2, FullCapacityURnnConfig(N), rng(), dtype=D)


def test_the_gradient_of_a_complex_matrix_is_torch_s_and_that_of_its_real_blocks():
    system, u = full_capacity(), inputs()
    W = system.recurrent_matrix().detach()
    free = W.clone().requires_grad_()
    real = torch.cat([torch.cat([W.real, -W.imag], 1), torch.cat([W.imag, W.real], 1)])
    real.requires_grad_()

    def loss(matrix: Tensor) -> Tensor:
        h = system.h_0.detach()
        for x in u:
            h = complex_modrelu(h @ matrix.mT + system.drive(x), system.b)
        return h.square().sum() + h[..., 0].sum()

    blocks = torch.cat(
        [torch.cat([free.real, -free.imag], 1), torch.cat([free.imag, free.real], 1)]
    )
    loss(blocks).backward()
    loss(real).backward()
    # A free real matrix has a gradient in four blocks; only their combination is G.
    (TL, TR), (BL, BR) = (row.split(4, 1) for row in real.grad.split(4))
    G = torch.complex(TL + BR, BL - TR)
    torch.testing.assert_close(free.grad, G)
    # And what the parameter K sees is A = G Wᴴ − W Gᴴ, by dL = −½⟨A, dK⟩.
    output, _ = system(u)
    (output[-1].square().sum() + output[-1, :, 0].sum()).backward()
    A = G @ W.mH - W @ G.mH
    directions = [skew_hermitian(e.view(4, 4)) for e in torch.eye(16, dtype=D)]
    wanted = torch.stack([-0.5 * (A.conj() * K).sum().real for K in directions])
    torch.testing.assert_close(system.K.grad.flatten(), wanted)


def test_a_cayley_step_descends_at_half_the_squared_norm_of_A():
    system, u, rate = full_capacity(), inputs(), 1e-6
    W = system.recurrent_matrix().detach()
    loss = system.eval()(u)[0].square().sum()
    loss.backward()
    torch.optim.SGD([system.K], lr=rate).step()
    A = skew_hermitian(system.K.detach()) / rate  # one step of SGD from 0 gives K = λA
    after = system(u)[0].square().sum()
    assert (after - loss).item() == pytest.approx(
        -rate / 2 * A.abs().square().sum().item(), rel=1e-4
    )
    # λ → 0: W moves by −λ A W.
    moved = (system.recurrent_matrix() - W) / rate
    torch.testing.assert_close(moved, -A @ W, rtol=1e-4, atol=1e-4)


def test_rebasing_waits_for_an_update_and_changes_no_output():
    system, u = full_capacity().train(), inputs()
    base = system.base.clone()
    system(u)
    assert torch.equal(system.base, base)  # a zero gradient, no update: no change
    with torch.no_grad():
        system.K.copy_(noise(4, 4))
    wanted = system.eval()(u)[0]
    assert torch.equal(system.base, base)  # evaluation moves nothing
    found = system.train()(u)[0]
    assert not torch.equal(system.base, base)
    assert bool((system.K == 0).all())
    torch.testing.assert_close(found, wanted)


MATRIX = {
    "exprnn": (ExpRnn, ExpRnnConfig, ExpRnn.recurrent_matrix),
    "scornn": (ScoRnn, ScoRnnConfig, ScoRnn.recurrent_matrix),
    "nnrnn": (NnRnn, NnRnnConfig, NnRnn.orthogonal_matrix),
    "urnn": (URnn, URnnConfig, unitary_matrix),
    "fc-urnn": (FullCapacityURnn, FullCapacityURnnConfig, FullCapacityURnn.recurrent_matrix),
}
# Only fc-urnn carries its matrix from update to update; the others make theirs anew each time, so
# that a hundred updates say nearly as much.
TRAINED = [
    pytest.param(name, n, marks=[pytest.mark.slow] if n == 1000 and name != "fc-urnn" else [])
    for name in MATRIX
    for n in (100, 1000)
    if (name, n) != ("fc-urnn", 100)
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "updates"), TRAINED)
def test_the_matrix_is_as_orthogonal_after_many_updates(name, updates, dtype):
    N, (make, config, matrix) = 16, MATRIX[name]
    system = make(2, config(N), rng(), dtype=dtype).train()
    optimizer = torch.optim.RMSprop(system.parameters(), lr=3e-3)
    u, target = noise(2, 4, 2).to(dtype), noise(4, system.output_size, seed=1).to(dtype)
    first = matrix(system).detach()
    for _ in range(updates):
        optimizer.zero_grad()
        (system.last(u) - target).square().mean().backward()
        optimizer.step()
    W = matrix(system).detach()
    assert (W - first).abs().max() > 0.1
    # An entry of W Wᴴ is a sum of N products; in each, W has the rounding of a few products more
    # (the squarings of exp, the factors of uRNN): 8 N eps, 1.5e-5 or 2.8e-14.
    assert (W @ W.mH - torch.eye(N)).abs().max() < 8 * N * torch.finfo(dtype).eps
    if name == "nnrnn":  # and it is this P that stands in W
        wanted = W @ system.schur_form() @ W.mT
        torch.testing.assert_close(system.recurrent_matrix(), wanted)


def test_sgd_at_zero_gradient_leaves_the_unitary_matrix():
    system = full_capacity()
    W = system.recurrent_matrix().detach()
    system.K.grad = torch.zeros_like(system.K)
    torch.optim.SGD([system.K], lr=1.0).step()
    assert torch.equal(system.recurrent_matrix(), W)
