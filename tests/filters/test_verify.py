"""The one door for buffers from outside: `load_state_dict` takes what `verify` takes."""

import pytest
import torch
from torch import nn

from roann import RoaRNN, filters

# Small layers with a large α break the hypothesis of the theorem on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")

EVERY = [*filters.FILTERS, "given"]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def make(name, shape=(6, 6), depth=None, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    if name == "given":
        O = filters.Haar(*shape, depth=depth, generator=g, dtype=dtype).to_dense()
        return filters.Given(O)
    return filters.make(name, *shape, depth=depth, generator=g, dtype=dtype)


def damaged(state):
    """(key, state with one buffer spoiled) in every way we know."""
    for key, t in state.items():
        spoiled = [t[..., :-1], t + 1]
        if t.is_floating_point():
            spoiled += [torch.full_like(t, v) for v in (torch.nan, torch.inf, -torch.inf, 2.0)]
            one = t.clone()
            one.view(-1)[-1] += 0.05
            spoiled += [one, t.to(torch.complex64), t.long(), t.to(torch.float8_e5m2)]
        else:
            spoiled += [torch.full_like(t, v) for v in (0, -1, 5000, -100000, 2**62)]
            twice = t.clone()
            twice[..., 0] = twice[..., -1]
            spoiled += [twice, t.float(), t.int(), torch.full_like(t, 1e30, dtype=torch.float32)]
        spoiled += [t.to_sparse(), 3, None]
        yield from ((key, {**state, key: bad}) for bad in spoiled)
        yield key, {k: v for k, v in state.items() if k != key} | {"x": t}


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("depth", [None, 3])
@pytest.mark.parametrize("name", EVERY)
def test_bad_buffers_change_nothing(name, depth, assign):
    filter = make(name, (7, 7), depth)
    before = {k: t.clone() for k, t in filter.state_dict().items()}
    tried = 0
    for key, state in damaged(before):
        with pytest.raises(RuntimeError, match=r"Error.*loading state_dict"):
            filter.load_state_dict(state, assign=assign)
        for k, t in filter.state_dict().items():
            assert torch.equal(t, before[k]), key
        tried += 1
    assert tried >= 10
    filter.load_state_dict(before, assign=assign)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (4, 9), (9, 4), (128, 128)], ids=str)
@pytest.mark.parametrize("name", EVERY)
def test_good_buffers_pass_in_every_dtype(name, shape, dtype):
    filter = make(name, shape)
    filter.to(dtype).verify()
    twin = make(name, shape, seed=1)
    twin.load_state_dict(filter.state_dict())
    make(name, shape).double().verify()  # orthogonal to the rounding of float32 at least
    ghost = make(name, shape).to("meta")
    ghost.verify()
    ghost.load_state_dict(filter.state_dict(), assign=True)
    assert torch.equal(ghost.to_dense(), filter.to_dense())


def test_errors_are_collected_as_torch_collects_them():
    model = nn.Sequential(RoaRNN(3, 4, horizon=9, filter="permutation"), nn.Linear(4, 1))
    state = model.state_dict()
    state["0.filter_l0.index"] = torch.full((4,), 5000)
    state["1.weight"] = torch.zeros(3, 3)
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict(state, strict=False)
    assert "0.filter_l0: index: expected each of 0 to 3 once" in str(caught.value)
    assert "size mismatch for 1.weight" in str(caught.value)
    with pytest.raises(RuntimeError, match="expected the buffers index, inverse together"):
        model.load_state_dict({"0.filter_l0.index": torch.arange(4)}, strict=False)
    model.load_state_dict({"1.bias": torch.ones(1)}, strict=False)
    assert model[1].bias.item() == 1


def test_alpha_outside_its_range_changes_nothing():
    rnn = RoaRNN(3, 4, alpha=torch.full((4,), 0.5))
    for bad in (torch.full((4,), 1.5), torch.full((4,), torch.nan), torch.ones(4).long()):
        with pytest.raises(RuntimeError, match=r"_alpha: expected floats in \[0, 1\]"):
            rnn.load_state_dict({**rnn.state_dict(), "_alpha": bad}, assign=True)
        assert torch.equal(rnn.alpha, torch.full((4,), 0.5))


def test_angles_must_be_finite_as_they_are_kept():
    O = filters.Rotations(4)
    huge = (O.angle.double() * 1e300).clone()
    with pytest.raises(RuntimeError, match="angle: expected finite numbers"):
        O.load_state_dict({"angle": huge, "partner": O.partner})
    O.double().load_state_dict({"angle": huge, "partner": O.partner})
