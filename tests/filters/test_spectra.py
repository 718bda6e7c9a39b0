"""Designed spectra: the eigenvalues they claim, their real powers, and what they refuse."""

import math

import pytest
import torch

from roann import Roa, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell, filters
from roann.filters import Angles, Broad, Slow, Spread, Still

f64 = torch.float64
NAMES = ("broad", "still", "slow", "spread")
WIDTHS = (1, 2, 3, 6, 7, 16, 33)
named = pytest.mark.parametrize("name", NAMES)


def claimed(name, planes, horizon):
    """θ of every plane, from the words of the documentation, by Python alone."""
    if name == "still":
        return [0.0] * planes
    if name == "slow":
        n = max(planes - 1, 1)
        return [math.pi * (4 * horizon) ** -(1 - j / n) for j in range(planes)]
    if name == "spread":
        return [math.pi * (j + 0.5) / planes for j in range(planes)]
    still, slow = planes // 2, planes // 8
    rest = claimed("spread", planes - still - slow, horizon)
    return claimed("still", still, horizon) + claimed("slow", slow, horizon) + rest


def eigenvalues(angles, width):
    """e^(±iθ) for every plane, and 1 for a coordinate without one; sorted by their angle."""
    found = [s * a for a in angles for s in (1, -1)] + [0.0] * (width % 2)
    return torch.tensor(sorted(found), dtype=f64)


def angles_of(O):
    return torch.linalg.eigvals(O.to_dense()).angle().sort().values


@named
@pytest.mark.parametrize("horizon", [1.0, 50.0, 1e6])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_eigenvalues_are_those_it_claims(name, horizon, width):
    O = filters.make({"name": name, "horizon": horizon}, width, dtype=f64)
    expected = eigenvalues(claimed(name, width // 2, horizon), width)
    found = torch.linalg.eigvals(O.to_dense())
    torch.testing.assert_close(found.abs(), torch.ones(width, dtype=f64), rtol=1e-13, atol=0)
    # −π and π are one angle: compared on the circle.
    order = found.angle().abs().sort().values
    torch.testing.assert_close(order, expected.abs().sort().values, rtol=1e-9, atol=1e-13)
    assert float(torch.linalg.det(O.to_dense())) == pytest.approx(1)


def test_the_slowest_plane_makes_an_eighth_of_a_turn_in_a_horizon():
    O = Slow(8, horizon=1000, dtype=f64)
    x = torch.zeros(8, dtype=f64)
    x[0] = 1.0
    for _ in range(1000):
        x = O.matvec(x)
    exact = torch.tensor([math.cos(math.pi / 4), -math.sin(math.pi / 4)], dtype=f64)
    torch.testing.assert_close(x[:2], exact, rtol=1e-11, atol=0)


@named
@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (7, 2), (1, 6), (6, 1)], ids=str)
def test_a_rectangle_is_a_corner_of_the_square(name, shape):
    square = filters.make(name, max(shape), horizon=50, dtype=f64).to_dense()
    O = filters.make(name, *shape, horizon=50, dtype=f64)
    assert torch.equal(O.to_dense(), square[: shape[0], : shape[1]])


@named
@pytest.mark.parametrize("width", [2, 7, 16])
def test_powers_compose(name, width):
    O = filters.make(name, width, horizon=20, dtype=f64)
    for s in (0.3, 1.0, -2.7):
        power = torch.tensor(s, dtype=f64)
        once, twice = O.turned(power).to_dense(), O.turned(2 * power).to_dense()
        torch.testing.assert_close(once @ once, twice, rtol=0, atol=1e-14)
    torch.testing.assert_close(O.turned(torch.ones((), dtype=f64)).to_dense(), O.to_dense())
    assert torch.equal(O.turned(torch.zeros((), dtype=f64)).to_dense(), torch.eye(width, dtype=f64))
    inverse = O.turned(torch.tensor(-1.0, dtype=f64)).to_dense()
    torch.testing.assert_close(inverse, O.to_dense().mT, rtol=0, atol=1e-15)
    steps = torch.tensor([[0.5], [2.0]], dtype=f64)
    for k, one in enumerate(O.turned(steps).to_dense()):
        assert torch.equal(one, O.turned(steps[k, 0]).to_dense())


@pytest.mark.parametrize("name", [*NAMES, "rotations", "identity"])
@pytest.mark.parametrize("lead", [(), (4,), (3, 4)], ids=str)
@pytest.mark.parametrize("width", [6, 7])
def test_the_generator_is_the_derivative_of_the_powers(name, lead, width):
    O = filters.make(name, width, generator=torch.Generator().manual_seed(0), dtype=f64)
    x = torch.randn(*lead, width, generator=torch.Generator().manual_seed(1), dtype=f64)
    zero, one = torch.zeros((), dtype=f64), torch.ones((), dtype=f64)
    _, exact = torch.func.jvp(lambda s: O.turned(s).matvec(x) + 0 * s, (zero,), (one,))
    torch.testing.assert_close(O.generator_of(x), exact, rtol=1e-13, atol=1e-14)
    if not lead:  # and O is its exponential
        G = torch.stack([O.generator_of(e) for e in torch.eye(width, dtype=f64)], 1)
        exponential = torch.linalg.matrix_exp(G)
        torch.testing.assert_close(exponential, O.to_dense().to(f64), rtol=0, atol=1e-12)


