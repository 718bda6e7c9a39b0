"""scikit-learn's own contract: its checks, pipelines, searches, clones, pickles."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

import joblib
from made_series import waves
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from roann.estimators import RoaClassifier, RoaFeatures, RoaForecaster, RoaRegressor

TINY = {"hidden_size": 6, "max_epochs": 8, "batch_size": 32, "random_state": 0}


@parametrize_with_checks(
    [
        RoaClassifier(**TINY),
        RoaRegressor(**TINY | {"hidden_size": 12, "max_epochs": 30}),
        RoaForecaster(**TINY),
        RoaFeatures(hidden_size=4, random_state=0),
    ]
)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def small(**options):
    return RoaClassifier(**{"hidden_size": 8, "max_epochs": 15, "random_state": 0} | options)


def test_in_a_pipeline_and_a_search_with_two_jobs():
    X, y = waves()
    pipeline = make_pipeline(StandardScaler(), small())
    grid = {"roaclassifier__hidden_size": [4, 8]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2).fit(X, y)
    assert search.best_params_["roaclassifier__hidden_size"] in (4, 8)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == (24,)


def test_a_search_over_series_of_several_channels():
    X, y = waves(channels=3)
    assert cross_val_score(small(), X, y, cv=3).shape == (3,)


def test_a_forecaster_in_a_search():
    series = np.sin(np.arange(120) / 4)
    grid = {"window": [8, 16]}
    model = RoaForecaster(steps=3, hidden_size=8, max_epochs=3, random_state=0)
    search = GridSearchCV(model, grid, cv=TimeSeriesSplit(2)).fit(series)
    assert search.best_estimator_.predict().shape == (3,)


def test_a_clone_is_unfitted_and_fits_the_same():
    X, y = waves()
    model = small(pooling=("last", "max"), layer_options={"rho": 0.5}).fit(X, y)
    copy = clone(model)
    assert not hasattr(copy, "networks_")
    assert copy.get_params() == model.get_params()
    assert np.array_equal(copy.fit(X, y).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("store", ["pickle", "joblib"])
def test_a_stored_model_answers_and_learns_on(store, tmp_path):
    X, y = waves()
    model = small().fit(X, y)
    if store == "pickle":
        other = pickle.loads(pickle.dumps(model))
    else:
        joblib.dump(model, tmp_path / "model.joblib")
        other = joblib.load(tmp_path / "model.joblib")
    assert np.array_equal(model.predict_proba(X), other.predict_proba(X))
    for each in (model, other):
        each.partial_fit(X, y)
    assert np.array_equal(model.predict_proba(X), other.predict_proba(X))
