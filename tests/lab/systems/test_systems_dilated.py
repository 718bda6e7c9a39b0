"""Dilated RNN, dilated CNN and BN-LSTM."""

import pytest
import torch
from given_weights import F, filled, inputs, noise, rng
from torch import nn

from roann.lab.models.bn_lstm import EPS, RATE, BnLstm, BnLstmConfig
from roann.lab.models.dilated import DilatedCnn, DilatedCnnConfig, DilatedRnn, DilatedRnnConfig
from roann.lab.models.lstm import Lstm, LstmConfig

D = torch.float64
TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def dilated(dilations: tuple[int, ...], cell: str = "rnn", N: int = 3) -> DilatedRnn:
    system = filled(DilatedRnn(2, DilatedRnnConfig(N, dilations, cell), rng()))
    for k, p in enumerate(p for p in system.parameters() if p.requires_grad):
        p.data.copy_(2 * F(k, *p.shape))
    return system


@pytest.mark.parametrize("cell", TORCH)
def test_without_dilation_it_is_torch_s_stack(cell):
    system = dilated((1, 1), cell)
    stack = TORCH[cell](2, 3, 2, dtype=D)
    with torch.no_grad():
        for level, layer in enumerate(system.layers):
            for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                own = getattr(layer.core, f"{name}_l0")
                getattr(stack, f"{name}_l{level}").copy_(own)
    torch.testing.assert_close(system(inputs(3))[0], stack(inputs(3))[0])


@pytest.mark.parametrize("cell", TORCH)
@pytest.mark.parametrize("T", [1, 2, 3, 7, 9])
def test_a_layer_of_dilation_s_is_s_networks_over_every_s_th_step(cell, T):
    s = 3
    fast, slow = dilated((s,), cell), dilated((1,), cell)
    u = noise(T, 2, 2)
    # The top layer's newest step is the last third of the output.
    found = fast(u)[0].chunk(s, -1)[-1]
    for j in range(min(s, T)):
        torch.testing.assert_close(found[j::s], slow(u[j::s])[0])


def test_with_a_first_dilation_above_one_the_last_steps_are_read_oldest_first():
    system, u = dilated((2, 4)), noise(5, 1, 2)
    output, state = system(u)
    newest = output.chunk(2, -1)[1]
    torch.testing.assert_close(output.chunk(2, -1)[0][1:], newest[:-1])
    assert bool((output.chunk(2, -1)[0][0] == 0).all())
    torch.testing.assert_close(system.read(state), output[-1])


def test_a_dilation_may_exceed_the_sequence():
    system, u = dilated((1, 8)), noise(3, 1, 2)
    assert system(u)[0].shape == (3, 1, 3)
    second = system.layers[1]
    zero = torch.zeros(1, 3, dtype=D)
    first = system.layers[0](u)[0]
    torch.testing.assert_close(system(u)[0], torch.stack([second.step(zero, y) for y in first]))


@pytest.mark.parametrize("make", [dilated, lambda s: filled(cnn(s))], ids=["rnn", "cnn"])
def test_outputs_do_not_look_ahead(make):
    system = make((1, 2, 4))
    u = noise(9, 1, 2).requires_grad_()
    (g,) = torch.autograd.grad(system(u)[0][4].sum(), u)
    assert bool((g[:5] != 0).any())
    assert bool((g[5:] == 0).all())


def test_dilated_cells_train_one_bias():
    system = dilated((1, 2), "lstm")
    frozen = [name for name, p in system.named_parameters() if not p.requires_grad]
    assert frozen == [f"layers.{k}.core.bias_hh_l0" for k in (0, 1)]
    assert all(bool((system.get_parameter(name) == 0).all()) for name in frozen)


def test_dilations_are_checked():
    for bad in ((), (4, 2)):
        with pytest.raises(ValueError, match="dilations"):
            DilatedRnnConfig(3, bad)
    with pytest.raises(ValueError, match="dilations"):
        DilatedCnnConfig(3, ())
    with pytest.raises(ValueError, match="dilations"):
        DilatedCnnConfig(3, (1, 0))


