"""Unequal lengths, missing values and time stamps: answers as for each series alone."""

import itertools

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from made_series import ragged, waves

from roann.estimators import RoaClassifier, RoaRegressor, fitting
from roann.estimators.network import LAST, POOLINGS, Plan
from roann.estimators.prepare import Preparation
from roann.estimators.series import Series

EVERY = (LAST, *POOLINGS)


def set_of(lengths, channels=2, seed=0):
    random = np.random.default_rng(seed)
    return Series.of([random.normal(size=(T, channels)) for T in lengths])


def network(series, continuous=False, **options):
    horizon = {"horizon": 20.0} | options
    plan = Plan(series.channels, 3, 8, 1, True, EVERY, 0.2, continuous, horizon)
    net = plan.build(torch.Generator().manual_seed(0))
    torch.nn.init.normal_(net.head.weight, generator=torch.Generator().manual_seed(1))
    return net.eval()


def test_pooled_states_are_those_of_each_series_alone():
    """Against plain formulas over the states of each series."""
    series = set_of([5, 1, 9, 9, 2])
    prepared = Preparation.of(series, differences=False)(series)
    net = network(series)
    batch = prepared.batch(torch.arange(5))
    found = net.pooled(batch)
    for column, row in enumerate(batch.rows.tolist()):
        start, T = int(prepared.starts[row]), int(prepared.lengths[row])
        states, h_n = net.layers[0](prepared.inputs[start : start + T])
        changes = torch.cat([states[:1], states[1:] - states[:-1]]).abs()
        wanted = {
            "last": h_n.flatten(), "mean": states.mean(0), "mean_abs": states.abs().mean(0),
            "max": states.amax(0), "change": changes.mean(0),
        }  # fmt: skip
        alone = torch.cat([wanted[name] for name in EVERY])
        assert torch.allclose(found[column], alone, atol=1e-6)


def test_gradients_of_unequal_lengths_are_those_of_each_series_alone():
    series = set_of([4, 7, 2])
    prepared = Preparation.of(series, differences=True)(series)
    options = {"horizon": 20.0}
    plan = Plan(4, 3, 8, 1, True, EVERY, 0.0, False, options)
    net = plan.build(torch.Generator().manual_seed(0)).double()
    torch.nn.init.normal_(net.head.weight, generator=torch.Generator().manual_seed(1))
    whole = prepared.batch(torch.arange(3))
    net(whole.with_inputs(whole.inputs.double())).sum().backward()
    together = [p.grad.clone() for p in net.parameters()]
    net.zero_grad()
    for row in range(3):
        one = prepared.batch(torch.tensor([row]))
        net(one.with_inputs(one.inputs.double())).sum().backward()
    for a, p in zip(together, net.parameters(), strict=True):
        assert torch.allclose(a, p.grad, atol=1e-9)


