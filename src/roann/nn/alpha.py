"""α, the weight of the nonlinear part: a number, one per neuron or layer, or learned.

Note [A learned α]
------------------
α = 1 / (1 + e^(−a)) with a free, `alpha_logit`: whatever an optimiser does to a, α stays in (0, 1)
and ρ = α · horizon positive. Where rounding would make it 0 or 1, it is the nearest number between.
A step of size η on a changes a small α by the factor e^η, so a wants a small learning rate of its
own, and no weight decay, which would draw α towards 1/2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters.base import full_precision

Index = int | tuple[int, int] | slice


@dataclass(frozen=True, eq=False)
class Alpha:
    """α of a scan, or of all scans of a layer: where it started, and where its layer holds it.

    The layer holds the tensors, under the names that its `state_dict` has: a given vector in the
    buffer `_alpha`, a learned α in one parameter for each scan. So `alpha.of(layer)` asks for it.

    Example:
        >>> rnn = roann.RoaRNN(1, 2, num_layers=2, alpha=torch.tensor([[0.1], [0.2]]))
        >>> [float(alpha.of(rnn)) for alpha in rnn.scan_alphas.values()]
        [0.10000000149011612, 0.20000000298023224]
    """

    start: float | Tensor  # α as it was given: a number, or a tensor with one per neuron or row
    learned: bool  # from there
    given_horizon: float | None = None  # the argument `horizon`
    name: str = ""  # of the parameter that holds the logit, if it is learned
    index: Index | None = None  # the entries of the layer's `_alpha` that are this scan's, or all

    @classmethod
    def given(
        cls,
        rho: float | Tensor,
        horizon: float | None,
        alpha: float | Tensor | None,
        learn_rho: bool,
        features: int | None,
        layers: int = 1,
    ) -> Self:
        """α from a layer's arguments: `alpha` itself, or rho / horizon.

        `features` is N, where all scans have the same; `layers` how many rows a tensor may have.
        """
        if not isinstance(learn_rho, bool):
            _checks.fail("learn_rho", "True or False", repr(learn_rho), error=TypeError)
        start = _start(rho, horizon, alpha, features, layers)
        if learn_rho:
            _inside(start)
        return cls(start, learn_rho, horizon)

    def scan(self, name: str, index: Index) -> Alpha:
        """α of one scan; `index` is its place in an α that has rows."""
        rows = isinstance(self.start, Tensor) and self.start.dim() == 2
        return replace(self, name=name, index=index if rows else None)

    @property
    def start_of_scan(self) -> Tensor:
        """Where α of this scan started: (), (N,), or rows of a stack of maps."""
        start = self.start
        return (
            self._own(start)
            if isinstance(start, Tensor)
            else torch.tensor(start, dtype=torch.float64, device="cpu")
        )

    @property
    def horizon(self) -> float | None:
        """The number of steps it is made for: as given, or 1 / α; None for α = 0."""
        if self.given_horizon is not None:
            return self.given_horizon
        if not isinstance(self.start, Tensor):
            return 1 / self.start if self.start > 0 else None
        values = self.start_of_scan
        if values.is_meta or not bool((values > 0).any()):
            return None
        return float(1 / values[values > 0].min().double())

    def of(self, layer: nn.Module) -> float | Tensor:
        """α as it stands in the layer: a number, or a tensor; differentiable where learned."""
        if self.learned:
            logit: Tensor = getattr(layer, self.name)
            alpha = torch.sigmoid(logit.to(full_precision(logit.dtype)))
            limits = torch.finfo(alpha.dtype)
            return alpha.clamp(limits.tiny, 1 - limits.eps)
        try:  # bypasses `nn.Module.__getattr__` for speed
            vector = layer._buffers["_alpha"]
        except KeyError:  # a parametrization stands in its place
            vector = layer._alpha  # type: ignore[assignment]
        return self.start if vector is None else self._own(vector)

    def add_logit(self, layer: nn.Module, like: Tensor, depth: int | None = None) -> None:
        """Room beside `like` for a learned α: () or (N,); (depth, 1) or (depth, N) in depth."""
        shape = tuple(self._own(torch.as_tensor(self.start)).shape)
        if depth is not None and len(shape) < 2:
            shape = (depth, *(shape or (1,)))
        layer.register_parameter(self.name, nn.Parameter(like.new_empty(shape)))

    @torch.no_grad()
    def reset(self, layer: nn.Module) -> None:
        """Return a learned α to where it started."""
        logit: Tensor = getattr(layer, self.name)
        if not logit.is_meta:
            start = torch.as_tensor(self.start, dtype=torch.float64)
            logit.copy_(torch.logit(self._own(start)))

    def _own(self, rows: Tensor) -> Tensor:
        return rows if self.index is None else rows[self.index]

    def __str__(self) -> str:
        how = "learned " if self.learned else ""
        if isinstance(self.start, Tensor):
            kind = "vector of" if self.start.dim() == 1 else "rows of"
            return f"alpha={how}{kind} {self.start.shape[-1]}"
        return f"alpha={how and 'learned, from '}{self.start:.6g}"


def multiscale(features: int, shortest: float, longest: float) -> Tensor:
    r"""One α per neuron for memories of many lengths, evenly spaced in their logarithm.

    .. math:: \alpha_i = 1 / h_i, \quad
        h_i = \mathrm{shortest}^{1 - i/(N-1)}\, \mathrm{longest}^{i/(N-1)}

    Pass it as `alpha`. A filter that mixes all neurons averages the rates at which they forget, not
    the strengths with which they take in: see "Vector ρ" in the documentation. The theorem needs
    α(1 + r‖W‖) < 1 of the largest α: with a short `shortest`, start from a small W
    (init="scaled_normal"), and look at `roann.certify`.

    Args:
        features: N.
        shortest: the horizon of the first neuron, at least 1.
        longest: the horizon of the last neuron.

    Shape: (N,).

    Example:
        >>> multiscale(3, 10, 1000)
        tensor([0.1000, 0.0100, 0.0010])
        >>> alpha = multiscale(64, 10, 1000)
        >>> rnn = roann.RoaRNN(2, 64, alpha=alpha, learn_rho=True, init="scaled_normal")

    Reference: the open question on a vector ρ in the conclusion of the paper.
    """
    _checks.size("features", features)
    least = _checks.real("shortest", shortest, positive=True)
    most = _checks.real("longest", longest, positive=True)
    if not 1 <= least <= most:
        _checks.fail("shortest", "1 ≤ shortest ≤ longest", f"{shortest} and longest={longest}")
    exponents = torch.linspace(
        -math.log(least), -math.log(most), features, dtype=torch.float64, device="cpu"
    )
    return exponents.exp().to(torch.get_default_dtype())


def _start(
    rho: float | Tensor,
    horizon: float | None,
    alpha: float | Tensor | None,
    features: int | None,
    layers: int,
) -> float | Tensor:
    """α from `alpha`, or as rho / horizon; a float, or a tensor that `_vector` allows."""
    if alpha is None and horizon is None:
        _checks.fail(
            "horizon",
            "the number of steps (or maps) gradients must survive",
            "neither horizon nor alpha",
            "pass horizon=T to get alpha = rho / T, or pass alpha itself",
        )
    if alpha is None:
        steps = _checks.real("horizon", horizon, positive=True)
        if isinstance(rho, Tensor):
            if not rho.is_meta and not bool((rho > 0).all()):
                _checks.fail("rho", "numbers above 0", f"{rho.min():g}")
            value: float | Tensor = _vector("rho", rho, features, layers) / steps
            shown = f"a rho up to {float(rho.max()):g}" if not rho.is_meta else "rho"
        else:
            value = _checks.real("rho", rho, positive=True) / steps
            shown = f"rho={rho}"
        cure = f"{shown} and horizon={horizon} give alpha = rho / horizon; lower rho"
    else:
        if horizon is not None:
            _checks.fail("horizon", "None when alpha is given", horizon, "pass one of the two")
        cure = "alpha mixes the nonlinear part (1) with the filter (0)"
        if isinstance(alpha, Tensor):
            value = _vector("alpha", alpha, features, layers)
        else:
            value = _checks.real("alpha", alpha)
    if isinstance(value, Tensor):
        if not value.is_meta and not bool(((value >= 0) & (value <= 1)).all()):
            _checks.fail("alpha", "entries in [0, 1]", f"[{value.min():g}, {value.max():g}]", cure)
    elif not 0 <= value <= 1:
        _checks.fail("alpha", "a number in [0, 1]", f"{value:g}", cure)
    return value


def _vector(argument: str, value: Tensor, features: int | None, layers: int) -> Tensor:
    """A copy of a float tensor: one per neuron, or, of several layers, one row for each."""
    shapes: list[tuple[int, ...]] = [] if features is None else [(features,)]
    if layers > 1:
        shapes += [(layers, 1)] if features is None else [(layers, 1), (layers, features)]
    if tuple(value.shape) not in shapes or not value.is_floating_point():
        what = f"shape {tuple(value.shape)} of {value.dtype}"
        tensors = f" or a float tensor {' or '.join(map(str, shapes))}" if shapes else ""
        _checks.fail(argument, "a float" + tensors, what)
    return value.detach().clone()


def _inside(alpha: float | Tensor) -> None:
    values = torch.as_tensor(alpha)
    if not values.is_meta and not bool(((values > 0) & (values < 1)).all()):
        _checks.fail(
            "alpha",
            "a first value strictly between 0 and 1 for learn_rho=True",
            f"[{values.min():g}, {values.max():g}]",
            "alpha = 0 and 1 have no logit to learn from",
        )
