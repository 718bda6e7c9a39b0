"""Fitted estimators as ONNX files: equal to predict at lengths they were not exported with."""

import pickle

import numpy as np
import onnx
import onnxruntime
import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from made_series import ragged, waves
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from roann import export_onnx
from roann.estimators import (
    Options,
    RoaClassifier,
    RoaForecaster,
    RoaRegressor,
    fixed_classifier,
    fixed_regressor,
)
from roann.estimators.graphs import POOLINGS
from roann.estimators.network import POOLINGS as TORCH_POOLINGS

TINY = {"hidden_size": 9, "max_epochs": 4, "random_state": 0}
LENGTHS = (1, 2, 17, 90)


def session(model, folder, **options):
    path = folder / "model.onnx"
    export_onnx(model, path, **options)
    return onnxruntime.InferenceSession(path)


def close(found, wanted):
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    # A part in a hundred thousand of the largest answer: probabilities, or units of the targets.
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * max(1, np.abs(wanted).max()))


def drawn(n, T, channels, seed=3, gaps=0.0):
    random = np.random.default_rng(seed)
    X = 50 + 20 * random.normal(size=(n, T, channels)).cumsum(1)
    return np.where(random.random(X.shape) < gaps, np.nan, X)


def padded(rows, value=np.nan):
    """A list of (T_i, C) as (n, T, C), and its lengths."""
    lengths = np.array([len(row) for row in rows])
    X = np.full((len(rows), lengths.max(), rows[0].shape[1]), value)
    for i, row in enumerate(rows):
        X[i, : len(row)] = row
    return X, lengths


def unequal(lengths=(30, 1, 7, 90, 30), channels=2, gaps=0.0):
    return [drawn(1, T, channels, seed=T, gaps=gaps)[0] for T in lengths]


def targets(n):
    return np.random.default_rng(1).integers(0, 3, n)


def classifier(X, **options):
    return RoaClassifier(**TINY | options).fit(X, np.array(["a", "b", "cé"])[targets(len(X))])


SETTINGS = {
    "plain": None,
    "one way": Options(bidirectional=False, pooling="last"),
    "deep": Options(num_layers=2, n_networks=2),
    "all pools": Options(pooling=("max", "change", "mean", "mean_abs", "last")),
    "no differences": Options(differences=False),
}


@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_classifier_at_any_length_and_batch(name, gaps, tmp_path):
    model = classifier(drawn(20, 25, 2, gaps=gaps), options=SETTINGS[name])
    file = session(model, tmp_path)
    assert [i.name for i in file.get_inputs()] == ["input"]
    for T, n in zip(LENGTHS, (3, 1, 65, 4), strict=True):
        X = drawn(n, T, 2, seed=T, gaps=0.3)  # gaps are filled, whether fit saw any or not
        probabilities, labels = file.run(None, {"input": X})
        close(probabilities, model.predict_proba(X))
        assert labels.tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("gaps", [0.0, 0.3])
@pytest.mark.parametrize("name", SETTINGS)
def test_unequal_lengths(name, gaps, tmp_path):
    model = classifier(unequal([25, 12] * 10, gaps=gaps), options=SETTINGS[name])
    file = session(model, tmp_path, lengths=True)
    rows = unequal(gaps=gaps)
    for value in (np.nan, 0.0, 1e30):  # what lies beyond the end does not matter
        X, lengths = padded(rows, value)
        probabilities, labels = file.run(None, {"input": X, "lengths": lengths})
        close(probabilities, model.predict_proba(rows))
        assert labels.tolist() == model.predict(rows).tolist()


def test_every_pooling_has_a_row():
    assert set(POOLINGS) == set(TORCH_POOLINGS)


@pytest.mark.parametrize("classes", [[3, 7], [False, True], [1.0, 2.0], ["no", "yes"]])
def test_labels_are_those_of_the_training_data(classes, tmp_path):
    X, y = waves()
    y = np.array(classes)[(y == "slow").astype(int)]
    model = RoaClassifier(**TINY).fit(X, y)
    _, labels = session(model, tmp_path).run(None, {"input": X[:, :, None]})
    assert labels.tolist() == model.predict(X).tolist()


def test_channels_first(tmp_path):
    X = drawn(20, 25, 3)
    model = classifier(X.swapaxes(1, 2), layout="channels_first")
    file = session(model, tmp_path, lengths=True)
    rows = unequal(channels=3)
    padding, lengths = padded(rows)
    found = file.run(None, {"input": padding.swapaxes(1, 2), "lengths": lengths})[0]
    close(found, model.predict_proba([row.T for row in rows]))


