"""A module with α, and the settings that travel with its weights.

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
import sys
from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter
from roann.filters.base import full_precision
from roann.nn.alpha import Alpha, Index


class AlphaModule(nn.Module):
    """Abstract: a module with α, for one scan or several, which a subclass adds with `_add_scan`.

    α is a number, a buffer `_alpha` with one entry per neuron (or one row per layer), or made of
    parameters `alpha_logit…`: see Note [A learned α].

    Attributes:
        scan_alphas: the `Alpha` of each scan, by the suffix of the names of its parameters.
    """

    _alpha: Tensor | None

    def __init__(
        self, alpha: Alpha, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        super().__init__()
        kind = torch.get_default_dtype() if dtype is None else dtype
        if not kind.is_floating_point:
            _checks.fail("dtype", "a floating point dtype", kind, error=TypeError)
        self._given = alpha
        self.scan_alphas: dict[str, Alpha] = {}
        self.register_buffer("_alpha", None)
        if isinstance(alpha.start, Tensor) and not alpha.learned:
            kind = full_precision(kind)  # as the filter's: Note [The dtype of a filter]
            self._alpha = alpha.start.to(device=device, dtype=kind, copy=True)

    @property
    def learn_rho(self) -> bool:
        """Whether ρ, and with it α, is learned."""
        return self._given.learned

    @property
    def alpha(self) -> float | Tensor:
        """α as it stands: as it was given, or, learned by several scans or maps, a row for each."""
        if not self._given.learned:
            return self._given.of(self)
        learned: list[Any] = [alpha.of(self) for alpha in self.scan_alphas.values()]
        if len(learned) == 1:
            return learned[0]  # type: ignore[no-any-return]
        return torch.stack(learned) if learned[0].dim() < 2 else torch.cat(learned)

    def _add_scan(
        self, suffix: str, like: Tensor, index: Index = 0, depth: int | None = None
    ) -> None:
        """α of one scan, whose parameters end in `suffix` and are as `like`; see `Alpha.scan`."""
        alpha = self.scan_alphas[suffix] = self._given.scan("alpha_logit" + suffix, index)
        if alpha.learned:
            alpha.add_logit(self, like, depth)

    def alpha_of(self, suffix: str) -> float | Tensor:
        """α of the scan whose parameters end in `suffix`."""
        return self.scan_alphas[suffix].of(self)

    def _reset_alpha(self) -> None:
        """Return every learned α to where it started."""
        if self._given.learned:
            for alpha in self.scan_alphas.values():
                alpha.reset(self)

    def get_extra_state(self) -> Tensor:
        """The settings without which the weights mean nothing, as JSON in a tensor of bytes."""
        return torch.tensor(list(json.dumps(self._weight_settings()).encode()), dtype=torch.uint8)

    def _weight_settings(self) -> dict[str, Any]:
        """α and the kind of the filter, as JSON can hold them."""
        state: dict[str, Any] = {}
        if self._given.learned:
            state["alpha"] = "learned"
        elif not isinstance(self._given.start, Tensor):
            state["alpha"] = self._given.start
        filters = [child for child in self.children() if isinstance(child, Filter)]
        return state | ({"filter": spec(filters[0])} if filters else {})

    def set_extra_state(self, state: object) -> None:
        """Change nothing: a layer keeps its settings, and `load_state_dict` compares them."""

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        """As torch's; settings are compared, and an α outside [0, 1] changes nothing."""
        missing_keys, unexpected_keys, error_msgs = args[-3:]
        alpha = state_dict.get(prefix + "_alpha")
        if isinstance(alpha, Tensor) and not _is_alpha(alpha):
            error_msgs.append(f"{prefix}_alpha: expected floats in [0, 1], got others")
            state_dict = {**state_dict, prefix + "_alpha": self._alpha}
        super()._load_from_state_dict(state_dict, prefix, *args)
        key = prefix + "_extra_state"
        if key in missing_keys:  # a file of tensors alone
            missing_keys.remove(key)
        if key in state_dict:
            unexpected_keys += _differences(key, self._weight_settings(), state_dict[key])
        unexpected_keys += self._keep_alpha(prefix + "_alpha", state_dict.get(prefix + "_alpha"))

    def _keep_alpha(self, key: str, given: object) -> list[str]:
        """Put back a vector α that loading has overwritten; one sentence if it was another."""
        own, now = self._given.start, self._alpha
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
        now, start = self._alpha, self._given.start
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
        value = self._parameters.get(name)  # bypasses `nn.Module.__getattr__` for speed
        return getattr(self, name) if value is None else value

    def _filter(self, name: str) -> Filter:
        value: Filter = self._modules[name]  # type: ignore[assignment]
        return value

    def _alpha_settings(self) -> dict[str, object]:
        """The arguments that rebuild α, as JSON can hold them."""
        alpha = self._given.start if self._alpha is None else self._alpha
        value = alpha.tolist() if isinstance(alpha, Tensor) else alpha
        return {"alpha": value, "learn_rho": self.learn_rho}


def spec(filter: Filter) -> str | dict[str, Any]:
    """A filter's name, with its settings where it has any."""
    settings = filter.settings()
    return {"name": filter.name, **settings} if settings else filter.name


def _differences(key: str, own: dict[str, Any], given: object) -> list[str]:
    """One sentence on the settings that a layer and the weights it loads both have, and differ."""
    given = _decoded(given)
    if not isinstance(given, dict):
        what = f"other {given.dtype}" if isinstance(given, Tensor) else type(given).__name__
        return [_sentence(key, "settings as JSON in a tensor of bytes", what)]
    given = {"gain": 1.0, "max_norm": None} | given  # of weights that do not name them
    unknown = {n for n in own if own[n] == "auto"}  # until α has numbers
    names = [n for n in own if n in given and n not in unknown and not _same(own[n], given[n])]
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


def _is_alpha(alpha: Tensor) -> bool:
    """Whether these can be α, as far as they are known."""
    if alpha.is_meta:
        return True
    return alpha.is_floating_point() and bool(((alpha >= 0) & (alpha <= 1)).all())


def _sentence(key: str, expected: str, got: str) -> str:
    cure = "build the layer with the settings of the weights, or pass strict=False to keep its own"
    return f"{key}: expected {expected}, as in this layer, got {got}; {cure}"


def _same(a: object, b: object) -> bool:
    """Whether two settings are equal, numbers to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, int | float) and abs(b) < sys.float_info.max:
        return math.isclose(a, b, rel_tol=1e-9)
    return a == b


def _distance(key: str, own: Tensor, given: Tensor) -> list[str]:
    """One sentence if two vectors α differ by more than the rounding of the coarser dtype."""
    rounding = 2 * max(torch.finfo(t.dtype).eps for t in (own, given))
    a, b = (t.detach().to("cpu", torch.float64) for t in (own, given))
    if torch.allclose(a, b, rtol=rounding, atol=0):
        return []
    most = float((a - b).abs().max())
    return [_sentence(key, "the same alpha", f"one that differs by up to {most:.3g}")]
