"""α(1 + r‖W‖) ≥ 1 gives one warning with its fix, and only where it is true."""

import copy
import warnings

import pytest
import torch

from roann import HypothesisWarning, RoaEuler, RoaFlow, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell
from roann.nn.hypothesis import largest


def gen(seed=0):
    return torch.Generator().manual_seed(seed)


MAKERS = {
    "rnn": lambda **kw: RoaRNN(1, 128, **kw),
    "two layers": lambda **kw: RoaRNN(1, 128, 2, bidirectional=True, **kw),
    "cell": lambda **kw: RoaRNNCell(1, 128, **kw),
    "layer": lambda **kw: RoaLayer(128, 100, **kw),
    "deep": lambda **kw: RoaFNN([128] * 4, **kw),
    "ode": lambda **kw: RoaODE(1, 128, **kw),
    "euler": lambda **kw: RoaEuler(1, 128, **kw),
}
FREE = {"rho": 1.0, "init": "normal", "max_norm": None}  # the paper's
every = pytest.mark.parametrize("name", MAKERS)


@every
def test_it_is_told_at_construction(name):
    """N = 128, horizon 10, N(0, 1): α(1 + ‖W‖) ≈ 2.3."""
    with pytest.warns(HypothesisWarning) as caught:
        MAKERS[name](horizon=10, generator=gen(), **FREE)
    assert len(caught) == 1
    text = str(caught[0].message)
    got = float(text.split("got ")[1].split(":")[0])
    assert 2.1 < got < 2.4
    for cure in ("lower rho", "raise horizon", "max_norm", "roann.certify"):
        assert cure in text
    assert caught[0].filename == __file__, "it points at the line that builds the layer"


@every
@pytest.mark.parametrize(
    "settings",
    [
        {"horizon": 100},
        {"horizon": 10, "rho": 0.1},
        {"horizon": 10, "init": "scaled_normal"},
        {"horizon": 10, "init": "balanced"},  # the default
        {"horizon": 10, "max_norm": 2.0},
        {"alpha": 1.0},  # a plain network: no theorem
        {"alpha": 0.0},
        {"horizon": 10, "device": "meta"},
    ],
    ids=str,
)
def test_the_cures_work(name, settings):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        MAKERS[name](generator=gen(), **FREE | settings)
        MAKERS[name](horizon=10, generator=gen())


@every
def test_once_per_layer_and_never_in_a_forward(name):
    with pytest.warns(HypothesisWarning):
        model = MAKERS[name](horizon=10, generator=gen(), **FREE)
    features = {"layer": 128, "deep": 128}.get(name, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        u = torch.randn(3, 2, features, generator=gen(1))
        model(u[0] if name == "cell" else u)
        model.reset_parameters(gen(1))
        model.load_state_dict(model.state_dict())
        copy.deepcopy(model).reset_parameters(gen(2))


@every
def test_weights_that_are_loaded_are_looked_at(name):
    model = MAKERS[name](horizon=100, generator=gen(), **FREE)
    state = model.state_dict()
    large = {k: 10 * v if "weight" in k else v for k, v in state.items()}
    with pytest.warns(HypothesisWarning, match=r"got 2[0-9.]+:"):
        model.load_state_dict(large)
    ghost = MAKERS[name](rho=1.0, horizon=100, device="meta", max_norm=None)
    with pytest.warns(HypothesisWarning):
        ghost.load_state_dict(large, assign=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # under a cap no weights are too large
        limited = MAKERS[name](horizon=100, max_norm=50.0, generator=gen())
        limited.load_state_dict(large, strict=False)


def test_reset_after_a_quiet_construction():
    model = RoaRNN(1, 128, horizon=10, generator=gen(), **FREE | {"init": "scaled_normal"})
    model.init = "normal"
    with pytest.warns(HypothesisWarning, match="RoaRNN: expected"):
        model.reset_parameters(gen())


def test_the_largest_alpha_of_a_vector_counts():
    alpha = torch.full((128,), 1e-4)
    RoaRNN(1, 128, alpha=alpha, generator=gen(), **FREE)
    alpha[7] = 0.1
    for learn in (False, True):
        with pytest.warns(HypothesisWarning):
            RoaRNN(1, 128, alpha=alpha, learn_rho=learn, generator=gen(), **FREE)


def test_where_no_theorem_is_claimed_nothing_is_said():
    RoaFlow(1, 32, alpha=0.9, reading="euler", generator=gen())


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 5), (60, 60), (4, 6, 6)], ids=str)
@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_never_above_the_true_value_and_rarely_far_below(shape, scale):
    """Power iteration bounds the norm from below, Frobenius' norm clears from above."""
    W = scale * torch.randn(shape, generator=gen(3), dtype=torch.float64)
    each = torch.linspace(0.01, 0.1, shape[-2], dtype=torch.float64)
    each[-1] = 0.1
    for alpha in (each[-1], each):
        exact = float(0.1 * (1 + torch.linalg.matrix_norm(W, 2).max()))
        found = largest(W, alpha, 1.0)
        if found >= 1:
            assert 0.9 * exact <= found <= exact * (1 + 1e-12)
        else:
            assert exact < 1 / 0.9


def test_each_map_is_judged_by_its_own_alpha():
    W = torch.stack([torch.eye(3), 100 * torch.eye(3)])
    assert largest(W, torch.tensor([[0.5], [0.001]]), 1.0) == pytest.approx(1.0)
    assert largest(W, torch.tensor([[0.001], [0.5]]), 1.0) == pytest.approx(50.5)


def test_numbers_that_are_none_are_not_judged():
    cell = RoaRNNCell(2, 3, alpha=0.01, generator=gen())
    state = {k: torch.full_like(v, torch.nan) for k, v in cell.named_parameters()}
    cell.load_state_dict(state, strict=False)
