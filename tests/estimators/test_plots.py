"""Certificate, memory and pictures of fitted estimators."""

import sys

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

from made_series import ragged, waves

from roann.estimators import Options, RoaClassifier, RoaForecaster, RoaRegressor


@pytest.fixture(scope="module")
def model():
    X, y = waves()
    options = {"hidden_size": 8, "max_epochs": 4, "validation": 0.2}
    options["options"] = Options(n_networks=2)
    return RoaClassifier(random_state=0, **options).fit(X, y)


@pytest.fixture
def pyplot():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    yield pyplot
    pyplot.close("all")


def test_the_certificate_is_of_the_fitted_recurrence(model):
    certificate = model.certificate_
    assert certificate.maps == 30
    assert certificate.inside
    assert certificate.max_norm is not None
    assert certificate is model.certificate_
    X, y = waves()
    assert model.__class__(hidden_size=4, max_epochs=1).fit(X, y, times=np.arange(30)).certificate_


def test_memory_is_the_gradient_at_each_step():
    """Against finite differences of what the network answers."""
    X, _ = waves(n=12, T=9)
    options = {"hidden_size": 6, "max_epochs": 5, "options": Options(differences=False)}
    model = RoaRegressor(random_state=0, **options).fit(X, X.mean(1))
    (norms,) = model.memory(X[:1])
    assert norms.shape == (9,)
    for k in range(9):
        moved = np.repeat(X[:1], 2, axis=0)
        moved[:, k] += np.array([1, -1]) * 0.02
        up, down = (model.predict(moved) - model._center) / model._spread
        slope = abs(up - down) / (0.04 / model._preparation.scale[0])
        assert norms[k] == pytest.approx(slope, rel=0.05, abs=1e-3)


def test_memory_of_unequal_lengths():
    X, y = ragged()
    model = RoaClassifier(hidden_size=6, max_epochs=2, random_state=0).fit(X, y)
    assert [len(m) for m in model.memory(X)] == [len(x) for x in X]


def test_pictures(model, pyplot):
    X, _ = waves()
    ax = model.plot_history()
    assert ax.get_xlabel() == "epoch"
    assert len(ax.lines) == 4  # two networks, training and validation
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["training", "validation"]
    ax = model.plot_memory(X)
    assert ax.get_xlabel() == "steps before the end"
    assert np.sum(ax.lines[0].get_ydata()) == pytest.approx(1)
    _, mine = pyplot.subplots()
    assert model.plot_memory(X, ax=mine) is mine
    forecaster = RoaForecaster(hidden_size=4, max_epochs=1, window=7).fit(np.arange(40.0))
    assert len(forecaster.plot_memory(np.arange(40.0)).lines[0].get_xdata()) == 7


def test_without_matplotlib_the_extra_is_named(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'roann\[lab\]'"):
        model.plot_history()


def test_without_scikit_learn_the_extra_is_named(monkeypatch):
    for name in [n for n in sys.modules if n.startswith("roann.estimators")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'roann\[estimators\]'"):
        import roann.estimators  # noqa: F401