def cnn(dilations: tuple[int, ...], nonlinearity: str = "tanh") -> DilatedCnn:
    return DilatedCnn(2, DilatedCnnConfig(3, dilations, nonlinearity), rng()).double()


def test_dilated_cnn_is_a_causal_convolution():
    system, u = cnn((1, 3, 2)), noise(11, 2, 2)
    y = u.permute(1, 2, 0)
    for s, K, b in zip(system.dilations, system.K, system.b, strict=True):
        now, past = K.chunk(2, 1)
        y = nn.functional.pad(y, (s, 0))
        y = torch.tanh(nn.functional.conv1d(y, torch.stack([past, now], -1), b, dilation=s))
    torch.testing.assert_close(system(u)[0], y.permute(2, 0, 1))


def test_an_impulse_reaches_exactly_the_subset_sums_of_the_dilations():
    system = cnn((1, 3, 5), "relu")
    for p in system.parameters():
        nn.init.constant_(p, 0.0 if p.dim() == 1 else 1.0)
    u = torch.zeros(12, 1, 2, dtype=D)
    u[1] = 1
    reached = (system(u)[0][:, 0, 0] > 0).nonzero().flatten().tolist()
    assert reached == sorted({1 + a + b + c for a in (0, 1) for b in (0, 3) for c in (0, 5)})


def test_the_default_sees_all_of_psmnist_and_reads_its_cone_alone():
    system = DilatedCnn(1, DilatedCnnConfig(4, nonlinearity="tanh"), rng()).double()
    u = noise(784, 1, 1).requires_grad_()
    (g,) = torch.autograd.grad(system.last(u).sum(), u)
    assert bool((g != 0).all())
    torch.testing.assert_close(system.last(u), system(u)[0][-1])
    seen = []
    layer = system._layer
    system._layer = lambda level, now, past: (seen.append(len(now)), layer(level, now, past))[1]
    system.last(u)
    assert sum(seen) < 784 * 10 / 5


# BN-LSTM ---------------------------------------------------------------------------------------


def bn_lstm(max_length: int = 6, N: int = 4) -> BnLstm:
    system = filled(BnLstm(2, BnLstmConfig(N, max_length), rng()))
    return filled(
        system,
        gamma_h=0.5 + F(1, 4 * N),
        gamma_x=0.5 + F(2, 4 * N),
        gamma_c=0.6 + F(3, N),
        beta_c=F(4, N),
        b=F(5, 4 * N),
        x_0=F(6, 2 * N),
    )


def test_bn_lstm_in_evaluation_is_an_lstm_with_scaled_rows_and_its_own_cell_norm():
    system, N = bn_lstm(), 4
    generator = rng()
    for part in (system.norm_h, system.norm_x, system.norm_c):
        part.mean.normal_(generator=generator)
        part.var.uniform_(0.5, 2, generator=generator)
    u = inputs(3)
    output, _ = system(u)
    lstm = Lstm(2, LstmConfig(N), rng()).double()
    order = torch.cat([torch.arange(k * N, (k + 1) * N) for k in (1, 0, 3, 2)])  # i, f, g, o
    h, c = system.x_0.expand(3, -1).chunk(2, -1)
    for t in range(6):
        rows_h = system.gamma_h / torch.sqrt(system.norm_h.var[t] + EPS)
        rows_x = system.gamma_x / torch.sqrt(system.norm_x.var[t] + EPS)
        shift = system.b - rows_h * system.norm_h.mean[t] - rows_x * system.norm_x.mean[t]
        with torch.no_grad():
            lstm.core.weight_hh_l0.copy_((rows_h.unsqueeze(1) * system.W_h)[order])
            lstm.core.weight_ih_l0.copy_((rows_x.unsqueeze(1) * system.W_x)[order])
            lstm.core.bias_ih_l0.copy_(shift[order])
            lstm.core.bias_hh_l0.zero_()
        plain_h, c_next = lstm.step(torch.cat([h, c], -1), u[t]).chunk(2, -1)
        gate = plain_h / torch.tanh(c_next)
        scale = system.gamma_c / torch.sqrt(system.norm_c.var[t] + EPS)
        c = c_next
        h = gate * torch.tanh(scale * (c - system.norm_c.mean[t]) + system.beta_c)
        torch.testing.assert_close(output[t], h)


