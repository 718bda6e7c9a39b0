"""α, the weight of the nonlinear part: a number, one per neuron or layer, or learned.

Note [A learned α]
------------------
α = 1 / (1 + e^(−a)) with a free, `alpha_logit`: whatever an optimiser does to a, α stays in (0, 1)
and ρ = α · horizon positive. Where rounding would make it 0 or 1, it is the nearest number between.
As ∂α/∂a = α(1 − α), a
step of size η on a changes a small α by the factor e^η, whatever its size: learning rates that
suit W (0.5 with Adam, in the paper) are far too large for a. Give it a group of its own, and no
weight decay, which would draw α towards 1/2.

Note [What travels with the weights]
------------------------------------
The same weights under another α, φ or kind of filter are another function. So `state_dict` carries
these settings beside the tensors, as `_extra_state`: JSON in a tensor of bytes, because a great
deal of code takes every value of a `state_dict` for a tensor. A layer keeps its
own settings whatever it loads; where they differ, `load_state_dict` names both under "Unexpected
key(s)", which is an error if strict and is returned if not. (torch tells modules of the keys, and
not of `strict`.) Weights without `_extra_state`, of an older file or one of tensors alone, load as
they always did. A vector α is compared as the buffer it is. A learned α is a parameter, which
weights may set: it is "learned", wherever it started.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter
from roann.filters.base import full_precision


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
        self.register_buffer("_alpha", None)
        if isinstance(self._start, Tensor) and not learn_rho:
            kind = full_precision(kind)  # as the filter's: Note [The dtype of a filter]
            self._alpha = self._start.to(device=device, dtype=kind, copy=True)
        if learn_rho:
            _inside(self._start)

    @property
    def alpha(self) -> float | Tensor:
        """α as it stands: a number, or a tensor; differentiable where it is learned."""
        return self.alpha_of("")

    def alpha_of(self, suffix: str) -> float | Tensor:
        """α of the scan whose parameters end in `suffix`."""
        if self.learn_rho:
            logit = self._tensor("alpha_logit" + suffix)
            alpha = torch.sigmoid(logit.to(full_precision(logit.dtype)))
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

    def get_extra_state(self) -> Tensor:
        """The settings without which the weights mean nothing, as JSON in a tensor of bytes."""
        return torch.tensor(list(json.dumps(self._weight_settings()).encode()), dtype=torch.uint8)

    def _weight_settings(self) -> dict[str, Any]:
        """α and the kind of the filter, as JSON can hold them."""
        state: dict[str, Any] = {}
        if self.learn_rho:
            state["alpha"] = "learned"
        elif not isinstance(self._start, Tensor):
            state["alpha"] = self._start
        filters = [child for child in self.children() if isinstance(child, Filter)]
        return state | ({"filter": spec(filters[0])} if filters else {})

    def set_extra_state(self, state: object) -> None:
        """Change nothing: a layer keeps its settings, and `load_state_dict` compares them."""

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = prefix + "_extra_state"
        if key in missing_keys:  # a file of tensors alone
            missing_keys.remove(key)
        if key in state_dict:
            unexpected_keys += _differences(key, self._weight_settings(), state_dict[key])
        unexpected_keys += self._keep_alpha(prefix + "_alpha", state_dict.get(prefix + "_alpha"))

    def _keep_alpha(self, key: str, given: object) -> list[str]:
        """Put back a vector α that loading has overwritten; one sentence if it was another."""
        own, now = self._start, self._alpha
        if not isinstance(given, Tensor) or not isinstance(own, Tensor) or now is None:
            return []
        if given.shape != own.shape or given.is_meta or own.is_meta:
            return []
        self._alpha = own.to(device=now.device, dtype=full_precision(now.dtype), copy=True)
        return _distance(key, own, given)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move everything; a given α survives `half()`, in float32 at least, and `to_empty()`."""
        before = self._alpha
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        now, start = self._alpha, self._start
        if before is None or now is None:
            return self
        kind = full_precision(now.dtype)
        if before.is_meta and isinstance(start, Tensor) and not start.is_meta:
            self._alpha = start.to(device=now.device, dtype=kind, copy=True)
        elif kind != now.dtype:
            self._alpha = before.to(now.device)
        return self

    def _tensor(self, name: str) -> Tensor:
        """A parameter, or what stands in its place.

        Not `get_parameter`: `torch.func.functional_call` and parametrizations put others there.
        """
        value: Tensor = getattr(self, name)
        return value

    def _filter(self, name: str) -> Filter:
        value: Filter = self._modules[name]  # type: ignore[assignment]
        return value

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


def spec(filter: Filter) -> str | dict[str, Any]:
    """A filter's name, with its settings where it has any."""
    settings = filter.settings()
    return {"name": filter.name, **settings} if settings else filter.name


def _differences(key: str, own: dict[str, Any], given: object) -> list[str]:
    """One sentence on the settings that a layer and the weights it loads both have, and differ."""
    given = _decoded(given)
    if not isinstance(given, dict):
        return [_sentence(key, "settings as JSON in a tensor of bytes", f"{given!r:.60}")]
    names = [n for n in own if n in given and not _same(own[n], given[n])]
    if not names:
        return []
    here, there = (", ".join(f"{n}={d[n]!r}" for n in names) for d in (own, given))
    return [_sentence(key, here, there)]


def _decoded(state: object) -> object:
    """The settings that `get_extra_state` wrote, or what else there is."""
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.is_meta:
        return state
    try:
        return json.loads(bytes(state.flatten().tolist()))
    except (ValueError, RecursionError):
        return state


def _sentence(key: str, expected: str, got: str) -> str:
    cure = "build the layer with the settings of the weights, or pass strict=False to keep its own"
    return f"{key}: expected {expected}, as in this layer, got {got}; {cure}"


def _same(a: object, b: object) -> bool:
    numbers = isinstance(a, float) and isinstance(b, int | float)
    return math.isclose(a, b, rel_tol=1e-9) if numbers else a == b  # type: ignore[arg-type]


def _distance(key: str, own: Tensor, given: Tensor) -> list[str]:
    """One sentence if two vectors α differ by more than the rounding of the coarser dtype."""
    rounding = 2 * max(torch.finfo(t.dtype).eps for t in (own, given))
    a, b = (t.detach().to("cpu", torch.float64) for t in (own, given))
    if torch.allclose(a, b, rtol=rounding, atol=0):
        return []
    most = float((a - b).abs().max())
    return [_sentence(key, "the same alpha", f"one that differs by up to {most:.3g}")]


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
