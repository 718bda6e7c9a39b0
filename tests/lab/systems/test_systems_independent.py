"""IndRNN: units that see only their own past, plain, residual and dense."""

import pytest
import torch
from given_weights import filled, inputs, noise, rng
from torch.func import jacrev

from roann.lab.models.indrnn import (
    DenseIndRnn,
    DenseIndRnnConfig,
    IndependentScan,
    IndRnn,
    IndRnnConfig,
    ResidualIndRnn,
    ResidualIndRnnConfig,
)

D = torch.float64


def ind(**settings) -> IndRnn:
    settings = {"hidden_size": 4, "layers": 2, "horizon": 6, "batch_norm": False} | settings
    return IndRnn(2, IndRnnConfig(**settings), rng(), dtype=D).eval()


def test_independent_scan_has_the_gradients_of_the_plain_loop():
    d, u, h = noise(7, 3, 4), noise(4, seed=1), noise(3, 4, seed=2)
    leaves = [t.requires_grad_() for t in (d, u, h)]
    assert torch.autograd.gradcheck(IndependentScan.apply, leaves)
    states, before = [], h
    for step in d:
        before = torch.relu(step + u * before)
        states.append(before)
    plain, ours = torch.stack(states), IndependentScan.apply(*leaves)
    torch.testing.assert_close(plain, ours)
    weight = noise(7, 3, 4, seed=3)
    for a, b in zip(
        torch.autograd.grad((plain * weight).sum(), leaves),
        torch.autograd.grad((ours * weight).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_a_living_unit_is_a_geometric_sum():
    system = IndRnn(
        1, IndRnnConfig(hidden_size=1, layers=1, horizon=9, batch_norm=False), dtype=D
    ).eval()
    filled(system, W__0=torch.ones(1, 1), cells__0__u=torch.tensor([0.9], dtype=D))
    a = noise(9).abs()
    wanted = sum(0.9 ** (8 - t) * a[t] for t in range(9))
    assert system(a.view(9, 1, 1))[1].item() == pytest.approx(float(wanted), rel=1e-12)


def test_over_many_steps_a_layer_s_jacobian_is_the_power_of_u():
    system = ind(layers=1)
    filled(system, W__0=torch.zeros(4, 2), b__0=torch.ones(4))

    def run(h):
        for _ in range(5):
            h = system.step(h, torch.zeros(2, dtype=D))
        return h

    J = jacrev(run)(torch.rand(4, dtype=D, generator=rng()))
    torch.testing.assert_close(J, torch.diag(system.cells[0].u.detach() ** 5))


def test_u_is_bounded_at_every_use_and_projected_in_training():
    system = ind(magnitude=5.0, horizon=784)
    bound = 5 ** (1 / 784)
    assert bound == pytest.approx(1.002055, abs=1e-6)
    cell, u = system.cells[0], torch.tensor([2.0, -3.0, 0.5, 1.0], dtype=D)
    wanted = torch.tensor([bound, -bound, 0.5, 1.0], dtype=D)
    with torch.no_grad():
        cell.u.copy_(u)
    x = inputs()
    free = system(x)[0].detach()
    assert torch.equal(cell.u, u)  # evaluation moves no parameter, and still obeys the bound
    torch.testing.assert_close(cell.bounded(), wanted)
    system.train()(x)
    torch.testing.assert_close(cell.u.detach(), wanted)
    torch.testing.assert_close(system.eval()(x)[0], free)
    # At the bound the gradient is alive: the parameter can come back.
    system(x)[0].square().sum().backward()
    assert cell.u.grad[0].abs() > 0


def test_two_forwards_before_a_backward_are_allowed():
    system = ind().train()
    with torch.no_grad():
        system.cells[0].u.fill_(5.0)
    total = system(inputs())[0].sum() + system(inputs())[0].sum()
    total.backward()
    assert system.cells[0].u.grad is not None


@pytest.mark.parametrize(
    ("system", "config"),
    [
        (IndRnn, IndRnnConfig(horizon=100)),
        (ResidualIndRnn, ResidualIndRnnConfig(horizon=100)),
        (DenseIndRnn, DenseIndRnnConfig(horizon=100)),
    ],
)
def test_the_last_cell_starts_near_one_and_the_others_anywhere(system, config):
    made = system(1, config, rng())
    bound = 5 ** (1 / 100)
    *others, last = (cell.u.detach() for cell in made.cells)
    assert 1 / bound <= float(last.min())
    assert float(last.max()) <= bound
    rest = torch.cat(others)
    assert 0 <= float(rest.min()) < 0.05
    assert 0.95 < float(rest.max()) <= bound


def test_batch_norm_has_one_statistic_per_unit_over_batch_and_time():
    system = ind(layers=1, batch_norm=True, dropout=0.0).train()
    output, _ = system(noise(6, 5, 2))
    alive = output.flatten(0, 1).var(0, correction=0) > 0.5
    assert int(alive.sum()) >= 3
    flat = output.flatten(0, 1)[:, alive]
    torch.testing.assert_close(flat.mean(0), torch.zeros_like(flat[0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        flat.var(0, correction=0), torch.ones_like(flat[0]), rtol=1e-2, atol=0
    )
    assert output[0].mean(0).abs().max() > 0.1  # not step by step
    assert torch.equal(system.last(noise(6, 5, 2)), system(noise(6, 5, 2))[0][-1])


def test_dropout_has_one_mask_for_all_steps():
    torch.manual_seed(0)  # dropout draws from the global generator
    system = ind(layers=1, dropout=0.4).train()
    filled(system, W__0=torch.zeros(4, 2), b__0=torch.ones(4)).train()
    output, _ = system(noise(6, 50, 2))
    dropped = output == 0
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))
    assert 0.3 < float(dropped.double().mean()) < 0.5
    kept = system.eval()(noise(6, 50, 2))[0]
    torch.testing.assert_close(output[~dropped], (kept / 0.6)[~dropped])


def test_residual_and_dense_wiring():
    x = noise(2)
    config = ResidualIndRnnConfig(hidden_size=3, blocks=2, horizon=9, batch_norm=False)
    res = ResidualIndRnn(2, config, rng(), dtype=D).eval()
    y, relu = res.W[0] @ x + res.b[0], torch.relu
    for k in (1, 3):
        inner = relu(res.W[k] @ relu(y) + res.b[k])
        y = y + res.W[k + 1] @ inner + res.b[k + 1]
    torch.testing.assert_close(res.last(x[None, None])[0], relu(y))  # from rest, one step

    dense = DenseIndRnn(
        2,
        DenseIndRnnConfig(growth=2, blocks=(2,), first=1, horizon=9, batch_norm=False),
        rng(),
        dtype=D,
    ).eval()
    maps = list(zip(dense.W, dense.b, strict=True))
    assert [tuple(W.shape) for W, _ in maps] == [(2, 2), (8, 2), (2, 8), (8, 4), (2, 8), (3, 6)]
    y = relu(maps[0][0] @ x + maps[0][1])
    for (W_1, b_1), (W_2, b_2) in (maps[1:3], maps[3:5]):
        y = torch.cat([y, relu(W_2 @ relu(W_1 @ y + b_1) + b_2)])
    torch.testing.assert_close(dense.last(x[None, None])[0], relu(maps[5][0] @ y + maps[5][1]))


def test_ind_rnn_needs_a_horizon():
    with pytest.raises(ValueError, match="horizon"):
        IndRnn(1, IndRnnConfig())


def test_the_published_dense_network_ends_in_84_units():
    sizes = DenseIndRnn(1, DenseIndRnnConfig(horizon=9)).sizes
    assert [sizes[k] for k in (0, 1, 2, 17, -1)] == [96, 64, 16, 112, 84]
