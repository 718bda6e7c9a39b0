"""The gain of the drive: its formula, what it does to the size of states, and how it travels."""

import copy
import json
import math

import pytest
import torch

import roann
from roann import RoaEuler, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell, multiscale
from roann.nn.gain import gain_for

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


def data(*shape, seed=1):
    return torch.randn(*shape, generator=gen(seed), dtype=f64)


def test_the_formula_by_hand():
    """γ = α^(−1/2), and 1 at both ends of α."""
    found = gain_for(1e-4, 3)
    torch.testing.assert_close(found, torch.full((3,), 100.0, dtype=f64), rtol=1e-14, atol=0)
    alpha = torch.tensor([0.0, 1e-4, 0.01, 1.0], dtype=f64)
    expected = torch.tensor([1, 100, 10, 1], dtype=f64)
    torch.testing.assert_close(gain_for(alpha, 4), expected, rtol=1e-14, atol=0)
    rows = gain_for(alpha.unsqueeze(1), 2)
    torch.testing.assert_close(rows, expected.unsqueeze(1).expand(4, 2), rtol=1e-14, atol=0)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("filter", ["broad", "qr"])
def test_at_both_ends_of_alpha_it_is_one(alpha, filter):
    assert torch.equal(gain_for(alpha, 5), torch.ones(5, dtype=f64))
    assert RoaRNN(2, 5, alpha=alpha, filter=filter).gain_of("_l0") is None


MAKERS = {
    "rnn": (lambda **kw: RoaRNN(3, 6, 2, bidirectional=True, **kw), data(7, 2, 3)),
    "cell": (lambda **kw: RoaRNNCell(3, 6, **kw), data(2, 3)),
    "ode": (lambda **kw: RoaODE(3, 6, **kw), data(7, 2, 3)),
    "euler": (lambda **kw: RoaEuler(3, 6, **kw), data(7, 2, 3)),
    "layer": (lambda **kw: RoaLayer(3, 6, **kw), data(2, 3)),
    "deep": (lambda **kw: RoaFNN([3, 6, 6, 6], **kw), data(2, 3)),
}
DEFAULTS = {"alpha": 0.01, "dtype": f64, "max_norm": None}
DRIVE = ("weight_ih", "bias")  # what γ multiplies
every = pytest.mark.parametrize("name", MAKERS)


def made(name, **kw):
    return MAKERS[name][0](**DEFAULTS | {"generator": gen()} | kw)


def answer(model, name):
    output = model(MAKERS[name][1])
    return output[0] if isinstance(output, tuple) else output


@every
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["default", "number", "vector"])
def test_it_multiplies_the_drive_and_nothing_else(name, bias, kind):
    """The layer without a gain whose W_i and b are γ ⊙ W_i and γ ⊙ b."""
    given = {"default": None, "number": 2.5, "vector": torch.linspace(0.5, 3, 6, dtype=f64)}[kind]
    model, plain = made(name, gain=given, bias=bias), made(name, gain=1.0, bias=bias)
    with torch.no_grad():
        for key, p in plain.named_parameters():
            for stem in DRIVE:
                if key.startswith(stem):
                    gain = model.gain_of(key.removeprefix(stem))
                    p.mul_(gain.unsqueeze(-1) if stem == "weight_ih" else gain)
    torch.testing.assert_close(answer(model, name), answer(plain, name), rtol=1e-13, atol=1e-15)
    if bias or name not in ("layer", "deep"):
        other = answer(made(name, gain=1.0, bias=bias), name)
        assert not torch.allclose(answer(model, name), other, rtol=1e-6)


@every
@pytest.mark.parametrize("gain", [1, 1.0, torch.ones(6)], ids=str)
def test_a_gain_of_one_is_no_gain_to_the_bit(name, gain):
    model = made(name, gain=gain)
    assert all(model.gain_of(suffix) is None for suffix in model.scan_alphas)
    plain = made(name, gain=1.0)
    assert torch.equal(answer(model, name), answer(plain, name))
    if name in ("layer", "deep"):  # there it is the default
        assert torch.equal(answer(made(name), name), answer(plain, name))


