"""`save` and `load` for a model of the user's own that contains our layers."""

import json

import pytest
import torch
from safetensors import safe_open
from torch import nn

import roann
from roann import Roa, RoaFNN, RoaLayer, RoaRNN, multiscale

# Small layers with a large α break the hypothesis of the theorem on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")


class Net(nn.Module):
    """Two of our layers, one around a module, a tied weight, integers, and extra state."""

    def __init__(self, filter="permutation", phi="relu", seed=0, tied=True, **alpha):
        super().__init__()
        torch.manual_seed(seed)
        alpha = alpha or {"rho": 1.0, "horizon": 9}
        self.rnn = RoaRNN(3, 4, nonlinearity=phi, filter=filter, **alpha)
        self.block = Roa(nn.Linear(4, 4), alpha=0.1)
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)
        self.seen = {"labels": ["a", "b"], "scale": 0.5}
        if tied:
            self.last.weight = self.first.weight

    def forward(self, u):
        return self.last(self.first(self.norm(self.block(self.rnn(u)[1][0]))))

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state):
        self.seen = state


def u():
    return torch.linspace(-1, 1, 60).reshape(5, 4, 3)


@pytest.fixture
def saved(tmp_path):
    net = Net(seed=1)
    net(u())  # BatchNorm has seen something
    net.seen["labels"].append("c")
    roann.save(net.eval(), tmp_path / "net.safetensors")
    return net, tmp_path / "net.safetensors"


def test_round_trip(saved):
    net, file = saved
    fresh = Net().eval()
    first = fresh.first.weight
    twin = roann.load(file, into=fresh)
    assert twin is fresh
    assert torch.equal(twin(u()), net(u()))
    assert twin.seen == {"labels": ["a", "b", "c"], "scale": 0.5}
    assert twin.norm.num_batches_tracked.item() == 1
    assert twin.first.weight is first is twin.last.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_into_a_model_without_numbers(saved, dtype):
    net, file = saved
    with torch.device("meta"):
        ghost = Net().to(dtype).eval()
    ghost.first.bias.requires_grad_(False)
    twin = roann.load(file, into=ghost)
    assert {t.dtype for t in twin.parameters()} == {dtype}
    assert twin.first.weight is twin.last.weight
    assert [n for n, p in twin.named_parameters() if not p.requires_grad] == ["first.bias"]
    want = net.to(dtype)(u().to(dtype))
    # `to` makes a filter orthogonal in float64; one from a file keeps the numbers of the file.
    exact = dtype == torch.float32
    torch.testing.assert_close(
        twin(u().to(dtype)), want, rtol=0 if exact else 1e-6, atol=0 if exact else 1e-6
    )


def test_the_model_keeps_its_dtype(saved):
    net, file = saved
    twin = roann.load(file, into=Net().double().eval())
    assert twin.first.weight.dtype == torch.float64
    assert torch.equal(twin.first.weight, net.first.weight.double())


DIFFERENT = [
    (
        {"rho": 1.0, "horizon": 10},
        r"into: expected alpha=0\.1111111111111111 in 'rnn', .*, got 0\.1;",
    ),
    ({"alpha": multiscale(4, 2, 9)}, r"expected alpha=0\.11.* in 'rnn'"),
    ({"horizon": 9, "learn_rho": True}, r"expected learn_rho=False in 'rnn', .*, got True;"),
    ({"phi": "tanh"}, r"expected nonlinearity=relu in 'rnn', .*, got tanh;"),
    ({"filter": "cycle"}, r"expected filter=permutation in 'rnn', .*, got cycle;"),
    ({"filter": torch.eye(4)}, r"expected filter=permutation in 'rnn', .*, got given;"),
]


@pytest.mark.parametrize(("settings", "said"), DIFFERENT, ids=lambda v: str(v)[:30])
def test_other_settings_are_named_and_nothing_changes(saved, settings, said):
    _, file = saved
    other = Net(seed=2, **settings)
    before = {k: v.clone() for k, v in other.state_dict().items() if torch.is_tensor(v)}
    with pytest.raises(ValueError, match=said) as caught:
        roann.load(file, into=other)
    assert "\n" not in str(caught.value)
    assert all(torch.equal(v, other.state_dict()[k]) for k, v in before.items())


