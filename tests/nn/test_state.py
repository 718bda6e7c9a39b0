"""What travels with the weights: α, φ and the kind of the filter, compared when they are loaded."""

import copy
import io
import json

import pytest
import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import nn

from roann import Roa, RoaEuler, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell

f64 = torch.float64


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


MAKERS = {
    "rnn": lambda **kw: RoaRNN(3, 4, 2, bidirectional=True, generator=gen(), **kw),
    "cell": lambda **kw: RoaRNNCell(3, 4, generator=gen(), **kw),
    "layer": lambda **kw: RoaLayer(4, 4, generator=gen(), **kw),
    "deep": lambda **kw: RoaFNN([4] * 6, generator=gen(), **kw),
    "ode": lambda **kw: RoaEuler(3, 4, generator=gen(), **kw),
}
BASE = {"alpha": 0.01, "nonlinearity": "relu", "filter": "qr", "max_norm": None}
every = pytest.mark.parametrize("name", MAKERS)


def parts(module):
    """The numbers of a module, to be compared before and after."""
    return {k: v.clone() for k, v in module.state_dict().items() if "_extra_state" not in k}


def settings_in(state):
    return json.loads(bytes(state["_extra_state"].tolist()))


@every
def test_the_settings_are_json_in_a_tensor(name):
    model = MAKERS[name](**BASE | {"filter": {"name": "householder", "reflections": 3}})
    state = settings_in(model.state_dict())
    expected = BASE | {"filter": {"name": "householder", "reflections": 3}}
    assert {k: state[k] for k in expected} == expected
    clones = {k: v.clone() for k, v in model.state_dict().items()}  # as much code does
    assert model.load_state_dict(from_bytes(to_bytes(clones))) == ([], [])
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    back = torch.load(file, weights_only=True)
    assert settings_in(back) == state
    assert model.load_state_dict(back) == ([], [])


@every
@pytest.mark.parametrize(
    ("other", "expected", "got"),
    [
        ({"alpha": 0.02}, "alpha=0.01", "alpha=0.02"),
        ({"nonlinearity": "tanh"}, "nonlinearity='relu'", "nonlinearity='tanh'"),
        ({"filter": "haar"}, "filter='qr'", "filter='haar'"),
        ({"alpha": 0.5, "filter": torch.eye(4)}, "alpha=0.01, filter='qr'", "alpha=0.5, filter="),
    ],
)
def test_weights_of_another_setting_are_refused(name, other, expected, got):
    if name == "deep" and isinstance(other.get("filter"), torch.Tensor):
        other = other | {"filter": torch.eye(4).expand(5, 4, 4)}
    model = nn.Sequential(nn.Linear(3, 3), MAKERS[name](**BASE))
    given = nn.Sequential(nn.Linear(3, 3), MAKERS[name](**BASE | {"init": "uniform"} | other))
    sentence = f'"1._extra_state: expected {expected}, as in this layer, got {got}'
    with pytest.raises(RuntimeError) as error:
        model.load_state_dict(given.state_dict())
    assert sentence in str(error.value)
    assert "pass strict=False to keep its own" in str(error.value)
    lone = MAKERS[name](**BASE)
    with pytest.raises(RuntimeError, match="_extra_state: expected"):
        lone.load_state_dict(given[1].state_dict())
    # Not strict: the weights come, the settings stay, and the difference is returned.
    lone = MAKERS[name](**BASE)
    missing, unexpected = lone.load_state_dict(given[1].state_dict(), strict=False)
    assert missing == []
    assert len(unexpected) == 1
    assert f"got {got}" in unexpected[0]
    assert torch.equal(lone.get_extra_state(), model[1].get_extra_state())
    for key, value in parts(given[1]).items():
        assert torch.equal(lone.state_dict()[key], value), key


@every
def test_weights_saved_before_and_tensors_alone_load(name):
    model, other = MAKERS[name](**BASE), MAKERS[name](**BASE | {"init": "uniform"})
    tensors = from_bytes(to_bytes(parts(other)))
    assert "_extra_state" not in tensors
    for assign in (False, True):
        model = MAKERS[name](**BASE)
        assert model.load_state_dict(tensors, assign=assign) == ([], [])
        for key, value in tensors.items():
            assert torch.equal(model.state_dict()[key], value), key


@pytest.mark.parametrize(
    "given", [[1], torch.zeros(3), torch.tensor([91] * 99_999, dtype=torch.uint8), "relu", None]
)
def test_settings_that_cannot_be_read_are_refused(given):
    model = MAKERS["cell"](**BASE)
    with pytest.raises(RuntimeError, match=r"_extra_state: expected settings as JSON in a tensor"):
        model.load_state_dict(model.state_dict() | {"_extra_state": given})


@every
def test_a_learned_alpha_may_be_loaded_from_any_start(name):
    kw = BASE | {"learn_rho": True, "gain": 1.0}
    learned = MAKERS[name](**kw | {"alpha": 0.01})
    other = MAKERS[name](**kw | {"alpha": 0.1, "init": "uniform"})
    assert learned.load_state_dict(other.state_dict()) == ([], [])
    assert torch.equal(torch.as_tensor(learned.alpha), torch.as_tensor(other.alpha))
    if name in ("rnn", "cell", "ode"):  # unless the gain follows from that start
        kw |= {"gain": None}
        last, first = (MAKERS[name](**kw | {"alpha": a}) for a in (0.01, 0.1))
        with pytest.raises(RuntimeError, match=r"gain={'alpha': 0.01}.*got gain={'alpha': 0.1}"):
            last.load_state_dict(first.state_dict())
    with pytest.raises(RuntimeError, match=r"expected alpha='learned'.*got alpha=0.01"):
        learned.load_state_dict(MAKERS[name](**BASE | {"gain": 1.0}).state_dict())
    with pytest.raises(RuntimeError, match=r"expected alpha=0.01.*got alpha='learned'"):
        MAKERS[name](**BASE).load_state_dict(other.state_dict())


