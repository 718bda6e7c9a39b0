"""The fit: repeatable to the bit, best weights, warm starts, class weights, callbacks."""

import json
import pickle
import sys
import types

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from made_series import ragged, waves
from sklearn.base import clone

import roann
from roann.estimators import (
    Checkpoint,
    Log,
    Options,
    RoaClassifier,
    RoaRegressor,
    Schedule,
    TensorBoard,
)
from roann.estimators.callbacks import Epoch, Lines, Progress
from roann.estimators.fitting import Recipe


def small(**options):
    return RoaClassifier(**{"hidden_size": 8, "max_epochs": 6, "random_state": 0} | options)


@pytest.mark.parametrize("data", [waves, ragged])
def test_one_random_state_gives_the_same_bits(data):
    X, y = data()
    options = {"validation": 0.2, "options": Options(n_networks=2)}
    one, two = (small(**options).fit(X, y).predict_proba(X) for _ in range(2))
    other = small(random_state=1, **options).fit(X, y).predict_proba(X)
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_global_generators_are_not_touched():
    X, y = waves()
    torch.manual_seed(3)
    np.random.seed(3)
    state, theirs = torch.get_rng_state(), np.random.get_state()[1].copy()
    small(validation=0.2).fit(X, y)
    assert torch.equal(torch.get_rng_state(), state)
    assert np.array_equal(np.random.get_state()[1], theirs)


def test_the_head_starts_at_zero_and_the_rate_warms_up_and_falls_to_zero():
    X, y = waves()
    model = small(max_epochs=1, learning_rate=1e-12).fit(X, y)
    assert model.predict_proba(X) == pytest.approx(np.full((24, 2), 0.5), abs=1e-6)
    recipe = Recipe(0.01, 0.0, 10, 4, 20, 1.0, None)
    rates = [recipe.rate(k, 100) for k in range(100)]
    assert rates[0] == pytest.approx(0.01 / 20)
    assert max(rates) < 0.01
    assert rates[99] < 1e-5
    assert rates[19:] == sorted(rates[19:], reverse=True)


def test_the_best_epoch_stays():
    """Its validation loss, computed anew from the final weights, is the lowest of the history."""
    X, y = waves(n=60, T=12)
    X = X + np.random.default_rng(0).normal(0, 1.0, X.shape)
    model = small(max_epochs=40, validation=0.2, options=Options(patience=5, dropout=0.0))
    model.fit(X, y)
    losses = [row["valid_loss"] for row in model.history_]
    assert len(losses) < 40
    assert len(losses) == 5 + 1 + int(np.argmin(losses))
    codes = np.searchsorted(model.classes_, y)
    objective = model._objective(np.asarray(y))
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    held = np.flatnonzero(model._folds(objective, seed, partial=False) == 0)
    p = model.predict_proba(X[held])[np.arange(len(held)), codes[held]]
    assert -np.log(p).mean() == pytest.approx(min(losses), abs=1e-5)
    assert np.bincount(codes[held]).tolist() == [6, 6]  # stratified


def test_each_network_validates_on_a_fold_of_its_own():
    X, y = waves(n=50)
    model = small(validation=0.2, options=Options(n_networks=5), max_epochs=1).fit(X, y)
    folds = model._folds(model._objective(np.asarray(y)), 1, partial=False)
    assert np.bincount(folds).tolist() == [10] * 5
    assert len(model.networks_) == 5
    assert {row["member"] for row in model.history_} == set(range(5))


def test_a_class_with_one_series_is_trained_on():
    _, y = waves()
    y = y.copy()
    y[3] = "odd"
    model = small(validation=0.2)
    model.classes_ = np.unique(y)
    for seed in range(10):
        assert model._folds(model._objective(y), seed, partial=False)[3] == -1


def test_a_warm_start_goes_on():
    X, y = waves()
    model = small(warm_start=True).fit(X, y)
    first = model.networks_[0]
    model.fit(X, y)
    assert model.networks_[0] is first
    assert [row["epoch"] for row in model.history_] == list(range(1, 13))
    with pytest.raises(ValueError, match="classes of the first fit"):
        model.fit(X, ["other", *y[1:]])
    cold = small().fit(X, y)
    assert cold.fit(X, y).history_[-1]["epoch"] == 6


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"hidden_size": 5}, "hidden_size: expected 8, as in the fit that goes on, got 5"),
        ({"horizon": 7.0}, "horizon: expected None"),
        ({"options__num_layers": 2}, "num_layers: expected 1"),
        ({"options__layer": {"rho": 0.5}}, "layer: expected None"),
    ],
)
def test_a_warm_start_builds_no_other_network(changed, words):
    X, y = waves()
    model = small(warm_start=True, hidden_size=8).fit(X, y)
    with pytest.raises(ValueError, match=words + ".*set warm_start=False"):
        model.set_params(**changed).fit(X, y)
    assert len(model.set_params(warm_start=False).fit(X, y).history_) == 6


def test_a_warm_start_takes_another_rate_and_patience():
    X, y = waves()
    model = small(warm_start=True).fit(X, y)
    model.set_params(learning_rate=0.001, max_epochs=2, options__patience=3).fit(X, y)
    assert len(model.history_) == 8
    assert model.history_[-2]["learning_rate"] <= 0.001