def test_bn_lstm_normalises_over_the_batch_at_each_step():
    system, u = bn_lstm().train(), noise(6, 5, 2)
    z = u @ system.W_x.mT
    found = system.norm_x.sequence(z, torch.ones(16, dtype=D))
    mean, var = z.mean(1, keepdim=True), z.var(1, keepdim=True, correction=0)
    torch.testing.assert_close(found, (z - mean) / torch.sqrt(var + EPS))


def test_bn_lstm_keeps_statistics_step_by_step_and_reuses_the_last():
    system, u = bn_lstm(max_length=3).train(), noise(5, 7, 2)
    z = u @ system.W_x.mT
    with torch.no_grad():
        system(u)
    mean, var = z.mean(1), z.var(1)
    torch.testing.assert_close(system.norm_x.mean[:2], RATE * mean[:2])
    torch.testing.assert_close(system.norm_x.var[:2], (1 - RATE) + RATE * var[:2])
    last = 0
    for t in (2, 3, 4):  # the last row goes on averaging over all later steps
        last = (1 - RATE) * last + RATE * mean[t]
    torch.testing.assert_close(system.norm_x.mean[2], last)
    before = {k: v.clone() for k, v in system.state_dict().items()}
    system.eval()(noise(9, 2, 2))
    for key, value in system.state_dict().items():
        assert torch.equal(value, before[key]), key


def test_bn_lstm_treats_samples_alike_and_couples_them_in_training():
    system, u = bn_lstm().train(), noise(6, 5, 2)
    order = torch.randperm(5, generator=rng())
    output = system(u)[0]
    torch.testing.assert_close(system(u[:, order])[0], output[:, order])
    other = u.clone()
    other[:, 1:] += 1
    other[:, 1:] *= noise(4, 2, seed=1)
    assert (system(other)[0][:, 0] - output[:, 0]).abs().max() > 1e-3
    system.eval()
    torch.testing.assert_close(system(u[:, :1])[0], system(u)[0][:, :1])


def test_bn_lstm_refuses_a_batch_of_one_in_training():
    with pytest.raises(ValueError, match="more than 1 value"):
        bn_lstm().train()(noise(6, 1, 2))
    with pytest.raises(ValueError, match="max_length"):
        BnLstm(2, BnLstmConfig(4))


def test_bn_lstm_first_values():
    system = BnLstm(2, BnLstmConfig(4, 6), rng())
    f, i, o, g = system.W_h.detach().split(4)
    assert torch.equal(g, torch.eye(4))
    rest = torch.cat([f, i, o])
    torch.testing.assert_close(rest.mT @ rest, torch.eye(4), atol=1e-6, rtol=0)
    assert system.b.detach().tolist() == [1.0] * 4 + [0.0] * 12
    gammas = torch.cat([system.gamma_h, system.gamma_x, system.gamma_c]).detach()
    assert torch.equal(gammas, torch.full_like(gammas, 0.1))
    torch.testing.assert_close(
        system.W_x.mT @ system.W_x, torch.eye(2), atol=1e-6, rtol=0, check_dtype=False
    )


def test_bn_lstm_training_gradients():
    system, u = bn_lstm(max_length=2).train(), noise(3, 4, 2).requires_grad_()
    parameters = tuple(system.parameters())
    assert torch.autograd.gradcheck(lambda *_: system(u)[0], (u, *parameters))
