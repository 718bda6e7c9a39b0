"""What all layers share: α, φ, the gain, the cap on ‖W‖, and settings for the `state_dict`."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Self, TypedDict

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter, make
from roann.filters.base import full_precision
from roann.kernels.activations import ACTIVATIONS
from roann.nn import hypothesis
from roann.nn.alpha import Alpha, Index
from roann.nn.gain import gain_for, given_gain
from roann.nn.init import INITS
from roann.nn.maps import RoaMaps
from roann.nn.norm import capped, given_cap
from roann.nn.state import differences, distance, is_alpha
from roann.theorem import Interval, roa_bounds, schatten

PAPER: dict[str, Any] = {"filter": "qr", "init": "normal", "gain": 1.0, "max_norm": None}
"""Arguments of a layer as in the paper: `RoaRNN(…, **roann.PAPER)`."""


class Options(TypedDict, total=False):
    """Arguments that mean the same in every layer: see `RoaRNN`."""

    rho: float | Tensor
    horizon: float | None
    alpha: float | Tensor | None
    learn_rho: bool
    filter: str | Tensor | Filter | dict[str, Any]
    init: str
    gain: float | Tensor | None
    max_norm: float | str | None
    generator: torch.Generator | None


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

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """As torch's; settings are compared, and an α outside [0, 1] changes nothing."""
        alpha = state_dict.get(prefix + "_alpha")
        if isinstance(alpha, Tensor) and not is_alpha(alpha):
            error_msgs.append(f"{prefix}_alpha: expected floats in [0, 1], got others")
            state_dict = {**state_dict, prefix + "_alpha": self._alpha}
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        key = prefix + "_extra_state"
        if key in missing_keys:  # a file of tensors alone
            missing_keys.remove(key)
        if key in state_dict:
            unexpected_keys += differences(key, self._weight_settings(), state_dict[key])
        unexpected_keys += self._keep_alpha(prefix + "_alpha", state_dict.get(prefix + "_alpha"))

    def _keep_alpha(self, key: str, given: object) -> list[str]:
        """Put back a vector α that loading has overwritten; one sentence if it was another."""
        own, now = self._given.start, self._alpha
        if not isinstance(given, Tensor) or not isinstance(own, Tensor) or now is None:
            return []
        if given.shape != own.shape or given.is_meta or own.is_meta:
            return []
        self._alpha = own.to(device=now.device, dtype=full_precision(now.dtype), copy=True)
        return distance(key, own, given)

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