def test_a_filter_without_powers_says_so():
    for name in ("qr", "haar", "permutation", "cycle", "householder"):
        O = filters.make(name, 4)
        assert not O.has_powers
        with pytest.raises(ValueError, match=f"filter: expected one with real .* got '{name}'"):
            O.turned(torch.ones(()))
        with pytest.raises(ValueError, match="filter: expected one with real powers"):
            O.generator_of(torch.ones(4))


def test_angles_of_your_own():
    given = [0.3, -1.2, 2 * math.pi]
    O = Angles(7, angles=given, dtype=f64)
    torch.testing.assert_close(
        angles_of(O), torch.tensor([-1.2, -0.3, 0, 0, 0, 0.3, 1.2], dtype=f64), rtol=0, atol=1e-14
    )
    x = torch.tensor([1.0, 0, 0, 1, 0, 0, 5], dtype=f64)
    exact = [math.cos(0.3), -math.sin(0.3), math.sin(-1.2), math.cos(-1.2), 0, 0, 5]
    torch.testing.assert_close(O.matvec(x), torch.tensor(exact, dtype=f64), rtol=0, atol=1e-15)
    again = filters.make({"name": "angles", **O.settings()}, 7, dtype=f64)
    assert torch.equal(again.to_dense(), O.to_dense())
    deep = Angles(7, angles=torch.tensor(given), depth=3)
    assert deep.to_dense().shape == (3, 7, 7)


@pytest.mark.parametrize(
    "angles",
    [[], [0.1], [0.1] * 4, [[0.1] * 3], 0.1, [0.1, 0.2, math.nan], [0.1, math.inf, 0.2]],
    ids=str,
)
def test_wrong_angles_are_refused(angles):
    with pytest.raises(ValueError, match="angles: expected 3 finite numbers, one for each plane"):
        Angles(7, angles=angles)


@pytest.mark.parametrize("horizon", [0, -1.0, math.inf, math.nan])
def test_wrong_horizons_are_refused(horizon):
    with pytest.raises(ValueError, match="horizon: expected a finite number above 0"):
        Broad(8, horizon=horizon)


def test_a_horizon_is_passed_to_those_that_have_one():
    assert filters.make("slow", 8, horizon=70).horizon == 70
    assert filters.make({"name": "slow", "horizon": 9}, 8, horizon=70).horizon == 9
    assert filters.make("slow", 8).horizon == 1000
    given = {"name": "angles", "angles": [0.1] * 4}
    assert filters.make(given, 8, horizon=70).settings() == {"angles": [0.1] * 4}
    assert torch.equal(filters.make("cycle", 8, horizon=70).index, filters.make("cycle", 8).index)
    own = Broad(8, horizon=3)
    assert filters.make(own, 8, horizon=70) is own


def test_every_layer_passes_its_horizon():
    rows = torch.tensor([[0.01], [0.05]])
    for model, horizons in (
        (RoaRNN(2, 8, horizon=70), [70]),
        (RoaRNN(2, 8, rho=0.5, horizon=70), [70]),
        (RoaRNN(2, 8, alpha=0.02), [50]),
        (RoaRNN(2, 8, 2, alpha=rows), [pytest.approx(100), pytest.approx(20)]),
        (RoaRNN(2, 4, alpha=torch.tensor([0.0, 0.125, 0.0625, 0.03125])), [32]),
        (RoaRNN(2, 8, alpha=0.0), [1000]),  # no horizon to go by
        (RoaRNNCell(2, 8, horizon=70), [70]),
        (RoaLayer(8, 8, horizon=70), [70]),
        (RoaFNN([8] * 6), [5]),
        (RoaODE(2, 8, horizon=70), [70]),
        (Roa(torch.nn.Linear(8, 8), horizon=70), [70]),
    ):
        found = [f.horizon for f in model.modules() if isinstance(f, filters.Spectrum)]
        assert found == horizons, model


def test_nothing_is_drawn():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    g = torch.Generator().manual_seed(1)
    state = g.get_state()
    for cls in (Broad, Still, Slow, Spread):
        a, b = cls(16, generator=g), cls(16)
        assert torch.equal(a.to_dense(), b.to_dense())
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(state, g.get_state())


@named
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, f64], ids=str)
def test_angles_that_were_rounded_are_still_its_own(name, dtype):
    """A file in half precision holds what half precision can, subnormal numbers too."""
    for horizon in (10, 1e6):
        O = filters.make({"name": name, "horizon": horizon}, 40)
        twin = filters.make({"name": name, "horizon": horizon}, 40)
        twin.load_state_dict({"angle": O.angle.to(dtype)})
        if name in ("slow", "broad"):
            other = filters.make({"name": name, "horizon": 1.1 * horizon}, 40)
            with pytest.raises(RuntimeError, match="angle: expected those of"):
                twin.load_state_dict({"angle": other.angle.float()})


def test_a_default_device_without_numbers_makes_no_angles_there():
    with torch.device("meta"):
        real = Broad(16, device="cpu")
        ghost = Broad(16)
    assert torch.equal(real.angle, Broad(16).angle)
    assert ghost.angle.is_meta
    ghost.to_empty(device="cpu").reset_parameters()
    assert torch.equal(ghost.angle, real.angle)