def test_a_number_is_not_rounded_to_float32():
    rnn = RoaRNN(2, 4, alpha=0.01, gain=0.1, dtype=f64)
    assert rnn.gain_of("_l0").tolist() == [0.1] * 4
    assert (
        RoaRNN(2, 4, alpha=1e-3, filter="qr", dtype=f64).gain_of("_l0").tolist()
        == [pytest.approx(1e-3**-0.5, rel=1e-15)] * 4
    )


LENGTHS = (10, 100, 1000, 10_000, 1_000_000)


@pytest.fixture(scope="module", params=[0, 1, 2], ids="seed {}".format)
def driven(request):
    """States and gradients of default layers after T steps of inputs from U(−1, 1)."""
    found = []
    for T in LENGTHS:
        rnn = RoaRNN(2, 32, horizon=T, generator=gen(request.param))
        u = 2 * torch.rand(T, 16, 2, generator=gen(7)) - 1
        x = rnn(u, last_only=True)[1][0]
        size = x.square().sum()
        size.log().backward()
        gradients = [float(p.grad.norm()) for p in rnn.parameters()]
        found.append((x.detach(), rnn.filter_l0.angle.repeat_interleave(2), gradients))
    return found


def spread_of(values):
    return max(values) / min(values)


def rms(x):
    return float(x.square().mean().sqrt())


def test_on_fast_planes_states_keep_their_size_at_any_horizon(driven):
    assert spread_of([rms(x[:, theta > 0.3][:, -8:]) for x, theta, _ in driven]) < 3


def test_on_still_planes_the_mean_of_a_rectifier_adds_up(driven):
    """What all sequences share grows as √T there; what they differ in keeps its size."""
    common, own = [], []
    for T, (x, theta, _) in zip(LENGTHS, driven, strict=True):
        x = x[:, theta == 0]
        common.append(rms(x.mean(0)) / T**0.5)
        own.append(rms(x - x.mean(0)))
    assert spread_of(common) < 1.5
    assert spread_of(own) < 3


def test_no_gain_gives_mean_and_noise_of_a_still_plane_one_size():
    """Without W both are in proportion to γ, and what sequences share grows √T times faster."""
    ratios = []
    for T in (100, 10_000):
        rnn = RoaRNN(2, 32, horizon=T, filter="still", gain=1.0, generator=gen())
        with torch.no_grad():
            rnn.weight_hh_l0.zero_()
        x = rnn(2 * torch.rand(T, 64, 2, generator=gen(7)) - 1, last_only=True)[1][0].detach()
        ratios.append(rms(x.mean(0)) / rms(x - x.mean(0)))
    assert ratios[1] / ratios[0] == pytest.approx(10, rel=0.25)


def test_relative_gradients_keep_their_size_at_any_horizon(driven):
    """∂ log ‖x_T‖² / ∂p for each of W_i, W and b."""
    for sizes in zip(*(gradients for _, _, gradients in driven), strict=True):
        assert spread_of(sizes) < 3


def test_under_tanh_states_keep_their_size_and_what_differs_shrinks():
    """γ is inside φ: a bounded φ(γy) does not grow with γ, so noise falls as T^(−1/2)."""
    sizes, own = [], []
    for T in LENGTHS:
        rnn = RoaRNN(2, 32, horizon=T, nonlinearity="tanh", generator=gen())
        u = torch.rand(T, 16, 2, generator=gen(7))
        x = rnn(u, last_only=True)[1][0].detach()
        sizes.append(rms(x))
        own.append(rms(x - x.mean(0)) * T**0.5)
    assert spread_of(sizes) < 3
    assert spread_of(own[1:]) < 3  # from T = 100, where φ saturates


