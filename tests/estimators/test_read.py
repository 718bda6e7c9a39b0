"""Every form of X is read as the same series; what cannot be read is refused in one sentence."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from made_series import ragged, waves

from roann.estimators import Options, RoaClassifier, RoaForecaster, RoaRegressor
from roann.estimators.read import read, stamped


def fitted(**options):
    X, y = waves(channels=2)
    base = {"hidden_size": 4, "max_epochs": 1, "random_state": 0}
    return RoaClassifier(**base | options).fit(X, y)


def values(X, layout="channels_last", times=None):
    return read(RoaClassifier(layout=layout), X, times, reset=True)


def test_all_forms_are_one_set():
    pandas = pytest.importorskip("pandas")
    X, _ = waves(channels=2)
    index = pandas.MultiIndex.from_product([range(len(X)), range(X.shape[1])])
    forms = [
        X, torch.tensor(X), list(X), [torch.tensor(x) for x in X], X.tolist(),
        [pandas.DataFrame(x) for x in X], pandas.DataFrame(X.reshape(-1, 2), index=index),
    ]  # fmt: skip
    wanted = values(X)
    for form in forms:
        found = values(form)
        assert np.array_equal(found.values, wanted.values)
        assert np.array_equal(found.lengths, wanted.lengths)


def test_tables_are_series_of_one_channel():
    pandas = pytest.importorskip("pandas")
    X, _ = waves()
    for form in (X, torch.tensor(X), X.tolist(), pandas.DataFrame(X), X[:, :, None], list(X)):
        found = values(form)
        assert found.channels == 1
        assert np.array_equal(found.values[:30, 0], X[0])


def test_channels_first():
    X, _ = waves(channels=3)
    turned = values(np.swapaxes(X, 1, 2), "channels_first")
    assert np.array_equal(turned.values, values(X).values)
    parts, _ = ragged(channels=3)
    turned = values([part.T for part in parts], "channels_first")
    assert np.array_equal(turned.values, values(parts).values)


def long_table(X):
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_product([range(len(X)), range(X.shape[1])])
    return pandas.DataFrame(X.reshape(-1, X.shape[2]), index=index)


def test_the_columns_of_a_long_table_are_channels_in_any_layout():
    X, y = waves(channels=2)
    table = long_table(X)
    assert np.array_equal(values(table, "channels_first").values, values(X).values)
    model = fitted()
    assert model.score(table, y) == model.score(X, y)


def test_a_long_table_out_of_order_is_refused():
    table = long_table(waves(n=3, channels=2)[0])
    with pytest.raises(ValueError, match=r"got others in series 1; sort it with X.sort_index\(\)"):
        values(table.iloc[[*range(30), *range(59, 29, -1), *range(60, 90)]])


def test_an_object_array_of_unequal_series():
    parts, _ = ragged()
    boxed = np.empty(len(parts), dtype=object)
    boxed[:] = parts
    assert np.array_equal(values(boxed).values, values(parts).values)


def test_unequal_series_of_one_channel_need_no_second_dimension():
    parts, _ = ragged()
    assert np.array_equal(values([part[:, 0] for part in parts]).values, values(parts).values)


def test_time_stamps_for_all_for_each_and_as_dates():
    X, _ = waves(n=4)
    series = values(X)
    t = np.arange(30) * 60.0
    days = np.datetime64("2026-01-01T00:00") + np.arange(30).astype("timedelta64[m]")
    for form in (t, np.tile(t, (4, 1)), [t] * 4, torch.tensor(t)):
        assert np.array_equal(stamped(series, form).times, np.tile(t, 4))
    steps = stamped(series, days).intervals(60.0)
    assert np.array_equal(steps, np.full(120, 60.0))
    pandas = pytest.importorskip("pandas")
    zoned = pandas.DatetimeIndex(days, tz="Europe/Rome")
    assert np.array_equal(stamped(series, zoned).intervals(60.0), steps)


@pytest.mark.parametrize(
    ("times", "words"),
    [
        (np.arange(29), "one time stamp for each step"),
        ([np.arange(30)] * 3, "one time stamp for each step"),
        (-np.arange(30), "never fall"),
        (np.full(30, np.nan), "never fall"),
    ],
)
def test_time_stamps_that_do_not_fit(times, words):
    with pytest.raises(ValueError, match=words):
        stamped(values(waves(n=4)[0]), times)


def test_time_stamps_that_are_text():
    with pytest.raises(TypeError, match=r"got '2026-01-01'; convert text with pandas.to_datetime"):
        stamped(values(waves(n=4)[0]), ["2026-01-01"] * 30)


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
    (lambda X, y: (X[:, :, :, None], y), "dim 4"),
    (lambda X, y: ([], []), "X: expected at least one series, got an empty list"),
    (lambda X, y: (X[0, :, 0], y), r"got shape \(30,\); Reshape your data with X\[None\]"),
    (lambda X, y: (X[0, :, 0].tolist(), y), "got one row; Reshape your data"),
    (lambda X, y: (X[:, :, 0] @ np.ones((30, 1)), y), r"pass one series as \[X\]"),
]


@pytest.mark.parametrize(("spoil", "words"), BAD)
def test_bad_training_data_are_refused_in_one_sentence(spoil, words):
    X, y = spoil(*waves(channels=2))
    with pytest.raises(ValueError, match=words) as caught:
        RoaClassifier(hidden_size=4, max_epochs=1).fit(X, y)
    assert len(str(caught.value).splitlines()) == 1


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
    ],
)
def test_parameters_are_checked_in_fit(options, words):
    with pytest.raises((ValueError, TypeError), match=words):
        fitted(**options)


def test_numbers_of_numpy_are_numbers():
    model = fitted(hidden_size=np.int64(4), horizon=np.float32(9), max_epochs=np.int32(1))
    assert model.networks_[0].plan.hidden_size == 4
    assert model.horizon_ == 9


def test_regression_targets_are_checked():
    X, _ = waves()
    with pytest.raises(ValueError, match="y contains infinity"):
        RoaRegressor(hidden_size=4).fit(X, np.full(24, np.inf))


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
