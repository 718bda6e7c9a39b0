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

from roann.estimators import Options, RoaClassifier, RoaFeatures, RoaForecaster, RoaRegressor

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


def test_the_answer_for_a_series_does_not_depend_on_the_others():
    X, y = waves()
    model = small().fit(X, y)
    alone = np.concatenate([model.predict_proba(X[i : i + 1]) for i in range(len(X))])
    np.testing.assert_allclose(alone, model.predict_proba(X), rtol=0, atol=1e-13)


def test_in_a_pipeline_and_a_search_with_two_jobs():
    X, y = waves()
    pipeline = make_pipeline(StandardScaler(), small())
    grid = {"roaclassifier__hidden_size": [4, 8]}
    search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2).fit(X, y)
    assert search.best_params_["roaclassifier__hidden_size"] in (4, 8)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == (24,)


@pytest.mark.parametrize("options", [None, Options(num_layers=2)])
def test_a_search_sets_rare_options_by_name(options):
    X, y = waves()
    grid = {"options__dropout": [0.0, 0.5], "options__pooling": ["last", ("max", "mean")]}
    search = GridSearchCV(small(max_epochs=2, options=options), grid, cv=2).fit(X, y)
    found = search.best_estimator_
    assert {f"options__{k}": getattr(found.options, k) for k in ("dropout", "pooling")} == (
        search.best_params_
    )
    assert found.networks_[0].plan.dropout == search.best_params_["options__dropout"]
    assert found.networks_[0].plan.num_layers == (1 if options is None else 2)
    assert found.get_params()["options__n_networks"] == 1
    assert search.estimator.options is options  # the original is as it was
    with pytest.raises(ValueError, match="Invalid parameter 'dropped'"):
        small().set_params(options__dropped=1)


@pytest.mark.parametrize(
    ("estimator", "own"),
    [
        (RoaClassifier, {"class_weight"}),
        (RoaRegressor, set()),
        (RoaForecaster, {"steps", "window", "relative"}),
    ],
)
def test_shared_arguments_stand_once(estimator, own):
    shared = set(RoaRegressor().get_params())
    assert set(estimator().get_params()) == shared | own
    assert len(shared) <= 13
    with pytest.raises(TypeError, match="unexpected keyword argument 'dropout'"):
        estimator(dropout=0.1)


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
    model = small(options=Options(pooling=("last", "max"), layer={"rho": 0.5})).fit(X, y)
    copy = clone(model)
    assert not hasattr(copy, "networks_")
    assert copy.options is not model.options
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
