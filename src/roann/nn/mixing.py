"""α, the weight of the nonlinear part: a number, one per neuron or layer, or learned.

Note [A learned α]
------------------
α = 1 / (1 + e^(−a)) with a free, `alpha_logit`: whatever an optimiser does to a, α stays in (0, 1)
and ρ = α · horizon positive. Where rounding would make it 0 or 1, it is the nearest number between.
As ∂α/∂a = α(1 − α), a
step of size η on a changes a small α by the factor e^η, whatever its size: learning rates that
suit W (0.5 with Adam, in the paper) are far too large for a. Give it a group of its own, and no
weight decay, which would draw α towards 1/2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter


class Mixed(nn.Module):
    """Abstract: a module with α.

    α is a number, a buffer `_alpha` with one entry per neuron (or one row per layer), or made of
    parameters `alpha_logit…`, which a subclass adds with `_add_logit`: see Note [A learned α].
    """

    _alpha: Tensor | None

    def __init__(
        self,
        rho: float | Tensor,
        horizon: float | None,
        alpha: float | Tensor | None,
        features: int | None,
        learn_rho: bool,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        layers: int = 1,
    ) -> None:
        super().__init__()
        kind = torch.get_default_dtype() if dtype is None else dtype
        if not kind.is_floating_point:
            _checks.fail("dtype", "a floating point dtype", kind, error=TypeError)
        if not isinstance(learn_rho, bool):
            _checks.fail("learn_rho", "True or False", repr(learn_rho), error=TypeError)
        self.learn_rho = learn_rho
        self._start = _start(rho, horizon, alpha, features, layers)
        self._logits: list[str] = []
        fixed = isinstance(self._start, Tensor) and not learn_rho
        start = self._start.to(device=device, dtype=kind) if fixed else None  # type: ignore[union-attr]
        self.register_buffer("_alpha", start)
        if learn_rho:
            _inside(self._start)

    @property
    def alpha(self) -> float | Tensor:
        """α as it stands: a number, or a tensor; differentiable where it is learned."""
        return self.alpha_of("")

    def alpha_of(self, suffix: str) -> float | Tensor:
        """α of the scan whose parameters end in `suffix`."""
        if self.learn_rho:
            alpha = torch.sigmoid(self._tensor("alpha_logit" + suffix))
            limits = torch.finfo(alpha.dtype)
            return alpha.clamp(limits.tiny, 1 - limits.eps)
        try:  # sooner than through nn.Module's attributes
            vector = self._buffers["_alpha"]
        except KeyError:  # a parametrization stands in its place
            vector = self._alpha
        return self._start if vector is None else self._share(vector, suffix)

    def _share(self, alpha: Tensor, suffix: str) -> Tensor:
        """What of a given α belongs to the scan whose parameters end in `suffix`; "": all."""
        return alpha

    def _add_logit(self, suffix: str, like: Tensor, depth: int | None = None) -> None:
        """Room beside `like` for a learned α: () or (N,); (depth, 1) or (depth, N) in depth."""
        if not self.learn_rho:
            return
        start = torch.as_tensor(self._start)
        shape = tuple(self._share(start, suffix).shape)
        if depth is not None and start.dim() < 2:
            shape = (depth, *(shape or (1,)))
        self._logits.append("alpha_logit" + suffix)
        self.register_parameter(self._logits[-1], nn.Parameter(like.new_empty(shape)))

    @torch.no_grad()
    def _reset_alpha(self) -> None:
        """Return every learned α to where it started."""
        start = torch.as_tensor(self._start, dtype=torch.float64)
        for name in self._logits:
            logit = self._tensor(name)
            if not logit.is_meta:
                logit.copy_(torch.logit(self._share(start, name.removeprefix("alpha_logit"))))

    def _tensor(self, name: str) -> Tensor:
        """A parameter, or what stands in its place.

        Not `get_parameter`: `torch.func.functional_call` and parametrizations put others there.
        """
        value: Tensor = getattr(self, name)
        return value

    def _filter(self, name: str) -> Filter:
        value: Filter = self._modules[name]  # type: ignore[assignment]
        return value

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """As torch's, for an α in [0, 1]; another changes nothing and is an error."""
        key = prefix + "_alpha"
        alpha: Any = state_dict.get(key)
        given = isinstance(alpha, Tensor) and not alpha.is_meta
        if given and not (alpha.is_floating_point() and bool(((alpha >= 0) & (alpha <= 1)).all())):
            args[-1].append(f"{key}: expected floats in [0, 1], got others")
            state_dict = {**state_dict, key: self._alpha}
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _alpha_settings(self) -> dict[str, object]:
        """The arguments that rebuild α, as JSON can hold them."""
        alpha = self._start if self._alpha is None else self._alpha
        value = alpha.tolist() if isinstance(alpha, Tensor) else alpha
        return {"alpha": value, "learn_rho": self.learn_rho}

    def _describe_alpha(self) -> str:
        how = "learned " if self.learn_rho else ""
        if isinstance(self._start, Tensor):
            kind = "vector of" if self._start.dim() == 1 else "rows of"
            return f"alpha={how}{kind} {self._start.shape[-1]}"
        return f"alpha={how and 'learned, from '}{self._start:.6g}"


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
        >>> rnn = roann.RoaRNN(2, 64, alpha=multiscale(64, 10, 1000), learn_rho=True)

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
