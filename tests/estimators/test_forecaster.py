"""Forecasts: shapes, one and many steps, exogenous inputs, skill, no look ahead."""

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from roann.estimators import RoaForecaster
from roann.estimators.windows import cut

t = np.arange(240)
WAVE = np.sin(t / 4)


def small(**options):
    base = {"hidden_size": 16, "max_epochs": 8, "random_state": 0}
    return RoaForecaster(**base | options)


@pytest.mark.parametrize("steps", [1, 12])
def test_one_and_many_steps_ahead(steps):
    model = small(steps=steps).fit(WAVE[:-steps])
    assert model.predict() == pytest.approx(WAVE[-steps:], abs=0.2)
    assert model.score(WAVE) > 0.8


def test_a_trend_is_followed_beyond_the_training_data():
    series = WAVE + t / 10
    model = small(steps=6, max_epochs=15).fit(series[:200])
    assert model.predict(series[:234]) == pytest.approx(series[234:], abs=0.5)


def test_shapes_follow_those_of_X():
    X = np.stack([WAVE, np.cos(t / 4)], axis=1)
    tiny = {"steps": 3, "max_epochs": 1, "hidden_size": 4}
    one = small(**tiny).fit(WAVE)
    assert one.predict().shape == one.predict(WAVE[:50]).shape == (3,)
    assert one.predict(torch.tensor(WAVE)).shape == (3,)
    many = small(**tiny).fit(WAVE.reshape(4, 60))
    assert many.predict().shape == many.predict(WAVE.reshape(4, 60)).shape == (4, 3)
    wide = small(**tiny).fit([X, X[:50]])
    assert wide.predict().shape == wide.predict([X[:9], X]).shape == (2, 3, 2)
    assert wide.predict(X[None]).shape == (1, 3, 2)


def test_only_the_last_window_counts():
    model = small(steps=2, window=10, max_epochs=2).fit(WAVE)
    assert np.array_equal(model.predict(WAVE[:100]), model.predict(WAVE[90:100]))
    assert not np.array_equal(model.predict(WAVE[:100]), model.predict(WAVE[95:100]))


def test_the_first_forecast_is_the_last_value():
    model = small(steps=3, learning_rate=1e-12, max_epochs=1).fit(WAVE)
    assert model.predict() == pytest.approx(np.full(3, WAVE[-1]), abs=1e-6)
    assert model.score(WAVE) == pytest.approx(0, abs=1e-6)


def test_exogenous_inputs_are_used():
    """The series is the sum of the inputs so far: nothing but the next input says where it goes."""
    drive = np.random.default_rng(0).normal(size=200)
    series = np.cumsum(drive)
    with_it = small(steps=1, window=4, max_epochs=15).fit(series[:180], exog=drive[:180])
    scores = [
        with_it.predict(series[:k], exog=drive[: k + 1])[0] - series[k] for k in range(180, 200)
    ]
    assert np.mean(np.square(scores)) < 0.2  # without them it is 1
    assert with_it.predict(exog=drive[180:181]).shape == (1,)
    assert np.array_equal(
        with_it.predict(exog=drive[180:181]), with_it.predict(series[:180], exog=drive[:181])
    )
    with pytest.raises(ValueError, match="exog: expected exogenous inputs as fit was given"):
        with_it.predict()
    with pytest.raises(ValueError, match="exog: expected 1 arrays of 181 steps"):
        with_it.predict(series[:180], exog=drive[:180])
    with pytest.raises(ValueError, match="exog: expected exogenous inputs as fit was given"):
        small(max_epochs=1).fit(series).predict(exog=drive)


def test_exogenous_inputs_of_many_series():
    X = WAVE.reshape(4, 60)
    exog = np.random.default_rng(0).normal(size=(4, 62, 3))
    model = small(steps=2, max_epochs=1).fit(X, exog=exog[:, :60])
    assert model.predict(X, exog=exog).shape == (4, 2)
    assert np.array_equal(model.predict(X, exog=exog), model.predict(exog=exog[:, 60:]))


def test_exogenous_inputs_in_a_table():
    pandas = pytest.importorskip("pandas")
    exog = np.random.default_rng(0).normal(size=(62, 2))
    table = pandas.DataFrame(exog, columns=["sun", "wind"])
    model = small(steps=2, max_epochs=1).fit(WAVE[:60], exog=table[:60])
    assert np.array_equal(model.predict(exog=table[60:]), model.predict(exog=exog[60:]))


def test_windows_and_their_targets():
    series = np.arange(10.0)[:, None]
    w = cut([series], None, window=3, steps=2, relative=True)
    assert w.ahead.tolist() == [2, 3, 4, 5, 6, 7]
    assert w.series.split()[0][:, 0].tolist() == [-2, -1, 0]
    assert w.base[:, 0].tolist() == [7, 6, 5, 4, 3, 2]
    assert w.targets[0, :, 0].tolist() == [1, 2]
    plain = cut([series], None, window=3, steps=2, relative=False)
    assert plain.series.split()[0][:, 0].tolist() == [5, 6, 7]
    assert plain.targets[0, :, 0].tolist() == [8, 9]
    exog = 100 + series
    ahead = cut([series], [exog], window=3, steps=2, relative=True).series.split()[0]
    assert ahead[:, 1].tolist() == [105, 106, 107, 108, 109]
    assert np.isnan(ahead[3:, 0]).all()


def test_no_network_trains_on_what_validates():
    model = small(steps=5, validation=0.2, max_epochs=1, window=10).fit(WAVE)
    objective = model._objective(cut([WAVE[:, None]], None, 10, 5, True))
    folds = model._folds(objective, 0, partial=False)
    validating, training = objective.strata[folds == -2], objective.strata[folds == -1]
    assert len(validating) == pytest.approx(0.2 * len(objective.strata), abs=1)
    assert training.min() - 5 >= validating.max()
    assert model.history_[0]["valid_score"] is not None


def test_missing_values():
    series = WAVE.copy()
    series[np.random.default_rng(0).random(240) < 0.15] = np.nan
    model = small(steps=3).fit(series)
    assert np.isfinite(model.predict()).all()
    assert model.score(WAVE) > 0.5


def test_partial_fit_and_several_series():
    model = small(steps=2)
    for _ in range(8):
        model.partial_fit([WAVE[:120, None], WAVE[60:200, None]])
    assert model.score([WAVE[:220, None]]) > 0.5
