"""Every form of X is read as the same series; what cannot be read is refused in one sentence."""

from datetime import date, timedelta

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from made_series import ragged, waves

from roann.estimators import (
    RoaClassifier,
)
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
        (np.full(30, "NaT", "datetime64[s]"), "never fall"),
        (np.arange(30) * 1j, "times: expected real numbers, got complex"),
    ],
)
def test_time_stamps_that_do_not_fit(times, words):
    with pytest.raises(ValueError, match=words):
        stamped(values(waves(n=4)[0]), times)


def test_time_stamps_that_are_text():
    with pytest.raises(TypeError, match=r"got '2026-01-01'; convert text with pandas.to_datetime"):
        stamped(values(waves(n=4)[0]), ["2026-01-01"] * 30)


@pytest.mark.parametrize("times", [3, "2026-01-01", {"a": 1}])
def test_time_stamps_that_are_no_list(times):
    with pytest.raises(TypeError, match="times: expected an array or a list of time stamps, got"):
        stamped(values(waves(n=4)[0]), times)


def test_time_stamps_may_be_days():
    days = [date(2026, 1, 1) + timedelta(k) for k in range(30)]
    found = stamped(values(waves(n=4)[0]), days)
    assert np.array_equal(np.diff(found.times[:30]), np.full(29, 86_400.0))


def test_masked_values_are_missing():
    X, _ = waves(n=4, channels=2)
    masked = np.ma.masked_greater(X, 0.5)
    wanted = np.where(X > 0.5, np.nan, X)
    for form in (masked, list(masked), [masked[0, :9], *masked[1:]]):
        other = [wanted[0, :9], *wanted[1:]] if len(form[0]) == 9 else wanted
        assert np.array_equal(values(form).values, values(other).values, equal_nan=True)
    flat = values(list(masked[:, :, 0])).values
    assert np.array_equal(flat, values(wanted[:, :, 0]).values, equal_nan=True)
    pandas = pytest.importorskip("pandas")
    whole = pandas.DataFrame({"a": [1, None, 3], "b": [4, 5, None]}, dtype="Int64")
    assert np.array_equal(values([whole] * 2).values[:3, 0], [1, np.nan, 3], equal_nan=True)
    assert np.array_equal(values(whole).values[:2, 0], [1, 4])


def test_what_torch_has_for_unequal_series():
    parts, _ = ragged()
    tensors = [torch.tensor(part, dtype=torch.float64) for part in parts]
    wanted = values(parts)
    packed = torch.nn.utils.rnn.pack_sequence(tensors, enforce_sorted=False)
    nested = torch.nested.nested_tensor(tensors, layout=torch.jagged)
    for form in (packed, nested):
        found = values(form)
        assert np.array_equal(found.values, wanted.values)
        assert np.array_equal(found.lengths, wanted.lengths)
    half = values([tensor.bfloat16() for tensor in tensors])
    assert np.array_equal(half.values, torch.cat(tensors).bfloat16().double().numpy())


def test_a_series_of_pandas_that_holds_arrays():
    pandas = pytest.importorskip("pandas")
    parts, _ = ragged()
    assert np.array_equal(values(pandas.Series(parts)).values, values(parts).values)