def test_other_layers_are_named(saved, tmp_path):
    _, file = saved
    with pytest.raises(ValueError, match=r"expected the layers in .*, got a model without 'block'"):
        roann.load(file, into=nn.ModuleDict({"rnn": RoaRNN(3, 4, horizon=9)}))
    roann.save(nn.Linear(2, 2), file)
    with pytest.raises(ValueError, match="got a model with ''"):
        roann.load(file, into=RoaLayer(2, 2, horizon=9))
    assert roann.load(file, into=nn.Linear(2, 2)).bias.shape == (2,)
    with pytest.raises(ValueError, match=r"path: expected the tensors of a Linear.*size mismatch"):
        roann.load(file, into=nn.Linear(3, 2))


def test_what_only_training_uses_may_differ(tmp_path):
    net = nn.Sequential(RoaFNN([3, 3, 2], init="uniform"))
    roann.save(net, tmp_path / "net")
    other = nn.Sequential(RoaFNN([3, 3, 2], init="normal", memory="checkpoint", backend="fused"))
    roann.load(tmp_path / "net", into=other)
    assert torch.equal(other[0].weight_0, net[0].weight_0)


def test_a_learned_vector_alpha_travels_and_a_given_one_must_agree(tmp_path):
    for learn in (True, False):
        kw = {"learn_rho": learn, "filter": "cycle"}  # the default filter follows from alpha
        net = nn.Sequential(RoaLayer(4, 4, alpha=multiscale(4, 2, 9), **kw))
        other = nn.Sequential(RoaLayer(4, 4, alpha=multiscale(4, 3, 90), **kw))
        roann.save(net, tmp_path / "net")
        if learn:
            roann.load(tmp_path / "net", into=other)
            assert torch.equal(other[0].alpha, net[0].alpha)
        else:
            with pytest.raises(ValueError, match="_alpha: expected the same alpha"):
                roann.load(tmp_path / "net", into=other)
            assert torch.equal(other[0].alpha, multiscale(4, 3, 90))


def test_our_own_layer_into_another(tmp_path):
    rnn = RoaRNN(3, 4, horizon=9)
    roann.save(rnn, tmp_path / "rnn")
    into = RoaRNN(3, 4, horizon=9)
    assert torch.equal(roann.load(tmp_path / "rnn", into=into)(u())[0], rnn(u())[0])
    with pytest.raises(ValueError, match=r"into: expected alpha=0\.033.*, as in .*, got 0\.003"):
        roann.load(tmp_path / "rnn", into=RoaRNN(3, 4, horizon=100))
    with pytest.raises(ValueError, match="into: expected class=RoaRNN"):
        roann.load(tmp_path / "rnn", into=RoaLayer(3, 4, horizon=9))


class Named(RoaRNN):
    """A subclass is a class of the user's own."""


def test_a_class_is_never_looked_up(saved, tmp_path):
    _, file = saved
    with pytest.raises(ValueError, match=r"into: expected a model of your own.*which holds a Net"):
        roann.load(file)
    with pytest.raises(TypeError, match=r"into: expected an nn.Module.*; build the model first"):
        roann.load(file, into=Net)
    roann.save(Named(3, 4, horizon=9), tmp_path / "named")
    with pytest.raises(ValueError, match="which holds a Named"):
        roann.load(tmp_path / "named")
    with safe_open(file, "pt") as f:
        about = json.loads(f.metadata()["model"])
    assert "tests" not in json.dumps(about)
    assert about["layers"]["block"]["filter"] == {"name": "broad", "horizon": 10.0}


@pytest.mark.parametrize("bad", [(1, 2), {1, 2}, {1: "a"}, object(), b"x"])
def test_extra_state_that_json_would_change_is_refused(bad, tmp_path):
    net = Net()
    net.seen = bad
    with pytest.raises(TypeError, match="model: expected extra state that JSON can hold, got _ext"):
        roann.save(net, tmp_path / "net")
    assert not list(tmp_path.iterdir())


def test_extra_state_cannot_take_the_place_of_a_tensor(saved):
    from safetensors.torch import load_file, save_file

    _, file = saved
    with safe_open(file, "pt") as f:
        meta = f.metadata()
    about = json.loads(meta["model"])
    for key in ("first.weight", "x_extra_state", "rnn.filter_l0.index"):
        forged = about | {"extra": about["extra"] | {key: [1, 2]}}
        save_file(load_file(file), file, meta | {"model": json.dumps(forged)})
        with pytest.raises(ValueError, match="path: expected a file that says what model it holds"):
            roann.load(file, into=Net())
