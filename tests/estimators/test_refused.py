"""What an estimator cannot read is refused in one sentence."""

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from made_series import waves

from roann.estimators import (
    Options,
    RoaClassifier,
    RoaForecaster,
    RoaRegressor,
    fixed_classifier,
    fixed_regressor,
)


def fitted(**options):
    X, y = waves(channels=2)
    base = {"hidden_size": 4, "max_epochs": 1, "random_state": 0}
    return RoaClassifier(**base | options).fit(X, y)


BAD = [
    (lambda X, y: (X[:0], y[:0]), "0 sample"),
    (lambda X, y: (X, ["slow"] * len(y)), "one class"),
    (lambda X, y: (X[:, :1], y), "at least 2 steps, got T = 1"),
    (lambda X, y: (np.where(X > 0.9, np.inf, X), y), "infinity"),
    (lambda X, y: ([*np.where(X > 0.9, np.inf, X)[:-1], X[-1, :5]], y), "infinity in series"),
    (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
    (lambda X, y: (X, None), "requires y"),
    (lambda X, y: ([*X[:-1], X[-1, :0]], y), "none in series 23"),
    (lambda X, y: ([*X[:-1], X[-1, :9, :1]], y), "1 in series 23"),
    (lambda X, y: (X[:, :, :, None], y), r"got shape \(24, 30, 2, 1\)"),
    (lambda X, y: ([], []), "X: expected at least one series, got an empty list"),
    (lambda X, y: (X[0, :, 0], y), r"got shape \(30,\); Reshape your data with X\[None\]"),
    (lambda X, y: (X[0, :, 0].tolist(), y), "got one row; Reshape your data"),
    (lambda X, y: (X[:, :, 0] @ np.ones((30, 1)), y), r"pass one series as \[X\]"),
    (lambda X, y: (X[:, :, :0], y), r"got shape \(24, 30, 0\)"),
    (lambda X, y: (X * 1j, y), "X: expected real numbers, got complex ones; Complex data not"),
    (lambda X, y: (list(X * 1j), y), "got complex ones in series 0"),
    (lambda X, y: (X.astype("datetime64[s]"), y), "X: expected real numbers, got dates; turn"),
    (lambda X, y: (X.astype("timedelta64[s]")[:, :, 0], y), "got time differences"),
    (lambda X, y: (X.astype(str).astype(object) + "x", y), "X: expected numbers, got something"),
    (lambda X, y: ([["a", "b"]] * 24, y), "got something else; could not convert string .* 'a'"),
    (lambda X, y: ([None, *X[1:]], y), r"shape \(T,\) or \(T, C\), got \(\) for series 0"),
    (lambda X, y: (X * 1e308, y), "X: expected finite numbers or NaN, got -?[0-9.]+e.307 in"),
]


@pytest.mark.parametrize(("spoil", "words"), BAD)
def test_bad_training_data_are_refused_in_one_sentence(spoil, words):
    X, y = spoil(*waves(channels=2))
    with pytest.raises(ValueError, match=words) as caught:
        RoaClassifier(hidden_size=4, max_epochs=1).fit(X, y)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("make", [fixed_classifier, fixed_regressor, RoaRegressor])
def test_all_estimators_refuse_the_same(make):
    X, y = waves()
    y = y if make is fixed_classifier else np.arange(24.0)
    options = {"hidden_size": 4, "random_state": 0}
    for bad, words in [
        (X * 1j, "complex"),
        (X.astype("datetime64[s]"), "dates"),
        (X[:0], "expected|0 sample"),
    ]:
        with pytest.raises(ValueError, match=words) as caught:
            make(**options).fit(bad, y[: len(bad)])
        assert len(str(caught.value).splitlines()) == 1
    for bad, words in [(None, "requires y"), (["a"] * 24, "one class|y: expected numbers"),
                       (y[:1], "at least two|inconsistent numbers"), (3, "y")]:  # fmt: skip
        with pytest.raises(ValueError, match=words) as caught:
            make(**options).fit(X, bad)
        assert len(str(caught.value).splitlines()) == 1


def test_targets_of_a_regression_are_numbers():
    X, _ = waves()
    model = RoaRegressor(hidden_size=4, max_epochs=1)
    for y, words in [
        (np.full(24, np.nan), "y: expected finite numbers, got NaN"),
        (np.full(24, np.inf), "y: expected finite numbers, got infinity"),
        (np.full(24, 1j), "y: expected real numbers, got complex"),
        (np.arange(24).astype("datetime64[D]"), "y: expected real numbers, got dates"),
        (np.zeros((24, 2, 2)), r"y: expected shape \(n,\) or \(n, K\), got \(24, 2, 2\)"),
    ]:
        with pytest.raises(ValueError, match=words):
            model.fit(X, y)


def test_channels_keep_their_names():
    pandas = pytest.importorskip("pandas")
    X, y = waves(channels=2)
    named = [pandas.DataFrame(x, columns=["u", "v"]) for x in X]
    model = RoaClassifier(hidden_size=4, max_epochs=1, random_state=0)
    with pytest.raises(ValueError, match=r"X: expected columns \['u', 'v'\], got \['v', 'u'\] in"):
        model.fit([*named[:-1], named[-1][["v", "u"]]], y)
    answers = model.fit(named, y).predict_proba(X)
    assert np.array_equal(model.predict_proba(named), answers)
    table = pandas.concat(dict(enumerate(named)))
    assert np.array_equal(model.predict_proba(table), answers)
    for form in ([part[["v", "u"]] for part in named], table[["v", "u"]]):
        with pytest.raises(ValueError, match=r"X: expected columns .* select the columns that fit"):
            model.predict(form)


@pytest.mark.parametrize("X", [None, 3, {"a": [1.0]}, iter([[1.0, 2.0]])])
def test_what_is_no_set_of_series_is_refused(X):
    with pytest.raises(TypeError, match="X: expected an array, a tensor, a table or a list"):
        RoaClassifier().fit(X, [0, 1])


def test_one_series_is_no_set_of_single_steps():
    X, y = waves()
    X = X[:, :, None]
    model = RoaClassifier(hidden_size=4, max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=r"got shape \(30, 1\); Reshape your data with X\[None"):
        model.predict(X[0])
    assert model.predict(X[0][None]).shape == (1,)
    assert model.predict(X[:, :1]).shape == (24,)


def test_other_channels_at_predict():
    X, _ = waves(channels=3)
    with pytest.raises(ValueError, match=r"X: expected 2 channels, got 3; pass the channels"):
        fitted().predict(X)


def test_another_length_at_predict():
    X, y = waves()
    model = RoaClassifier(hidden_size=4, max_epochs=1).fit(X, y)
    with pytest.raises(ValueError, match=r"has 20 features.*pass series of another length as"):
        model.predict(X[:, :20])
    assert model.predict(X[:, :20, None]).shape == (24,)
    assert model.predict([row[:5] for row in X[:3]] + [X[3]]).shape == (4,)


def test_infinities_at_predict():
    X, _ = waves(channels=2)
    X[0, 0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        fitted().predict(X)


def test_values_far_from_the_training_data_give_finite_answers():
    X, _ = waves(channels=2)
    assert np.isfinite(fitted().predict_proba(X * 1e300)).all()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": "channel_first"}, "did you mean 'channels_first'"),
        ({"options": Options(pooling=("last", "median"))}, "pooling: expected one of"),
        ({"options": Options(pooling=())}, "at least one name"),
        ({"options": Options(dropout=1.0)}, "dropout"),
        ({"hidden_size": 0}, "hidden_size: expected at least 1"),
        ({"validation": 1.5}, "validation: expected a fraction"),
        ({"validation": "never"}, "validation: expected one of"),
        ({"options": {"dropout": 0.1}}, "options: expected roann.estimators.Options, got dict"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"horizon": "long"}, "horizon: expected a number, got 'long'"),
        ({"callbacks": print}, r"callbacks: expected a list of functions.*pass \[callback\]"),
        ({"callbacks": [3]}, "callbacks: expected a list of functions"),
        ({"options": Options(weight_decay=-1.0)}, "weight_decay: expected at least 0"),
        ({"options": Options(pooling=3)}, "pooling: expected names of statistics, got 3"),
        ({"options": Options(layer=3)}, "layer: expected a dictionary, got 3"),
        ({"options": Options(layer={"rhoo": 1})}, "layer: .* did you mean 'rho'"),
        ({"options": Options(layer={"batch_first": True})}, "layer: expected one of"),
        ({"class_weight": {"slow": -1.0, "fast": 1.0}}, "class_weight: expected finite weights"),
        ({"device": "gpu"}, "device: expected a device that torch has here, got 'gpu'"),
    ],
)
def test_parameters_are_checked_in_fit(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fitted(**options)


def test_numbers_of_numpy_are_numbers():
    model = fitted(hidden_size=np.int64(4), horizon=np.float32(9), max_epochs=np.int32(1))
    assert model.networks_[0].plan.hidden_size == 4
    assert model.horizon_ == 9


def test_a_score_needs_a_weight_for_each_series():
    X, y = waves(channels=2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fitted().score(X, y, sample_weight=[1.0, 2.0])


def test_exogenous_inputs_are_checked():
    pandas = pytest.importorskip("pandas")
    x, model = np.sin(np.arange(40.0)), RoaForecaster(steps=2, hidden_size=4, max_epochs=1)
    for exog, words in [
        (3, "exog: expected an array or a list"), ([], "exog: expected an array or a list"),
        (["a"] * 40, "exog: expected numbers, got something else"),
        (x * 1j, "exog: expected real numbers, got complex"),
        (np.where(x > 0.9, np.inf, x), "exog: expected finite numbers or NaN, got infinity"),
        (np.zeros((40, 0)), r"exog: expected shape \(T,\) or \(T, E\)"),
    ]:  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=words):
            model.fit(x, exog=exog)
    table = pandas.DataFrame({"a": x, "b": -x})
    model.fit(x, exog=table)
    assert model.predict(exog=table[:2]).shape == (2,)
    with pytest.raises(ValueError, match=r"exog: expected columns \['a', 'b'\], got \['b', 'a'\]"):
        model.predict(exog=table[["b", "a"]][:2])


def test_a_forecaster_needs_values_to_learn_from_and_to_be_scored_on():
    x = np.sin(np.arange(40.0))
    model = RoaForecaster(steps=2, hidden_size=4, max_epochs=1)
    with pytest.raises(ValueError, match=r"X: expected values after .* NaN alone in channel 1"):
        model.fit([np.stack([x, np.full(40, np.nan)], axis=1)])
    model.fit(x)
    with pytest.raises(ValueError, match="a value among the last 2 steps, got NaN alone"):
        model.score(np.concatenate([x[:-2], [np.nan, np.nan]]))
    far = RoaForecaster(steps=2, hidden_size=4, max_epochs=1).fit(x * 1e200).predict()
    assert np.isfinite(far).all()


def test_a_forecaster_needs_more_than_its_steps():
    with pytest.raises(ValueError, match=r"at least steps \+ 1 = 13 steps, got 12 in series 0"):
        RoaForecaster(steps=12).fit(np.arange(12.0))
    with pytest.raises(ValueError, match="y: expected None with one series"):
        RoaForecaster().fit(np.arange(12.0), np.arange(12.0))


def test_a_forecaster_asks_what_the_rows_of_a_table_of_dates_are():
    pandas = pytest.importorskip("pandas")
    dates = pandas.date_range("2026-01-01", periods=40)
    table = pandas.DataFrame(np.random.default_rng(0).normal(size=(40, 5)), index=dates)
    model = RoaForecaster(steps=2, hidden_size=4, max_epochs=1)
    with pytest.raises(ValueError, match=r"a date for each row; pass \[X\] for one series"):
        model.fit(table)
    assert model.fit([table]).predict().shape == (1, 2, 5)
    assert model.fit(table[0]).predict().shape == (2,)
