"""The models of the paper's own figures: pairs, limits, initialisations, golden vectors."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch.func import jacrev
from torch.nn.functional import linear

from roann.filters import FILTERS
from roann.lab.models import MODELS, build_model
from roann.lab.models.fnn import Fnn, FnnConfig
from roann.lab.models.gru import Gru, GruConfig
from roann.lab.models.heads import HEAD_INITS, linear_head
from roann.lab.models.lstm import Lstm, LstmConfig
from roann.lab.models.roa import EyeRnnConfig, RoaFnnConfig, RoaRnnConfig
from roann.lab.models.vanilla_rnn import VanillaRnn
from roann.lab.models.vanilla_rnn import VanillaRnnConfig as RnnConfig

SEQUENCE = SimpleNamespace(input_size=2, output_size=3, horizon=40, readout="all")
MOON = SimpleNamespace(input_size=2, output_size=1, horizon=None, readout="none")


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("filter", FILTERS)
def test_all_filters_of_a_seed_share_every_parameter(filter):
    roa = build_model("roa-rnn", RoaRnnConfig(8, filter=filter), SEQUENCE, seed=5)
    eye = build_model("eye-rnn", EyeRnnConfig(8), SEQUENCE, seed=5)
    ours, theirs = dict(roa.named_parameters()), dict(eye.named_parameters())
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert torch.equal(ours[key], theirs[key]), key
    O, identity = roa.system.rnn.filter_l0.to_dense(), eye.system.rnn.filter_l0.to_dense()
    assert torch.equal(identity, torch.eye(8))
    assert torch.equal(O, identity) == (filter in ("identity", "still"))


@pytest.mark.parametrize("filter", FILTERS)
def test_all_filters_of_a_deep_network_share_every_parameter(filter):
    def made(name):
        return build_model("roa-fnn", RoaFnnConfig(6, filter=name), MOON, seed=5)

    for p, q in zip(made(filter).parameters(), made("qr").parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_filter_does_not_depend_on_how_the_weights_are_drawn():
    made = [
        build_model("roa-rnn", RoaRnnConfig(6, init=init), task, seed=1)
        for init in ("normal", "orthogonal")
        for task in (SEQUENCE, SimpleNamespace(**vars(SEQUENCE) | {"input_size": 1}))
    ]
    first = made[0].system.rnn.filter_l0.to_dense()
    for model in made[1:]:
        assert torch.equal(model.system.rnn.filter_l0.to_dense(), first)


def test_alpha_is_rho_over_the_task_s_horizon_unless_one_is_named():
    named = build_model("roa-rnn", RoaRnnConfig(4, rho=2.0, horizon=8), SEQUENCE, 0)
    asked = build_model("roa-rnn", RoaRnnConfig(4, rho=2.0), SEQUENCE, 0)
    deep = build_model("roa-fnn", RoaFnnConfig(50, rho=5.0), MOON, 0)
    assert named.system.rnn.alpha == 2.0 / 8
    assert asked.system.rnn.alpha == 2.0 / 40
    assert deep.net.alpha == 5.0 / 49


@pytest.mark.parametrize("nonlinearity", ["relu", "tanh"])
def test_with_alpha_one_a_roa_rnn_is_a_vanilla_rnn(nonlinearity):
    config = RoaRnnConfig(6, rho=40.0, nonlinearity=nonlinearity)
    roa = build_model("roa-rnn", config, SEQUENCE, 0).system.double()
    vanilla = VanillaRnn(2, RnnConfig(6, nonlinearity), rng()).double()
    with torch.no_grad():
        vanilla.core.weight_ih_l0.copy_(roa.rnn.weight_ih_l0)
        vanilla.core.weight_hh_l0.copy_(roa.rnn.weight_hh_l0)
        vanilla.core.bias_ih_l0.copy_(roa.rnn.bias_l0)
        vanilla.core.bias_hh_l0.zero_()
    u = torch.randn(5, 3, 2, generator=rng(), dtype=torch.float64)
    torch.testing.assert_close(roa(u)[0], vanilla(u)[0])


def test_with_alpha_one_a_roa_fnn_is_a_plain_one():
    roa = build_model("roa-fnn", RoaFnnConfig(6, 2, rho=5.0), MOON, 0).double()
    plain = Fnn([2, 2, 2, 2, 2, 1], FnnConfig(6, 2), rng()).double()
    with torch.no_grad():
        for k, layer in enumerate(plain.maps[:-1]):
            layer.weight.copy_(roa.net.weight_0[k])
            layer.bias.copy_(roa.net.bias_0[k])
        plain.maps[-1].weight.copy_(roa.net.weight_1[0])
        plain.maps[-1].bias.copy_(roa.net.bias_1[0])
    x = torch.randn(7, 2, generator=rng(), dtype=torch.float64)
    torch.testing.assert_close(roa(x), plain(x))


def test_recycling_uses_one_filter_for_all_square_maps():
    fresh = build_model("roa-fnn", RoaFnnConfig(6, 2), MOON, 0).net.filter_0.to_dense()
    shared = build_model("roa-fnn", RoaFnnConfig(6, 2, recycle=True), MOON, 0).net
    assert fresh.shape == (4, 2, 2)
    assert not torch.equal(fresh[0], fresh[1])
    assert shared.filter_0.to_dense().shape == (2, 2)


def test_the_paper_s_networks_start_from_standard_normal_numbers():
    drawn = [
        build_model("roa-rnn", RoaRnnConfig(100), SEQUENCE, 0),
        build_model("eye-rnn", EyeRnnConfig(100), SEQUENCE, 1),
        build_model("roa-fnn", RoaFnnConfig(2000), MOON, 2),
        build_model("fnn", FnnConfig(3, 4000), MOON, 3),
    ]
    for model in drawn:
        values = torch.cat([p.detach().flatten() for p in model.parameters()])
        n = len(values)
        assert abs(float(values.mean())) < 5 / math.sqrt(n)
        assert abs(float(values.var()) - 1) < 5 * math.sqrt(2 / n)


@pytest.mark.parametrize(
    ("name", "config", "gates"),
    [("vanilla-rnn", RnnConfig(9), 1), ("lstm", LstmConfig(9), 4), ("gru", GruConfig(9), 3)],
)
def test_baselines_start_orthogonal_gate_by_gate_and_else_uniform(name, config, gates):
    model = build_model(name, config, SEQUENCE, 0)
    core = model.system.core
    hidden = core.weight_hh_l0.detach()
    assert hidden.shape == (9 * gates, 9)
    for W in hidden.split(9):
        torch.testing.assert_close(W @ W.T, torch.eye(9), atol=1e-5, rtol=0)
    assert len({W.sum().item() for W in hidden.split(9)}) == gates
    others = [core.weight_ih_l0, core.bias_ih_l0, core.bias_hh_l0, *model.head.parameters()]
    values = torch.cat([p.detach().flatten() for p in others])
    assert float(values.abs().max()) <= 1 / 3
    assert float(values.abs().max()) > 0.9 / 3
    assert bool((values < 0).any())


def F(k: int, *shape: int) -> torch.Tensor:
    n = torch.arange(math.prod(shape), dtype=torch.float64)
    return (0.4 * torch.sin(k + n)).reshape(shape)


def drive() -> torch.Tensor:
    t, j = torch.arange(6, dtype=torch.float64), torch.arange(2, dtype=torch.float64)
    return torch.cos(0.5 * t[:, None] + j).unsqueeze(1)


def filled(system, gates: int):
    system = system.double()
    with torch.no_grad():
        for k, name in enumerate(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")):
            parameter = getattr(system.core, name)
            parameter.copy_(F(k + 1, *parameter.shape))
    assert system.core.weight_hh_l0.shape == (4 * gates, 4)
    return system


GOLDEN = {
    "lstm": (
        lambda: filled(Lstm(2, LstmConfig(4), rng()), 4),
        [
            *(-0.227999969, -0.119058049, 0.145609816, 0.188151356),
            *(-0.494630066, -0.407053342, 0.361832285, 0.426189627),
        ],
    ),
    "gru": (
        lambda: filled(Gru(2, GruConfig(4), rng()), 3),
        [-0.233701539, -0.349899671, 0.340466733, 0.655432201],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_vectors(name):
    make, wanted = GOLDEN[name]
    _, state = make()(drive())
    assert state[0].tolist() == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize(
    ("nonlinearity", "wanted"),
    [
        ("tanh", [-0.196025202, 0.059404077, -0.306072662, -0.562434614]),
        ("relu", [0, 0.281087636, 0, 0]),
    ],
)
def test_golden_vectors_of_the_vanilla_rnn(nonlinearity, wanted):
    system = VanillaRnn(2, RnnConfig(4, nonlinearity), rng()).double()
    with torch.no_grad():
        system.core.weight_hh_l0.copy_(F(1, 4, 4))
        system.core.weight_ih_l0.copy_(F(2, 4, 2))
        system.core.bias_ih_l0.copy_(F(3, 4))
        system.core.bias_hh_l0.zero_()
    output, state = system(drive())
    assert state[0].tolist() == pytest.approx(wanted, abs=1e-9)
    if nonlinearity == "relu":
        assert output.sum().item() == pytest.approx(2.431909852, abs=1e-9)


def test_the_step_jacobian_of_the_vanilla_rnn_is_D_W():
    system = VanillaRnn(2, RnnConfig(4, "tanh"), rng()).double()
    x, u = F(5, 4), F(6, 2)
    D = torch.diag(1 - system.step(x, u) ** 2)
    torch.testing.assert_close(jacrev(system.step)(x, u), D @ system.core.weight_hh_l0)


def test_the_step_jacobian_of_the_lstm_is_its_closed_form():
    system = filled(Lstm(2, LstmConfig(4), rng()), 4)
    x, u = F(5, 8), F(6, 2)
    core, (h, c) = system.core, x.chunk(2)
    y = linear(u, core.weight_ih_l0, core.bias_ih_l0)
    y = y + linear(h, core.weight_hh_l0, core.bias_hh_l0)
    i, f, g, o = (
        s(part)
        for s, part in zip(
            (torch.sigmoid, torch.sigmoid, torch.tanh, torch.sigmoid), y.chunk(4), strict=True
        )
    )
    W_i, W_f, W_g, W_o = core.weight_hh_l0.split(4)
    t = torch.tanh(f * c + i * g)
    K = torch.diag(c * f * (1 - f)) @ W_f + torch.diag(g * i * (1 - i)) @ W_i
    K = K + torch.diag(i * (1 - g**2)) @ W_g
    through = torch.diag(o * (1 - t**2))
    top = torch.cat([torch.diag(t * o * (1 - o)) @ W_o + through @ K, through @ torch.diag(f)], 1)
    J = torch.cat([top, torch.cat([K, torch.diag(f)], 1)])
    torch.testing.assert_close(jacrev(system.step)(x, u), J)


def test_the_step_jacobian_of_the_gru_is_its_closed_form():
    system = filled(Gru(2, GruConfig(4), rng()), 3)
    h, u = F(5, 4), F(6, 2)
    core = system.core
    r_u, z_u, n_u = linear(u, core.weight_ih_l0, core.bias_ih_l0).chunk(3)
    r_h, z_h, n_h = linear(h, core.weight_hh_l0, core.bias_hh_l0).chunk(3)
    r, z = torch.sigmoid(r_u + r_h), torch.sigmoid(z_u + z_h)
    n = torch.tanh(n_u + r * n_h)
    W_r, W_z, W_n = core.weight_hh_l0.split(4)
    inner = torch.diag(r) @ W_n + torch.diag(n_h * r * (1 - r)) @ W_r
    J = torch.diag(z) + torch.diag((h - n) * z * (1 - z)) @ W_z
    J = J + torch.diag((1 - z) * (1 - n**2)) @ inner
    torch.testing.assert_close(jacrev(system.step)(h, u), J)


def test_heads_start_as_their_names_say():
    def values(init):
        head = linear_head(400, 50, init, rng())
        return head.weight.detach(), head.bias.detach()

    spreads = {
        "normal": 1.0,
        "uniform": 1 / math.sqrt(3 * 400),
        "kaiming_normal": math.sqrt(2 / 400),
        "xavier_normal": math.sqrt(2 / 450),
        "xavier_uniform": math.sqrt(2 / 450),
    }
    assert {*spreads, "zero"} == HEAD_INITS.keys()
    assert not any(float(t.abs().max()) for t in values("zero"))
    for init, spread in spreads.items():
        weight, bias = values(init)
        assert float(weight.std()) == pytest.approx(spread, rel=0.02)
        assert (float(bias.abs().max()) == 0) == init.startswith("xavier")
    with pytest.raises(ValueError, match="head_init"):
        linear_head(4, 5, "one", rng())


@pytest.mark.parametrize(
    ("config", "changes", "said"),
    [
        (RoaRnnConfig, {"filter": "permutations"}, "did you mean 'permutation'"),
        (RoaRnnConfig, {"nonlinearity": "rely"}, "did you mean 'relu'"),
        (RoaRnnConfig, {"rho": 0.0}, "rho"),
        (RoaRnnConfig, {"horizon": 0}, "horizon"),
        (RoaRnnConfig, {"init": "gauss"}, "init"),
        (RoaRnnConfig, {"backend": "cuda"}, "backend"),
        (RoaRnnConfig, {"memory": "none"}, "memory"),
        (RoaFnnConfig, {"recycle": 1}, "recycle"),
        (RoaFnnConfig, {"layers": 1}, "layers"),
        (FnnConfig, {"layers": 1}, "layers"),
        (RnnConfig, {"nonlinearity": "sigmoid"}, "nonlinearity"),
    ],
)
def test_settings_are_checked(config, changes, said):
    with pytest.raises(ValueError, match=said):
        config(**changes)


def test_a_rho_beyond_the_horizon_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"alpha.*lower rho"):
        build_model("roa-rnn", RoaRnnConfig(4, rho=41.0), SEQUENCE, 0)


def test_every_name_of_the_table_is_a_plain_word():
    for name in MODELS:
        assert name == name.lower()
        assert name.replace("-", "").isalnum()


def test_a_roa_fnn_has_the_rates_and_the_cap_that_are_asked_for():
    plain = build_model("roa-fnn", RoaFnnConfig(50, rho=5.0), MOON, 0)
    assert plain.learning_rate_scales() == {}
    assert plain.net.max_norm is None
    config = RoaFnnConfig(50, rho=5.0, depth_rates=True, max_norm=2.0)
    model = build_model("roa-fnn", config, MOON, 0)
    assert model.net.max_norm == 2.0
    scales = model.learning_rate_scales()
    assert scales.keys() == dict(model.named_parameters()).keys()
    assert list(scales.values()) == [pytest.approx(49 / 5)] * len(scales)  # 1 / α