class RoaModule(AlphaModule, ABC):
    """Abstract: a layer with α, φ, an initialisation, a gain and a cap on ‖W‖.

    Attributes:
        gain: γ as it was given: a number, a tensor with one per neuron, or None for the one that
            follows from α and the filter (Note [Where the gain comes from]). As the layer uses it,
            it is a buffer of each scan that is no part of the `state_dict`.
    """

    _warned = False  # by `HypothesisWarning`, once in the life of a layer

    def __init__(
        self,
        alpha: Alpha,
        nonlinearity: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        *,
        init: str,
        gain: float | Tensor | None,
        max_norm: float | str | None,
        features: int | None,
    ) -> None:
        super().__init__(alpha, device, dtype)
        order = "it stands before bias and batch_first, as in torch.nn.RNN"
        self.nonlinearity = _checks.choice("nonlinearity", nonlinearity, ACTIVATIONS, order)
        self.init = _checks.choice("init", init, INITS)
        self.gain = given_gain(gain, features)
        self._cap: object = max_norm
        if max_norm != "auto":
            given_cap(max_norm, alpha.start, 1.0)
        self.register_load_state_dict_post_hook(_refresh_all)  # type: ignore[no-untyped-call]

    @property
    def max_norm(self) -> float | None:
        """c of ‖W‖₂ ≤ c, or None; "auto" is made a number as soon as α is known."""
        if self._cap == "auto":
            alpha = self._given.start
            if isinstance(alpha, Tensor) and alpha.is_meta and self._alpha is not None:
                alpha = self._alpha
            if isinstance(alpha, Tensor) and alpha.is_meta:
                return None
            self._cap = given_cap("auto", alpha, ACTIVATIONS[self.nonlinearity].r)
        return None if self._cap is None else float(self._cap)  # type: ignore[arg-type]

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments that rebuild this module, as JSON can hold them."""
        return {"init": self.init} | self._own_settings() | self._alpha_settings()

    def _own_settings(self) -> dict[str, Any]:
        gain = self.gain.tolist() if isinstance(self.gain, Tensor) else self.gain
        known = self.max_norm
        cap = "auto" if self._cap == "auto" else known
        return {"nonlinearity": self.nonlinearity, "gain": gain, "max_norm": cap}

    def _weight_settings(self) -> dict[str, Any]:
        state = super()._weight_settings() | self._own_settings()
        if self.learn_rho and self.gain is None:  # γ follows from where α started
            start = self._given.start
            state["gain"] = {"alpha": start.tolist() if isinstance(start, Tensor) else start}
        return state

    def _add_filter(
        self,
        suffix: str,
        filter: str | Tensor | Filter | dict[str, Any],
        *shape: int,
        **source: Any,
    ) -> Filter:
        """Make the filter of one scan, and the gain of its drive; see `roann.filters.make`."""
        O = make(filter, *shape, horizon=self.scan_alphas[suffix].horizon, **source)
        self.add_module("filter" + suffix, O)
        self.register_buffer("_gain" + suffix, None, persistent=False)
        self._refresh(suffix)
        return O

    def _refresh(self, suffix: str) -> None:
        """γ of one scan from its filter as it stands."""
        filter, like = self._filter("filter" + suffix), next(self.parameters())
        if filter.emptied:  # until it has numbers: see `gain_of`
            self._buffers["_gain" + suffix] = torch.empty(filter.out_features, device="meta")
            return
        given = self.gain
        if given is None:
            alpha = self.scan_alphas[suffix].start_of_scan
            given = gain_for(alpha, filter.coordinate_angles(), filter.out_features)
        number = not isinstance(given, Tensor)
        gain = torch.as_tensor(given, dtype=torch.float64, device="cpu" if number else None)
        readable = type(gain) is Tensor and not gain.is_meta  # a fake tensor has no numbers
        if readable and bool((gain == 1).all()):
            self._buffers["_gain" + suffix] = None
            return
        kind = full_precision(like.dtype)  # as the filter's: Note [The dtype of a filter]
        full = gain.to(like.device, kind) if not gain.is_meta else gain.to(kind)
        full = full.expand(*gain.shape[:-1], filter.out_features)
        self._buffers["_gain" + suffix] = full.contiguous()

    def gain_of(self, suffix: str) -> Tensor | None:
        """γ of the scan whose parameters end in `suffix`, (N,); None where it is 1."""
        gain = self._buffers["_gain" + suffix]
        if gain is not None and gain.is_meta:  # the filter may have got its numbers on its own
            self._filter("filter" + suffix).refuse_emptied()
            self._refresh(suffix)
            gain = self._buffers["_gain" + suffix]
        return gain

    def _driven(self, W_i: Tensor, b: Tensor | None, suffix: str) -> tuple[Tensor, Tensor | None]:
        """γ ⊙ W_i and γ ⊙ b."""
        gain = self.gain_of(suffix)
        if gain is None:
            return W_i, b
        gain = gain.to(W_i.dtype)
        return gain.unsqueeze(-1) * W_i, None if b is None else gain * b

    def _capped(self, W: Tensor) -> Tensor:
        """W with ‖W‖₂ ≤ `max_norm`."""
        return W if self.max_norm is None else capped(W, self.max_norm)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        for name in self._buffers:  # made anew, on the device that the parameters have then
            if name.startswith("_gain"):
                self._buffers[name] = None
        super()._apply(fn, recurse)
        _refresh_all(self)
        return self

    def interval(self, steps: int | None = None) -> Interval:
        """Where all singular values of ∂x[M]/∂x[0] lie, for any input, after M = `steps` steps.

        It needs no data. With `max_norm` it holds for all weights, so throughout training; without,
        for the weights as they are. It covers every recurrence of the layer.

        Args:
            steps: M; the horizon if not given. Not for a network in depth, which has its own.

        Example:
            >>> rnn = roann.RoaRNN(2, 64, horizon=1000, max_norm=3.0)
            >>> print(rnn.interval(), rnn.interval(2000))
            [0.0182, 7.37] [0.00033, 54.4]

        Reference: Theorem III.1 of the paper, in its finite form; Note [Two intervals, one limit].
        """
        found = []
        for suffix, (W, alpha) in zip(self.scan_alphas, self._maps(), strict=False):
            maps = self.scan_alphas[suffix].horizon if steps is None else steps
            count = _checks.size("steps", math.ceil(maps or 1))
            sigma = self.max_norm or float(schatten(W.detach().to(torch.float64)))
            r = ACTIVATIONS[self.nonlinearity].r
            found.append(roa_bounds(torch.as_tensor(alpha).detach(), sigma, count, r).finite)
        if not found:
            _checks.fail("interval", "a layer that a theorem covers", type(self).__name__)
        return Interval(min(i.log_lower for i in found), max(i.log_upper for i in found))

    @abstractmethod
    def _maps(self) -> list[tuple[Tensor, float | Tensor]]:
        """The weights W and the α of every recurrence, or of every stack of maps."""

    @abstractmethod
    def roa_maps(self) -> RoaMaps | None:
        """The maps of the layer as they stand: see `roann.nn.maps`."""

    def _reset(self, generator: torch.Generator | None) -> None:
        """What is left to do when the parameters are drawn."""
        self._reset_alpha()
        for child in self.children():
            if isinstance(child, Filter):
                child.reset_parameters(generator)
        _refresh_all(self)
        self._warn()

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._warn()

    def _warn(self) -> None:
        if not self._warned:
            r = ACTIVATIONS[self.nonlinearity].r
            self._warned = hypothesis.warn(type(self).__name__, self._maps(), r)


def _refresh_all(layer: RoaModule, _: object = None) -> None:
    """Every gain from its filter, which may have been drawn or loaded."""
    for name in list(layer._modules):
        if name.startswith("filter"):
            layer._refresh(name.removeprefix("filter"))


def spec(filter: Filter) -> str | dict[str, Any]:
    """A filter's name, with its settings where it has any."""
    settings = filter.settings()
    return {"name": filter.name, **settings} if settings else filter.name
