"""Filters with designed eigen-angles: rotations of neighbouring coordinates, O(N).

Note [What each spectrum is for]
--------------------------------
O turns plane j, the coordinates (2j, 2j + 1), by θ_j; its eigenvalues are e^(±iθ_j), which makes
this the real Schur form of an orthogonal matrix. W is dense, so which planes are turned does not
matter, only how fast.

    still    θ = 0: integrators. What enters stays where it is, and adds up.
    slow     θ spaced evenly in its logarithm from π / (4 · horizon) to π: clocks of every speed.
    spread   θ spaced evenly in (0, π): a delay line. Inputs of different times become different
             directions, so that many of them can be told apart.
    broad    half of the planes still, an eighth slow, the others spread: the default of the layers.

Nothing is drawn: one width and one horizon give one filter.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Unpack, final

import torch
from torch import Tensor

from roann import _checks
from roann.filters.base import Common, Filter, _Source
from roann.kernels.linear import Linear, Planes

HORIZON = 1000.0  # of a filter that is made outside a layer
SLOWEST = 4  # the slowest plane makes an eighth of a turn in one horizon


class Spectrum(Filter):
    r"""Abstract: rotations of the planes (2j, 2j + 1) by angles that a subclass chooses.

    .. math:: (O x)_{2j} = \cos\theta_j\, x_{2j} + \sin\theta_j\, x_{2j+1}, \quad
        (O x)_{2j+1} = \cos\theta_j\, x_{2j+1} - \sin\theta_j\, x_{2j}

    With an odd number of coordinates the last one stays as it is. See Note [What each spectrum is
    for].

    Args:
        out_features: rows of O.
        in_features: columns of O; the same as the rows if not given.
        horizon: the number of steps that the slowest planes are made for; a layer passes its own.
        depth, generator, device, dtype: as in `Filter`; nothing is drawn from the generator.

    Example:
        >>> isinstance(roann.filters.make("broad", 4), Spectrum)
        True
    """

    has_powers = True
    has_horizon: ClassVar[bool] = True  # whether the angles depend on it
    angle: Tensor
    _last: tuple[Tensor, int, Planes] | None = None  # cosines and sines of the angles as they stand

    def __init__(
        self,
        out_features: int,
        in_features: int | None = None,
        *,
        horizon: float = HORIZON,
        **common: Unpack[Common],
    ) -> None:
        self.horizon = _checks.real("horizon", horizon, positive=True)
        super().__init__(out_features, in_features, **common)

    @abstractmethod
    def _angles(self, planes: int) -> Tensor:
        """θ of each plane, (planes,), in float64."""

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        angles = self._angles(self.larger // 2)
        return {"angle": angles.expand(*self._lead(), -1).contiguous()}

    def _check(self, buffers: Mapping[str, Tensor]) -> None:
        given = buffers["angle"].to(torch.float64)
        own = self._angles(self.larger // 2).expand_as(given)
        kept = torch.finfo(buffers["angle"].dtype)
        least = max(kept.eps, torch.finfo(torch.float32).eps)  # it may have been in float32 before
        if not torch.allclose(given, own, rtol=2 * least, atol=kept.tiny * kept.eps):
            most = float((given - own).abs().max())
            _checks.fail("angle", f"those of {self}", f"others, by up to {most:.3g}")

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """As `Filter`'s; other angles than its own are an unexpected key, and change nothing.

        They follow from the settings, and a layer keeps its settings: Note [What travels with the
        weights] in `roann.nn.alpha_module`.
        """
        key = prefix + "angle"
        given = state_dict.get(key)
        try:
            if given is not None:
                self.verify({"angle": given})
        except ValueError as e:
            if _numbers(given, self.angle.shape):
                args[-2].append(f"{key}: {e}")
                own = self._draw(_Source(None, None))["angle"].to(self.angle.dtype)
                own = own if self.angle.is_meta else own.to(self.angle.device)
                state_dict = {**state_dict, key: own}
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _core(self) -> Linear:
        angle, last = self._held("angle"), self._last
        if torch.compiler.is_compiling() or type(angle) is not Tensor or angle.is_inference():
            return self._made(angle)
        if last is not None and last[0] is angle and last[1] == angle._version:
            return last[2]
        made = self._made(angle)
        if type(made.cos) is Tensor and not made.cos.is_inference():
            self._last = angle, angle._version, made
        return made

    def _made(self, angle: Tensor) -> Planes:
        return self.turned(torch.ones((), dtype=angle.dtype, device=angle.device))

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_last": None}

    def turned(self, power: Tensor) -> Planes:
        """O raised to a real power, exactly: every angle times `power`, of shape () or (T, 1)."""
        angle = self._signed() * power
        return Planes(torch.cos(angle), torch.sin(angle))

    def generator_of(self, x: Tensor) -> Tensor:
        """(log O) x."""
        return Planes(x.new_zeros(1), self._signed().to(x.dtype)).matvec(x)

    def _signed(self) -> Tensor:
        """(θ, −θ) for every plane, and 0 for a coordinate without one."""
        angle = self._held("angle")
        pairs = torch.stack([angle, -angle], -1).flatten(-2)
        odd = self.larger - pairs.shape[-1]
        return torch.nn.functional.pad(pairs, (0, odd)) if odd else pairs

    def settings(self) -> dict[str, Any]:
        """The horizon, where it matters."""
        return {"horizon": self.horizon} if self.has_horizon else {}


def _numbers(value: Any, shape: torch.Size) -> bool:
    """Whether these are finite floats of that shape."""
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.shape != shape:
        return False
    return value.is_floating_point() and value.itemsize > 1 and bool(value.isfinite().all())


def still(planes: int) -> Tensor:
    """Angles of planes that do not turn."""
    return torch.zeros(planes, dtype=torch.float64, device="cpu")


def slow(planes: int, horizon: float) -> Tensor:
    """Angles evenly spaced in their logarithm, the slowest an eighth of a turn in a horizon."""
    ends = math.log(math.pi / (SLOWEST * max(horizon, 1.0))), math.log(math.pi)
    return torch.linspace(*ends, planes, dtype=torch.float64, device="cpu").exp()


def spread(planes: int) -> Tensor:
    """Angles evenly spaced in (0, π)."""
    order = torch.arange(planes, dtype=torch.float64, device="cpu")
    return (order + 0.5) * math.pi / max(planes, 1)


@final
class Still(Spectrum):
    """Planes that do not turn: O is the identity, and every unit an integrator.

    Args: see `Spectrum`.

    Shape: x (…, in) gives O x (…, out).

    Example:
        >>> bool((Still(4).to_dense() == torch.eye(4)).all())
        True
    """

    name = "still"
    has_horizon = False

    def _angles(self, planes: int) -> Tensor:
        return still(planes)


@final
class Slow(Spectrum):
    r"""Planes of every speed: angles evenly spaced in their logarithm.

    .. math:: \theta_j = \pi\, (4 \cdot \mathrm{horizon})^{-(1 - j/(n-1))}, \quad j = 0 \dots n - 1

    Args: see `Spectrum`.

    Shape: x (…, in) gives O x (…, out).

    Example:
        >>> Slow(4, horizon=25, dtype=torch.float64).angle / math.pi
        tensor([0.0100, 1.0000], dtype=torch.float64)
    """

    name = "slow"

    def _angles(self, planes: int) -> Tensor:
        return slow(planes, self.horizon)


@final
class Spread(Spectrum):
    r"""Eigenvalues spread evenly over the circle.

    .. math:: \theta_j = \pi (j + 1/2) / n, \quad j = 0 \dots n - 1

    Args: see `Spectrum`.

    Shape: x (…, in) gives O x (…, out).

    Example:
        >>> Spread(4, dtype=torch.float64).angle / math.pi
        tensor([0.2500, 0.7500], dtype=torch.float64)
    """

    name = "spread"
    has_horizon = False

    def _angles(self, planes: int) -> Tensor:
        return spread(planes)


@final
class Broad(Spectrum):
    """Half of the planes still, an eighth slow, the others spread: the default of the layers.

    It integrates and it tells times apart. See Note [What each spectrum is for].

    Args: see `Spectrum`.

    Shape: x (…, in) gives O x (…, out).

    Example:
        >>> Broad(16, horizon=25, dtype=torch.float64).angle / math.pi
        tensor([0.0000, 0.0000, 0.0000, 0.0000, 0.0100, 0.1667, 0.5000, 0.8333],
               dtype=torch.float64)
    """

    name = "broad"

    def _angles(self, planes: int) -> Tensor:
        a, b = planes // 2, planes // 8
        return torch.cat([still(a), slow(b, self.horizon), spread(planes - a - b)])


@final
class Angles(Spectrum):
    """Angles of your own, one for each plane (2j, 2j + 1).

    Args:
        out_features: rows of O.
        in_features: columns of O; the same as the rows if not given.
        angles: θ in radians, one for each of the max(out, in) // 2 planes.
        depth, generator, device, dtype: as in `Spectrum`.

    Shape: x (…, in) gives O x (…, out).

    Example:
        >>> O = Angles(2, angles=[math.pi / 3])
        >>> O.matvec(torch.tensor([1.0, 0.0]))
        tensor([ 0.5000, -0.8660])
        >>> rnn = roann.RoaRNN(1, 4, horizon=100, filter=Angles(4, angles=[0.0, 0.1]))
    """

    name = "angles"

    def __init__(
        self,
        out_features: int,
        in_features: int | None = None,
        *,
        angles: Sequence[float] | Tensor,
        **common: Unpack[Common],
    ) -> None:
        self._own = torch.as_tensor(angles, dtype=torch.float64, device="cpu").detach()
        super().__init__(out_features, in_features, **common)

    def _angles(self, planes: int) -> Tensor:
        if self._own.shape != (planes,) or not bool(self._own.isfinite().all()):
            expected = f"{planes} finite numbers, one for each plane of {self.larger} coordinates"
            _checks.fail("angles", expected, f"shape {tuple(self._own.shape)}")
        return self._own

    def settings(self) -> dict[str, Any]:
        """The angles."""
        return {"angles": self._own.tolist()}
