"""Systems with a memory of their own: LMU, NRU, Shuffling RNN, LRU."""

import math

import numpy as np
import pytest
import torch
from given_weights import F, filled, noise, rng
from torch import nn
from torch.func import jacrev

from roann.lab.models.lmu import Lmu, LmuConfig, delay_network
from roann.lab.models.lru import LinearRecurrence, Lru, LruConfig
from roann.lab.models.nru import Nru, NruConfig
from roann.lab.models.recurrence import Source
from roann.lab.models.shuffling import ShufflingRnn, ShufflingRnnConfig

D = torch.float64


# LMU -------------------------------------------------------------------------------------------


def continuous(d: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """A and B entry by entry, as the paper prints them."""
    A = [
        [(2 * i + 1) / theta * (-1 if i < j else (-1) ** (i - j + 1)) for j in range(d)]
        for i in range(d)
    ]
    B = [(2 * i + 1) / theta * (-1) ** i for i in range(d)]
    return np.array(A), np.array(B)


@pytest.mark.parametrize(("d", "theta"), [(1, 4.0), (3, 4.0), (12, 50.0)])
def test_lmu_matrices_hold_the_input_between_steps(d, theta):
    A, B = continuous(d, theta)
    values, vectors = np.linalg.eig(A)
    held = (vectors * np.exp(values)) @ np.linalg.inv(vectors)
    A_bar, B_bar = (matrix.numpy() for matrix in delay_network(d, theta))
    np.testing.assert_allclose(A_bar, held.real, atol=1e-10)
    np.testing.assert_allclose(B_bar, np.linalg.solve(A, (held.real - np.eye(d)) @ B), atol=1e-10)
    e_0 = np.eye(d)[0]
    np.testing.assert_allclose(A @ e_0, -B)
    np.testing.assert_allclose(A_bar @ e_0 + B_bar, e_0, atol=1e-13)
    assert math.log(np.linalg.det(A_bar)) == pytest.approx(-(d**2) / theta)


def test_lmu_of_order_one_and_two_in_closed_form():
    A_bar, B_bar = delay_network(1, 4.0)
    assert A_bar.item() == pytest.approx(math.exp(-1 / 4), abs=1e-15)
    assert B_bar.item() == pytest.approx(1 - math.exp(-1 / 4), abs=1e-15)
    found = torch.linalg.eigvals(delay_network(2, 5.0)[0])
    wanted = torch.exp(torch.tensor([-2 + 1j * math.sqrt(2), -2 - 1j * math.sqrt(2)]) / 5)
    assert (found - wanted).abs().min() < 1e-7
    torch.testing.assert_close(found.abs(), wanted.abs().to(D), rtol=0, atol=1e-7)


def test_lmu_of_the_published_size_is_stable_where_euler_is_not():
    A_bar, _ = delay_network(256, 784.0)
    assert torch.linalg.eigvals(A_bar).abs().max().item() == pytest.approx(0.97588, abs=1e-5)
    assert torch.linalg.slogdet(A_bar).logabsdet.item() == pytest.approx(-(256**2) / 784, rel=1e-9)
    euler = np.eye(256) + continuous(256, 784.0)[0]
    # Far outside the circle; how far, float64 cannot say: the matrix is too far from normal.
    assert np.abs(np.linalg.eigvals(euler)).max() > 2


def test_lmu_buffers_are_computed_in_double_precision_and_then_cast():
    system = Lmu(1, LmuConfig(3, 32, theta=100.0), rng())
    A_bar, B_bar = delay_network(32, 100.0)
    assert torch.equal(system.A_bar, A_bar.float())
    assert torch.equal(system.B_bar, B_bar.float())


def test_lmu_memory_delays_its_input_by_the_window():
    d, theta, T = 12, 50, 300
    system = Lmu(1, LmuConfig(2, d, theta=float(theta)), rng(), dtype=D)
    t = torch.arange(T, dtype=D)
    u = torch.sin(2 * math.pi * t / 80)
    x, memory = system.initial_state(1), []
    for value in u:
        x = system.step(x, value.view(1, 1))
        memory.append(x[0, 2:])
    # Shifted Legendre polynomials at r = 1 are all 1: the oldest end of the window.
    oldest = torch.stack(memory).sum(1).detach()
    exact = torch.sin(2 * math.pi * (t - (theta - 0.5)) / 80)  # held inputs: half a step less
    late = slice(3 * theta, None)
    at_half = (oldest - exact)[late].abs().max().item()
    errors = {
        lag: (oldest[late] - u[3 * theta - lag : T - lag]).abs().max().item() for lag in (49, 50)
    }
    assert errors == {49: pytest.approx(0.040, abs=1e-3), 50: pytest.approx(0.038, abs=1e-3)}
    assert at_half < 0.005
    # The newest end, r = 0, where the polynomials are (−1)^i, is the input of this step.
    signs = torch.tensor([(-1.0) ** i for i in range(d)], dtype=D)
    newest = (torch.stack(memory) * signs).sum(1).detach()
    assert (newest - u)[late].abs().max() < 0.06


def test_lmu_of_a_constant_input_is_the_constant():
    system = Lmu(1, LmuConfig(2, 6, theta=20.0), rng(), dtype=D)
    _, state = system(torch.full((400, 1, 1), 0.7, dtype=D))
    torch.testing.assert_close(state[0, 2:], 0.7 * torch.eye(6, dtype=D)[0], rtol=0, atol=1e-9)


def test_lmu_folded_is_the_three_equations_one_after_the_other():
    system = Lmu(2, LmuConfig(4, 3, theta=5.0), rng(), dtype=D)
    for k, p in enumerate(system.parameters()):
        filled(system)
        p.data.copy_(F(k, *p.shape))
    h, m, x = F(7, 4), F(8, 3), F(9, 2)
    u = system.e_x @ x + system.e_h @ h + system.e_m @ m
    m_next = system.A_bar @ m + system.B_bar * u
    pre = system.W_x @ x + system.W_h @ h + system.W_m @ m_next
    found = system.step(torch.cat([h, m]), x)
    torch.testing.assert_close(found, torch.cat([torch.tanh(pre), m_next]))
    # And the Jacobian is the one in closed form.
    slope = torch.diag(1 - torch.tanh(pre) ** 2)
    mm = system.A_bar + torch.outer(system.B_bar, system.e_m)
    mh = torch.outer(system.B_bar, system.e_h)
    top = torch.cat([slope @ (system.W_h + system.W_m @ mh), slope @ system.W_m @ mm], 1)
    J = torch.cat([top, torch.cat([mh, mm], 1)])
    torch.testing.assert_close(jacrev(system.step)(torch.cat([h, m]), x), J)


def test_lmu_needs_a_window():
    with pytest.raises(ValueError, match=r"theta.*LmuConfig.theta"):
        Lmu(1, LmuConfig(3, 4))


# NRU -------------------------------------------------------------------------------------------


def nru() -> Nru:
    return filled(Nru(2, NruConfig(3, memory_size=16, heads=4), rng()))


def directions(u: torch.Tensor) -> torch.Tensor:
    """The four rows of sixteen, of 5-norm 1, from sixteen numbers: as the equations say it."""
    rows = torch.outer(u[:8], u[8:]).view(4, 16)
    return rows / rows.abs().pow(5).sum(1, keepdim=True) ** 0.2


def test_nru_step_head_by_head():
    system, x, u = nru(), noise(19), noise(2, seed=1)
    h, m = x.split([3, 16])
    h = torch.relu(system.W_x @ u + system.W_h @ torch.cat([h, m]) + system.b_h)
    q = system.W_q @ torch.cat([h, m]) + system.b_q
    write, erase, alpha, beta = torch.split(q, [16, 16, 4, 4])
    for i in range(4):
        m = m + (alpha[i] * directions(write)[i] - beta[i] * directions(erase)[i]) / 4
    torch.testing.assert_close(system.step(x, u), torch.cat([h, m]))


def test_nru_gradient_is_finite_where_a_direction_vanishes():
    u = torch.zeros(16, dtype=D, requires_grad=True)
    strength = torch.ones(4, dtype=D, requires_grad=True)
    change = nru().change(u, strength)
    change.sum().backward()
    assert bool((change == 0).all())
    assert bool(u.grad.isfinite().all() and strength.grad.isfinite().all())


def test_nru_with_equal_writing_and_erasing_keeps_its_memory():
    system = nru()
    with torch.no_grad():
        for p in (system.W_q, system.b_q):
            p[16:32] = p[:16]
            p[36:] = p[32:36]
    x = noise(4, 19)
    _, after = system(noise(20, 4, 2, seed=1), x)
    torch.testing.assert_close(after[:, 3:], x[:, 3:])


def test_nru_outputs_are_those_of_every_sample_at_every_step():
    system = nru()
    u = noise(5, 4, 2)
    output, _ = system(u)
    assert output.shape == (5, 4, 3)
    for b in range(4):
        torch.testing.assert_close(output[:, b], system(u[:, b : b + 1])[0][:, 0])


def test_nru_refuses_a_memory_that_is_not_square():
    for memory, heads in ((255, 4), (9, 4)):
        with pytest.raises(ValueError, match=rf"memory_size.*square.*{memory} × {heads}"):
            NruConfig(memory_size=memory, heads=heads)


# Shuffling RNN ---------------------------------------------------------------------------------


def shuffling(N: int = 5) -> ShufflingRnn:
    return filled(ShufflingRnn(2, ShufflingRnnConfig(N, 3, 2), rng()))


def silent(system: ShufflingRnn) -> ShufflingRnn:
    nn.init.zeros_(system.W_r[-1])
    nn.init.zeros_(system.b_r[-1])
    return system


def test_shuffling_without_writing_is_a_cycle_of_n_steps():
    system, h = silent(shuffling()), noise(2, 5).abs()
    output, last = system(torch.zeros(10, 2, 2, dtype=D), h)
    assert torch.equal(output[4], h)
    assert torch.equal(last, h)
    # One unit further at every step, from i to i + 1.
    impulse = torch.eye(5, dtype=D)[None, 1]
    assert system(torch.zeros(2, 1, 2, dtype=D), impulse)[0][:, 0].argmax(-1).tolist() == [2, 3]


def test_shuffling_adds_what_it_writes_where_nothing_is_cut():
    system, h = shuffling(), torch.full((5,), 10.0, dtype=D)
    u = noise(2)
    torch.testing.assert_close(system.step(h, u).sum() - h.sum(), system.drive(u).sum())


def test_shuffling_writes_a_gated_network_of_the_input():
    system, u = shuffling(), noise(2)
    y = torch.relu(system.W_r[0] @ u + system.b_r[0])
    y = torch.relu(system.W_r[1] @ y + system.b_r[1])
    y = system.W_r[2] @ y + system.b_r[2]
    gate = torch.sigmoid(system.W_s @ u + system.b_s)
    torch.testing.assert_close(system.drive(u), y * gate)


def test_shuffling_jacobian_over_many_steps_is_a_masked_shift():
    system, u, h = shuffling(), noise(3, 2), noise(5).abs()

    def run(h):
        for value in u:
            h = system.step(h, value)
        return h

    J = jacrev(run)(h)
    assert set(J.flatten().tolist()) <= {0.0, 1.0}
    shift = torch.eye(5, dtype=D).roll(3, 0)
    assert torch.equal(J, (run(h) > 0).to(D).unsqueeze(1) * shift * J.sum(1, keepdim=True))
    assert int(J.sum()) > 0


# LRU -------------------------------------------------------------------------------------------


def test_lru_is_a_convolution_with_powers_of_its_eigenvalues():
    unit = LinearRecurrence(2, 3, 0.5, 0.9, Source(rng(), dtype=D))
    x = noise(6, 1, 2)
    lam, gain = unit.eigenvalues(), unit.gamma.exp()
    B, C = torch.complex(*unit.B), torch.complex(*unit.C)
    y, h = unit(x, torch.zeros(1, 6, dtype=D))
    for t in range(6):
        state = sum(lam ** (t - s) * gain * (B @ x[s, 0].to(B.dtype)) for s in range(t + 1))
        torch.testing.assert_close(y[t, 0], (C @ state).real + unit.D * x[t, 0])
    torch.testing.assert_close(h[0], torch.cat([state.real, state.imag]))


def test_lru_starts_in_its_ring_with_inputs_normalised():
    unit = LinearRecurrence(1, 5000, 0.5, 0.9, Source(rng(), dtype=D))
    square = unit.eigenvalues().detach().abs().square()
    assert 0.25 <= float(square.min()) < 0.255
    assert 0.805 < float(square.max()) <= 0.81
    assert float(square.mean()) == pytest.approx((0.25 + 0.81) / 2, abs=0.01)
    torch.testing.assert_close(unit.gamma.exp().square(), 1 - square)


def test_lru_jacobian_of_a_unit_is_its_eigenvalues():
    system = Lru(2, LruConfig(3, 2, 1), rng(), dtype=D)
    J = jacrev(system.step)(noise(7), noise(2, seed=1))
    lam = system.blocks[0].unit.eigenvalues()
    wanted = torch.cat([lam.abs(), lam.abs()]).sort(descending=True).values
    torch.testing.assert_close(torch.linalg.svdvals(J[3:, 3:]), wanted)
    assert bool((J[:, :3] == 0).all())  # nothing depends on the last output