def test_only_real_steps_are_computed():
    """A batch holds as many rows as there are real steps, and groups similar lengths."""
    lengths = [3, 50] * 40
    series = set_of(lengths)
    prepared = Preparation.of(series, differences=False)(series)
    rows = torch.arange(80)
    batches = prepared.shuffled(rows, 8, torch.Generator().manual_seed(0))
    steps = [b.inputs.numel() // 2 for b in batches]
    assert sum(steps) == sum(lengths)
    assert sorted(itertools.chain(*(b.rows.tolist() for b in batches))) == rows.tolist()
    assert sum(b.sizes is None for b in batches) >= 8  # most hold one length only


def test_time_stamps_at_equal_intervals_change_nothing():
    series = set_of([6, 9, 9])
    times = np.concatenate([np.arange(T) * 0.5 for T in series.lengths])
    stamped = Series(series.values, series.lengths, times)
    preparation = Preparation.of(stamped, differences=False)
    assert preparation.dt == 0.5
    ode = network(series, continuous=True, dt=0.5)
    rnn = network(series)
    for name, end in itertools.product(("weight_ih", "weight_hh", "bias"), (0, 1)):
        source = getattr(rnn.layers[0], f"{name}_l0" + ("_reverse" if end else ""))
        getattr(ode.layers[end], f"{name}_l0").data.copy_(source.data)
    a = rnn(Preparation.of(series, differences=False)(series).batch(torch.arange(3)))
    b = ode(preparation(stamped).batch(torch.arange(3)))
    assert torch.allclose(a, b, atol=1e-5)


def test_the_second_direction_sees_the_time_between_the_same_samples():
    """A series and its mirror image give mirrored states if both directions share weights."""
    random = np.random.default_rng(0)
    x, t = random.normal(size=(7, 2)), np.cumsum(random.uniform(0.2, 2.0, 7))
    mirror = Series.of([x, x[::-1], x[:3]], np.concatenate([t, t[-1] - t[::-1] + t[0], t[:3]]))
    preparation = Preparation.of(mirror, differences=False)
    net = network(mirror, continuous=True, dt=preparation.dt)
    net.layers[1].load_state_dict(net.layers[0].state_dict())
    batch = preparation(mirror).batch(torch.arange(3))
    _, last = net._stamped(batch)
    ahead, back = last.split(8, dim=1)
    order = batch.rows.tolist()
    a, b = order.index(0), order.index(1)
    assert torch.allclose(ahead[a], back[b], atol=1e-5)
    assert torch.allclose(back[a], ahead[b], atol=1e-5)
    assert not torch.allclose(ahead[a], back[a], atol=1e-3)


def test_missing_values_are_told_to_the_network():
    """Value carried forward, seen or not, log of the steps since; the mean before the first."""
    nan = np.nan
    series = Series.of([np.array([[nan], [2.0], [nan], [nan]]), np.array([[4.0], [6.0]])])
    preparation = Preparation.of(series, differences=False)
    assert preparation.inputs == 3
    u = preparation(series).inputs.double()
    filled = (torch.tensor([4.0, 2, 2, 2, 4, 6]) - 4) / np.std([2, 4, 6])
    assert torch.allclose(u[:, 0], filled.double(), atol=1e-6)
    assert u[:, 1].tolist() == [0, 1, 0, 0, 1, 1]
    since = torch.tensor([0.0, 0, 1, 2, 0, 0]).log1p()
    assert torch.allclose(u[:, 2].float(), since)
    stamps = Series(series.values, series.lengths, np.array([0, 1, 2, 5, 0, 1.0]))
    again = Preparation.of(stamps, differences=False)(stamps).inputs[:, 2]
    assert torch.allclose(again, torch.tensor([0.0, 0, 1, 4, 0, 0]).log1p())


def test_scales_come_from_the_training_data_alone():
    X, y = waves()
    model = RoaRegressor(hidden_size=4, max_epochs=1, random_state=0).fit(X * 5 + 3, X[:, 0])
    before = model._preparation
    model.predict(X * 100)
    assert model._preparation is before
    assert before.mean == pytest.approx((X * 5 + 3).mean())
    assert before.scale == pytest.approx((X * 5).std())
    held = RoaClassifier(hidden_size=4, max_epochs=1, random_state=0, validation=0.2).fit(X, y)
    assert held._preparation.scale != pytest.approx(X.std(), rel=1e-9)


def test_unequal_lengths_are_learned():
    X, y = ragged(n=40)
    model = RoaClassifier(hidden_size=16, max_epochs=40, random_state=0).fit(X[:30], y[:30])
    assert model.score(X[:30], y[:30]) == 1
    assert model.score(X[30:], y[30:]) >= 0.9
    together = model.predict_proba(X)
    alone = np.concatenate([model.predict_proba([x, x]) for x in X])[::2]
    assert together == pytest.approx(alone, abs=1e-5)


def test_missing_values_are_learned():
    X, y = waves(n=40)
    X[np.random.default_rng(0).random(X.shape) < 0.3] = np.nan
    model = RoaClassifier(hidden_size=16, max_epochs=40, random_state=0).fit(X[:30], y[:30])
    assert model.score(X[30:], y[30:]) >= 0.9


def test_time_stamps_are_learned():
    """A wave seen at irregular times: without the times the classes look alike."""
    random = np.random.default_rng(0)
    y = np.arange(60) % 2
    times = np.cumsum(random.exponential(1.0, (60, 15)), axis=1)
    X = np.sin((0.3 + 0.5 * y[:, None]) * times + random.uniform(0, 6, (60, 1)))
    model = RoaClassifier(hidden_size=16, max_epochs=20, random_state=0)
    model.fit(X[:48], y[:48], times=times[:48])
    assert model.score(X[48:], y[48:], times=times[48:]) >= 0.8
    with pytest.raises(ValueError, match="times: expected time stamps, as fit was given"):
        model.predict(X)
    assert fitting.answers(model.networks_, model._prepared(X, times))[0].shape == (60, 2)


def lengths_of(equal):
    return [6] * 4 if equal else [7, 5, 5, 2]


@pytest.mark.parametrize("equal", [True, False])
@pytest.mark.parametrize("clock", [None, "shared", "own"])
def test_a_training_step_stays_on_the_device_of_its_inputs(equal, clock):
    """On the meta device, which refuses to meet a tensor of another, as a GPU does."""
    series = set_of(lengths_of(equal))
    if clock is not None:
        gaps = np.random.default_rng(1).random(len(series.values)) if clock == "own" else 1.0
        times = np.cumsum(np.ones(len(series.values)) * gaps)
        series = Series(series.values, series.lengths, times)
    preparation = Preparation.of(series, differences=False)
    net = network(series, clock is not None).to("meta").train()
    for batch in preparation(series, "meta").shuffled(
        torch.arange(4), 4, torch.Generator().manual_seed(0)
    ):
        assert batch.inputs.is_meta
        out = net(batch, torch.Generator().manual_seed(1))
        assert out.is_meta
        assert out.shape == (4, 3)
        out.sum().backward()
    assert all(p.grad is not None and p.grad.is_meta for p in net.parameters())
    with pytest.raises(RuntimeError, match="device"):
        net(preparation(series).batch(torch.arange(4)))


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (RoaClassifier(class_weight="balanced"), np.array(["a", "b", "b", "b"])),
        (RoaRegressor(), np.arange(4.0)),
    ],
)
def test_a_loss_stays_on_the_device_of_its_outputs(model, y):
    model.set_params(hidden_size=4, max_epochs=1, random_state=0)
    objective = model.fit(set_of([6] * 4).split(), y)._objective(y)
    outputs = torch.zeros(4, objective.outputs, device="meta", requires_grad=True)
    objective.loss(outputs, objective.targets.to("meta")).backward()
    assert outputs.grad.is_meta