def test_later_calls_of_partial_fit_cannot_change_the_classes():
    X, y = waves()
    model = small().partial_fit(X, y, classes=["fast", "slow"])
    model.partial_fit(X, y, classes=["slow", "fast"])
    with pytest.raises(ValueError, match="classes: expected those of the first fit"):
        model.partial_fit(X, y, classes=["slow", "fast", "still"])


def test_partial_fit_learns():
    X, y = waves(n=40)
    model = small(hidden_size=16)
    for _ in range(25):
        for part in (slice(0, 20), slice(20, 40)):
            model.partial_fit(X[part], y[part], classes=["slow", "fast"])
    assert model.score(X, y) >= 0.95
    with pytest.raises(ValueError, match="all classes at the first call"):
        small().partial_fit(X, y)


def test_class_weights_move_the_answers():
    X = np.random.default_rng(0).normal(size=(60, 8))
    y = np.array([0] * 50 + [1] * 10)
    means = [
        small(class_weight=w, max_epochs=3).fit(X, y).predict_proba(X)[:, 1].mean()
        for w in (None, "balanced", {0: 1.0, 1: 100.0})
    ]
    assert means[0] < means[1] < means[2]


def test_several_targets():
    X = np.random.default_rng(0).normal(size=(80, 10))
    y = np.stack([X.mean(1), 100 + X[:, ::2].sum(1)], axis=1)
    model = RoaRegressor(hidden_size=16, max_epochs=40, random_state=0).fit(X, y)
    assert model.predict(X).shape == (80, 2)
    assert model.score(X, y) > 0.9


def test_checkpoint_log_and_schedule(tmp_path):
    X, y = waves()
    seen = []
    callbacks = [
        Checkpoint(tmp_path / "net-{member}.safetensors"), Log(tmp_path / "log.jsonl"),
        Schedule(lambda epoch: 0.5**epoch), seen.append,
    ]  # fmt: skip
    model = small(callbacks=callbacks, validation=0.2).fit(X, y)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == model.history_
    assert [row["learning_rate"] for row in lines[1:]] == [0.5**k for k in range(2, 7)]
    assert [p.row.epoch for p in seen] == [1, 2, 3, 4, 5, 6]
    before = model.predict_proba(X)
    with torch.no_grad():
        model.networks_[0].head.weight.zero_()
    roann.load(tmp_path / "net-0.safetensors", into=model.networks_[0])
    assert np.array_equal(model.predict_proba(X), before)


def test_a_callback_stops_the_fit():
    X, y = waves()
    assert len(small(callbacks=[lambda p: p.row.epoch == 2]).fit(X, y).history_) == 2


def test_what_tensorboard_is_given(tmp_path, monkeypatch):
    """Without its package, which is large: the next test reads real files where it is installed."""
    written = []

    class Writer:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, name, value, step):
            written.append((self.folder, name, value, step))

        def flush(self):
            written.append("flush")

    stand_in = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", stand_in)
    X, y = waves()
    model = small(callbacks=[TensorBoard(tmp_path)], max_epochs=2, validation=0.2).fit(X, y)
    wanted = []
    for row in model.history_:
        for name in ("loss", "valid_loss", "valid_score", "learning_rate"):
            wanted.append((str(tmp_path / "member-0"), name, row[name], row["epoch"]))
        wanted.append("flush")
    assert written == wanted


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of tensorboard and protobuf
def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra [tensorboard] is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    X, y = waves()
    board = TensorBoard(tmp_path)
    options = {"validation": 0.2, "options": Options(n_networks=2)}
    model = clone(small(callbacks=[board], max_epochs=3, **options)).fit(X, y)
    for member in (0, 1):
        found = EventAccumulator(str(tmp_path / f"member-{member}")).Reload()
        rows = [row for row in model.history_ if row["member"] == member]
        for name in ("loss", "valid_loss", "valid_score", "learning_rate"):
            points = found.Scalars(name)
            assert [point.step for point in points] == [1, 2, 3]
            assert [p.value for p in points] == pytest.approx([row[name] for row in rows])
    assert pickle.loads(pickle.dumps(model)).callbacks[0].folder == tmp_path


def test_without_tensorboard_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    X, y = waves()
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'roann\[tensorboard\]'"):
        small(callbacks=[TensorBoard(tmp_path)], max_epochs=1).fit(X, y)


def test_progress_lines(capsys):
    X, y = waves()
    small(verbose=1, validation=0.2).fit(X, y)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "RoaClassifier [####################]  epoch 6/6  loss" in shown.err
    assert "validation" in shown.err
    small().fit(X, y)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_one_line():
    class Terminal:
        text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    stream = Terminal()
    lines = Lines("RoaRegressor", 2, stream)
    lines(Progress(Epoch(1, 5, 0.5, None, None, 0.01, 1.0), 5, torch.nn.Identity(), True))
    lines.close()
    assert stream.text == "\r\x1b[KRoaRegressor [" + "#" * 20 + (
        "]  network 2/2  epoch 5/5  loss 0.5000\n"
    )


def test_a_gradient_that_is_not_finite_ends_the_fit():
    X, y = waves()

    def spoil(progress):
        with torch.no_grad():
            progress.network.head.weight.fill_(torch.nan)

    with pytest.raises(FloatingPointError, match="epoch 2; lower learning_rate"):
        small(callbacks=[spoil]).fit(X, y)