@every
def test_a_vector_alpha_is_compared_too(name):
    alpha = torch.tensor([0.01, 0.02, 0.03, 0.04])
    model = MAKERS[name](**BASE | {"alpha": alpha})
    assert "alpha" not in settings_in(model.state_dict())
    double = MAKERS[name](**BASE | {"alpha": alpha, "dtype": f64})
    assert model.load_state_dict(double.state_dict()) == ([], [])
    other = MAKERS[name](**BASE | {"alpha": alpha / 2, "init": "uniform"})
    with pytest.raises(RuntimeError, match=r"_alpha: expected the same alpha.* by up to 0\.02;"):
        model.load_state_dict(other.state_dict())
    _, unexpected = model.load_state_dict(other.state_dict(), strict=False)
    assert len(unexpected) == 1
    assert torch.equal(model.state_dict()["_alpha"], alpha)
    half = {k: v.half() for k, v in parts(model).items() if v.is_floating_point()}
    for assign in (False, True):  # rounded weights do not round it
        assert model.load_state_dict(half, strict=False, assign=assign).unexpected_keys == []
        assert torch.equal(model.state_dict()["_alpha"], alpha)
    with pytest.raises(RuntimeError, match=r"Missing key.*_alpha"):
        model.load_state_dict(MAKERS[name](**BASE).state_dict())


def test_alpha_is_compared_to_rounding():
    """0.7 / 100 and 0.007 differ in the last bit."""
    make = MAKERS["cell"]
    a, b = make(rho=0.7, horizon=100, filter="qr"), make(alpha=0.007, filter="qr")
    assert a.alpha != b.alpha
    assert a.load_state_dict(b.state_dict()) == ([], [])
    a, b = make(rho=1.0, horizon=49), make(alpha=1 / 49)  # so are the settings of a filter
    assert a.filter.horizon != b.filter.horizon
    assert a.load_state_dict(b.state_dict()) == ([], [])
    with pytest.raises(RuntimeError, match=r"filter={'name': 'broad', 'horizon': 49.0}, as in"):
        a.load_state_dict(make(rho=1.0, horizon=50).state_dict())


def test_a_designed_filter_follows_from_the_settings_that_stay():
    """Not strict: the weights come, the filter of the horizon stays, and both are told."""
    a, b = (RoaRNN(3, 64, horizon=h, init="uniform", generator=gen(h)) for h in (50, 500))
    before = a.filter_l0.angle.clone()
    with pytest.raises(RuntimeError, match=r"filter_l0.angle: angle: expected those of Broad"):
        a.load_state_dict(b.state_dict())
    for assign in (False, True):
        missing, unexpected = a.load_state_dict(b.state_dict(), strict=False, assign=assign)
        assert missing == []
        assert [text.split(":")[0] for text in unexpected] == ["_extra_state", "filter_l0.angle"]
        assert torch.equal(a.weight_hh_l0, b.weight_hh_l0)
        assert torch.equal(a.filter_l0.angle, before)


def test_layers_of_one_kind_share_weights_across_classes():
    rnn = RoaRNN(3, 4, alpha=0.01, filter="rotations", generator=gen())
    ode = RoaODE(3, 4, alpha=0.01, filter="rotations", generator=gen(1))
    assert ode.load_state_dict(rnn.state_dict()) == ([], [])
    other = RoaODE(3, 4, alpha=0.01, dt=0.5, filter="rotations")
    with pytest.raises(RuntimeError, match=r"expected dt=1.0, as in this layer, got dt=0.5"):
        ode.load_state_dict(other.state_dict())


def test_a_wrapped_module_has_it_too():
    f = nn.Linear(4, 4)
    model, other = (Roa(copy.deepcopy(f), alpha=a, filter="cycle") for a in (0.1, 0.2))
    assert settings_in(model.state_dict()) == {"alpha": 0.1, "filter": "cycle"}
    with pytest.raises(RuntimeError, match=r"expected alpha=0.1, as in this layer, got alpha=0.2"):
        model.load_state_dict(other.state_dict())
    assert model.load_state_dict(Roa(f, alpha=0.1, filter="cycle").state_dict()) == ([], [])


def test_optimisers_copies_and_functional_calls_do_not_see_it():
    model = RoaRNN(3, 4, alpha=0.01, generator=gen())
    assert [n for n, _ in model.named_parameters()] == ["weight_ih_l0", "weight_hh_l0", "bias_l0"]
    twin = copy.deepcopy(model)
    assert torch.equal(twin.get_extra_state(), model.get_extra_state())
    values = dict(model.named_parameters()) | dict(model.named_buffers())
    u = torch.randn(5, 2, 3, generator=gen(1))
    called = torch.func.functional_call(twin, values, (u,))[0]
    assert torch.equal(called, model(u)[0])
    averaged = torch.optim.swa_utils.AveragedModel(model)
    averaged.update_parameters(model)
    assert averaged.load_state_dict(averaged.state_dict()) == ([], [])