@pytest.mark.parametrize("T", [30, 300])
def test_noise_and_mean_in_every_plane_are_those_of_the_formula(T):
    """docs/mathematics.md, "The gain", with W = 0 and every angle that "broad" has."""
    rnn = RoaRNN(2, 24, horizon=T, dtype=f64, generator=gen())
    with torch.no_grad():
        rnn.weight_hh_l0.zero_()
    u = 2 * torch.rand(T, 4000, 2, generator=gen(7), dtype=f64) - 1
    x = rnn(u, last_only=True)[1][0].detach().unflatten(-1, (-1, 2))
    drive = torch.relu(u[0] @ rnn.weight_ih_l0.detach().T).unflatten(-1, (-1, 2))
    alpha, theta = 0.3 / T, rnn.filter_l0.angle.double()
    left = torch.polar(torch.full_like(theta, 1 - alpha), theta)  # what a step leaves, and turns
    m, v = drive.mean(0).norm(dim=-1), drive.var(0).sum(-1)
    mean = alpha**0.5 * m * ((1 - left**T) / (1 - left)).abs()
    variance = alpha * v * (1 - (1 - alpha) ** (2 * T)) / (1 - (1 - alpha) ** 2)
    noise = (variance / 4000).sqrt()
    assert bool(((x.mean(0).norm(dim=-1) - mean).abs() < 4 * noise + 0.05 * mean).all())
    torch.testing.assert_close(x.var(0).sum(-1), variance, rtol=0.15, atol=0)


@pytest.mark.parametrize(
    ("width", "depths"),
    [
        (32, (10, 100, 1000, 10_000)),
        (4, (10, 1000, 100_000)),
        pytest.param(4, (10, 1_000_000), marks=pytest.mark.slow),
    ],
)
def test_over_depth_states_and_gradients_keep_their_size(width, depths):
    """The last state, and ∂ log ‖x_L‖² with respect to the first."""
    sizes, gradients = [], []
    for L in depths:
        net = RoaFNN([width] * (L + 1), generator=gen())
        x = torch.randn(512 // width, width, generator=gen(7)).requires_grad_()
        y = net(x)
        y.square().sum().log().backward()
        sizes.append(rms(y.detach()))
        gradients.append(float(x.grad.norm()))
    assert spread_of(sizes) < 2
    assert spread_of(gradients) < 2


@every
def test_gain_and_cap_travel_with_the_weights(name, tmp_path):
    vector = torch.linspace(0.5, 3, 6, dtype=f64)
    for kw in ({"gain": 2.0}, {"gain": vector}, {"max_norm": 0.7}, {"gain": None, "max_norm": 3}):
        model = made(name, **kw)
        state = json.loads(bytes(model.state_dict()["_extra_state"].tolist()))
        wanted = {"gain": made(name).gain, "max_norm": None} | kw
        if isinstance(wanted["gain"], torch.Tensor):
            wanted["gain"] = vector.tolist()
        assert {k: state[k] for k in wanted} == wanted
        made(name, **kw).load_state_dict(model.state_dict())
        other = made(name, gain=5.0, max_norm=kw.get("max_norm"))
        with pytest.raises(RuntimeError, match=r"expected gain=5.0, as in this layer, got gain="):
            other.load_state_dict(model.state_dict())
        limited = made(name, **kw | {"max_norm": 0.1})
        with pytest.raises(RuntimeError, match=r"expected max_norm=0.1, as in this layer, got max"):
            limited.load_state_dict(model.state_dict())
        roann.save(model, tmp_path / "model")
        loaded = roann.load(tmp_path / "model")
        assert loaded.settings() == model.settings()
        with pytest.raises(ValueError, match=r"into: expected (gain|max_norm)="):
            roann.load(tmp_path / "model", into=made(name, gain=5.0, max_norm=9.0))
        for twin in (loaded, copy.deepcopy(model), copy.deepcopy(model).float().double()):
            exact = twin is loaded or twin.gain_of(next(iter(twin.scan_alphas))) is None
            torch.testing.assert_close(
                answer(twin, name), answer(model, name), rtol=0 if exact else 1e-5, atol=1e-6
            )
        assert torch.equal(answer(loaded, name), answer(model, name))


@every
def test_weights_from_before_there_were_gains_count_as_gain_one(name, tmp_path):
    old = made(name, gain=1.0, filter="identity")
    state = dict(old.state_dict())
    about = json.loads(bytes(state["_extra_state"].tolist()))
    del about["gain"], about["max_norm"]
    state["_extra_state"] = torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)
    twin = made(name, gain=1.0, filter="identity", generator=gen(5))
    assert twin.load_state_dict(state) == ([], [])
    assert torch.equal(answer(twin, name), answer(old, name))
    with pytest.raises(RuntimeError, match=r"expected gain=None, as in this layer, got gain=1.0"):
        made(name, gain=None, filter="identity").load_state_dict(state)
    with pytest.raises(RuntimeError, match=r"expected max_norm=2.0.*got max_norm=None"):
        made(name, gain=1.0, max_norm=2.0, filter="identity").load_state_dict(state)