@pytest.mark.parametrize("outputs", [None, 1, 3])
def test_a_regressor_answers_in_the_units_of_its_targets(outputs, tmp_path):
    X = drawn(20, 25, 2)
    y = 1000 + 30 * X[:, :3, 0].mean(1) if outputs is None else 1000 + 30 * X[:, :outputs, 1]
    model = RoaRegressor(**TINY).fit(X, y)
    file = session(model, tmp_path)
    for T in LENGTHS:
        X = drawn(4, T, 2, seed=T)
        (found,) = file.run(None, {"input": X})
        close(found, model.predict(X))
    rows = unequal()
    padding, lengths = padded(rows)
    (found,) = session(model, tmp_path, lengths=True).run(
        None, {"input": padding, "lengths": lengths}
    )
    close(found, model.predict(rows))


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_forecaster_from_histories_of_any_length(channels, relative, tmp_path):
    X = drawn(2, 60, channels, gaps=0.1)
    model = RoaForecaster(steps=4, window=12, relative=relative, **TINY).fit(X)
    file = session(model, tmp_path)
    for T in LENGTHS:
        X = drawn(5, T, channels, seed=T, gaps=0.2)
        X[0, -13:] = np.nan  # nothing is seen in the window: the base lies before it
        (found,) = file.run(None, {"input": X})
        close(found, model.predict(list(X)))
    rows = unequal(channels=channels, gaps=0.2)
    padding, lengths = padded(rows, 7.0)
    file = session(model, tmp_path, lengths=True)
    (found,) = file.run(None, {"input": padding, "lengths": lengths})
    close(found, model.predict(rows))


def test_a_forecaster_with_exogenous_inputs(tmp_path):
    X, exog = drawn(2, 60, 2, gaps=0.1), drawn(2, 60, 3, seed=4)
    model = RoaForecaster(steps=4, window=12, **TINY).fit(X, exog=exog)
    file = session(model, tmp_path)
    for T in LENGTHS:
        X, exog = drawn(5, T, 2, seed=T), drawn(5, T + 4, 3, seed=T)
        (found,) = file.run(None, {"input": X, "exog": exog})
        close(found, model.predict(list(X), exog=list(exog)))
    rows = unequal()
    exog = [drawn(1, len(row) + 4, 3, seed=len(row))[0] for row in rows]
    X, lengths = padded(rows)
    file = session(model, tmp_path, lengths=True)
    (found,) = file.run(None, {"input": X, "exog": padded(exog)[0], "lengths": lengths})
    close(found, model.predict(rows, exog=exog))


@pytest.mark.parametrize("classes", [2, 3])
def test_a_ridge_on_fixed_features(classes, tmp_path):
    rows = unequal([25, 12] * 12, gaps=0.1)
    y = np.array(["a", "b", "c"])[np.arange(24) % classes]
    model = fixed_classifier(hidden_size=8, horizons=(4, 16), thresholds=2, random_state=0)
    model = pickle.loads(pickle.dumps(clone(model).fit(rows, y)))
    rows = unequal(gaps=0.1)
    X, lengths = padded(rows)
    file = session(model, tmp_path, lengths=True)
    scores, labels = file.run(None, {"input": X, "lengths": lengths})
    close(scores, model.decision_function(rows))
    assert labels.tolist() == model.predict(rows).tolist()


@pytest.mark.parametrize("outputs", [None, 2])
def test_a_regression_on_fixed_features(outputs, tmp_path):
    X, _ = waves(channels=2)
    y = X[:, 0, 0] if outputs is None else X[:, :outputs, 0]
    model = fixed_regressor(hidden_size=8, thresholds=2, random_state=0).fit(X, y)
    file = session(model, tmp_path)
    for T in LENGTHS:
        (found,) = file.run(None, {"input": drawn(3, T, 2, seed=T)})
        close(found, model.predict(drawn(3, T, 2, seed=T)))


def test_the_file_has_the_size_of_the_weights(tmp_path):
    model = classifier(ragged(channels=2)[0], hidden_size=200)
    session(model, tmp_path)
    tensors = [*model.networks_[0].parameters(), *model.networks_[0].buffers()]
    size = (tmp_path / "model.onnx").stat().st_size
    assert size < 1.02 * sum(t.numel() * t.itemsize for t in tensors) + 20_000
    nodes = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert nodes.count("Scan") == 3  # two directions, and the last value seen


def test_what_cannot_be_exported_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(NotFittedError, match="RoaClassifier instance is not fitted yet"):
        export_onnx(RoaClassifier(), tmp_path / "model.onnx")
    X, y = waves()
    model = RoaClassifier(**TINY).fit(X, y, times=np.arange(30.0))
    with pytest.raises(ValueError, match="estimator: expected one without time stamps, got"):
        export_onnx(model, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="step: expected False for an Exportable"):
        export_onnx(RoaClassifier(**TINY).fit(X, y), tmp_path / "model.onnx", step=True)
    assert not list(tmp_path.iterdir())
