"""Features of layers that are not trained."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

import torch
from made_series import ragged, waves
from sklearn.base import clone

from roann.estimators import RoaFeatures, fixed_classifier, fixed_regressor


def test_a_feature_is_how_often_a_state_is_above_its_threshold():
    X, _ = waves(n=6, T=20)
    model = RoaFeatures(hidden_size=8, horizons=(4, 9), thresholds=3, random_state=0).fit(X)
    found = model.transform(X)
    assert found.shape == (6, 2 * 3 * 8)
    inputs = model._preparation(_series(X)).inputs.reshape(6, 20, -1)
    for i in (0, 5):
        parts = []
        for layer, thresholds in zip(model.layers_, model.thresholds_, strict=True):
            states = layer(inputs[i])[0]
            parts += [(states > threshold).double().mean(0) for threshold in thresholds]
        np.testing.assert_allclose(found[i], torch.cat(parts).numpy(), atol=0.051)
        assert np.mean(np.abs(found[i] - torch.cat(parts).numpy())) < 0.002  # ties of rounding


def _series(X):
    from roann.estimators.series import Series

    return Series.of([row[:, None] for row in X])


def test_thresholds_are_spread_over_the_states():
    X, _ = waves(n=12, T=60)
    levels = RoaFeatures(hidden_size=32, random_state=0).fit(X).transform(X).mean(0)
    assert levels.min() < 0.15
    assert levels.max() > 0.85
    assert 0.45 < levels.mean() < 0.55


def test_features_of_unequal_lengths_are_those_of_each_series_alone():
    X, _ = ragged(channels=2)
    model = RoaFeatures(hidden_size=8, random_state=0).fit(X)
    together = model.transform(X)
    alone = np.concatenate([model.transform([x]) for x in X])
    assert np.abs(together - alone).max() < 0.11  # one step of ten, where a state is at a threshold
    assert np.abs(together - alone).mean() < 1e-3


def test_layouts_repeats_clones_and_pickles_agree():
    X, _ = waves(channels=3)
    model = RoaFeatures(hidden_size=8, random_state=3).fit(X)
    found = model.transform(X)
    other = RoaFeatures(hidden_size=8, random_state=3, layout="channels_first")
    assert np.array_equal(other.fit_transform(X.swapaxes(1, 2)), found)
    assert np.array_equal(clone(model).fit_transform(X), found)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).transform(X), found)
    assert not np.array_equal(clone(model).set_params(random_state=4).fit_transform(X), found)


def test_states_stay_small_on_series_much_longer_than_the_horizon():
    X = np.random.default_rng(0).normal(size=(3, 5000))
    for phi in ("identity", "relu", "tanh"):
        model = RoaFeatures(hidden_size=16, horizons=(4,), nonlinearity=phi, random_state=0)
        found = model.fit(X).transform(X)
        assert np.isfinite(found).all()
        assert float(model.thresholds_[0].abs().max()) < 100


def test_gaps_are_features_too():
    X, y = waves()
    X[:, 5:9] = np.nan
    assert fixed_classifier(hidden_size=16, random_state=0).fit(X, y).score(X, y) == 1


def test_a_ridge_on_them_learns_what_a_line_on_the_values_cannot():
    X, y = waves(n=80)
    model = fixed_classifier(hidden_size=32, random_state=0).fit(X[:40], y[:40])
    assert model.score(X[40:], y[40:]) >= 0.95
    speed = np.where(y == "slow", 0.2, 0.5)
    model = fixed_regressor(hidden_size=32, random_state=0).fit(X[:40], speed[:40])
    assert model.score(X[40:], speed[40:]) > 0.8


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"horizons": ()}, "horizons: expected at least one"),
        ({"horizons": (0,)}, "horizons"),
        ({"thresholds": 0}, "thresholds"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"nonlinearity": "cube"}, "nonlinearity"),
        ({"layout": "sideways"}, "layout"),
    ],
)
def test_bad_settings_are_one_sentence(options, said):
    with pytest.raises(ValueError, match=said):
        RoaFeatures(**options).fit(waves()[0])


def test_other_channels_are_refused():
    model = RoaFeatures(hidden_size=4).fit(waves(channels=3)[0])
    with pytest.raises(ValueError, match="expected 3 channels, got 2"):
        model.transform(waves(channels=2)[0])