@every
def test_files_from_before_there_were_gains(name, tmp_path):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    old, file = made(name, gain=1.0), tmp_path / "old"
    roann.save(old, file)
    with safe_open(file, "pt") as f:
        meta = f.metadata()
    about = json.loads(meta["model"])
    del about["settings"]["gain"], about["settings"]["max_norm"]
    save_file(load_file(file), file, meta | {"model": json.dumps(about)})
    loaded = roann.load(file)
    assert loaded.gain == 1.0
    assert loaded.max_norm is None
    assert torch.equal(answer(loaded, name), answer(old, name))
    assert torch.equal(answer(roann.load(file, into=made(name, gain=1.0)), name), answer(old, name))
    with pytest.raises(ValueError, match=r"into: expected gain=1.0"):
        roann.load(file, into=made(name, gain=2.0))


def test_rows_of_alpha_have_rows_of_gains():
    alpha = torch.tensor([[0.01], [0.0001]], dtype=f64)
    rnn = RoaRNN(3, 4, 2, alpha=alpha, filter="qr", dtype=f64)
    torch.testing.assert_close(rnn.gain_of("_l0"), torch.full((4,), 10.0, dtype=f64))
    torch.testing.assert_close(rnn.gain_of("_l1"), torch.full((4,), 100.0, dtype=f64))
    wide = RoaRNN(3, 4, alpha=multiscale(4, 100, 10_000).double(), filter="qr", dtype=f64)
    torch.testing.assert_close(wide.gain_of("_l0"), multiscale(4, 10, 100).double() ** -1)


@pytest.mark.parametrize(
    ("gain", "error", "match"),
    [
        (0, ValueError, "gain: expected a finite number above 0"),
        (-1.0, ValueError, "gain: expected a finite number above 0"),
        (math.nan, ValueError, "gain: expected a finite"),
        ("1", TypeError, "gain: expected a number"),
        (torch.ones(3), ValueError, r"gain: expected None, a number or a float tensor \(4,\), got"),
        (torch.ones(4).long(), ValueError, "got shape .* of torch.int64"),
        (torch.tensor([1.0, 1, 1, -1]), ValueError, r"gain: expected finite numbers above 0"),
        (torch.tensor([1.0, 1, 1, math.nan]), ValueError, "gain: expected finite numbers above 0"),
    ],
)
def test_bad_gains(gain, error, match):
    with pytest.raises(error, match=match):
        RoaRNN(3, 4, alpha=0.1, gain=gain)


def test_a_vector_needs_one_width():
    with pytest.raises(ValueError, match=r"gain: expected None, a number, got shape \(4,\)"):
        RoaFNN([4, 4, 2], gain=torch.ones(4))


@pytest.mark.parametrize("max_norm", [0, -1.0, math.inf, math.nan])
def test_bad_caps(max_norm):
    with pytest.raises(ValueError, match="max_norm: expected a finite number above 0"):
        RoaRNN(3, 4, alpha=0.1, max_norm=max_norm)
