"""What all layers share: their parameters, φ, the gain, the cap on ‖W‖, and their maps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, Self, TypedDict

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter, make
from roann.filters.base import full_precision
from roann.kernels.activations import ACTIVATIONS
from roann.nn import hypothesis
from roann.nn.alpha import Alpha, Index
from roann.nn.alpha_module import AlphaModule, spec
from roann.nn.gain import gain_for, given_gain
from roann.nn.init import INITS, initialise
from roann.nn.maps import RoaMaps, Scan
from roann.nn.norm import capped, given_cap
from roann.theorem import Interval, roa_bounds, schatten

PAPER: dict[str, Any] = {"filter": "qr", "init": "normal", "gain": 1.0, "max_norm": None}
"""Arguments of a layer as in the paper: `RoaRNN(…, rho=1.0, **roann.PAPER)`.

ρ is not among them: the paper has another one for each task, and 1 as its standard choice.
"""


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


class RoaModule(AlphaModule):
    """Abstract: a layer with α, φ, an initialisation, a gain and a cap on ‖W‖.

    Attributes:
        gain: γ as it was given: a number, a tensor with one per neuron, or None for the one that
            follows from α (Note [Where the gain comes from]). As the layer uses it, it is a buffer
            of each scan that is no part of the `state_dict`.
    """

    _W: ClassVar[str] = "weight_hh"  # the name of W; over time there is a weight_ih beside it
    _sizes: ClassVar[tuple[str, ...]] = ("input_size", "hidden_size")  # arguments
    _defaults: ClassVar[dict[str, object]] = {}  # of arguments that are kept under their names
    _biased: bool
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
        own = {name: getattr(self, name) for name in (*self._sizes, *self._defaults)}
        first = "filter" + next(iter(self.scan_alphas))
        own |= {"bias": self._biased, "filter": spec(self._filter(first))}
        return {"init": self.init} | self._own_settings() | self._alpha_settings() | own

    def extra_repr(self) -> str:
        """Sizes, α, φ, a gain that was given, the cap, and what else is not the default."""
        parts = [*self._facts(), f"nonlinearity={self.nonlinearity}"]
        if self.gain is not None:
            one = not isinstance(self.gain, Tensor)
            parts.append(f"gain={self.gain:g}" if one else "gain=one per neuron")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm:.4g}")
        now = {name: getattr(self, name) for name in self._defaults}
        parts += [f"{k}={v}" for k, v in now.items() if v != self._defaults[k]]
        return ", ".join(parts)

    def _facts(self) -> list[str]:
        return [*(str(getattr(self, name)) for name in self._sizes), str(self._given)]

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

    def _add_weights(
        self,
        suffix: str,
        *shape: int,
        inputs: int | None = None,
        bias: bool,
        index: Index = 0,
        **place: Any,
    ) -> None:
        """Room for W of this shape, W_i if there are inputs, b and α of one scan."""
        *lead, out, _ = shape
        shapes: dict[str, tuple[int, ...]]
        shapes = {} if inputs is None else {"weight_ih": (out, inputs)}
        shapes |= {self._W: shape} | ({"bias": (*lead, out)} if bias else {})
        for name, size in shapes.items():
            p = nn.Parameter(torch.empty(size, **place))
            self.register_parameter(name + suffix, p)
        self._biased = bool(bias)
        self._add_scan(suffix, p, index, lead[0] if lead else None)

    def _held(self, suffix: str) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """W, W_i (over time alone) and b (if there is one) of a scan."""
        W_i = self._tensor("weight_ih" + suffix) if self._W == "weight_hh" else None
        b = self._tensor("bias" + suffix) if self._biased else None
        return self._tensor(self._W + suffix), W_i, b

    def _effective(self, suffix: str) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """W under the cap, and W_i and b with the gain, of a scan."""
        W, W_i, b = self._held(suffix)
        return (self._capped(W), *self._driven(W_i, b, suffix))

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
        """γ of one scan, once its filter has numbers."""
        filter, like = self._filter("filter" + suffix), next(self.parameters())
        if filter.emptied:  # until it has numbers: see `gain_of`
            self._buffers["_gain" + suffix] = torch.empty(filter.out_features, device="meta")
            return
        given = self.gain
        if given is None:
            alpha = self.scan_alphas[suffix].start_of_scan
            given = gain_for(alpha, filter.out_features)
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

    def _driven(
        self, W_i: Tensor | None, b: Tensor | None, suffix: str
    ) -> tuple[Tensor | None, Tensor | None]:
        """γ ⊙ W_i and γ ⊙ b."""
        gain, like = self.gain_of(suffix), b if W_i is None else W_i
        if gain is None or like is None:
            return W_i, b
        gain = gain.to(like.dtype)
        driven = None if W_i is None else gain.unsqueeze(-1) * W_i
        return driven, None if b is None else gain * b

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
        for the weights as they are. A learned ρ is taken as it is. Every recurrence is covered,
        in continuous time at intervals of `dt`.

        Args:
            steps: M; the horizon if not given. Not for a network in depth, which has its own.

        Example:
            >>> rnn = roann.RoaRNN(2, 64, horizon=1000, max_norm=3.0)
            >>> print(rnn.interval(), rnn.interval(2000))
            [0.301, 1.82] [0.0906, 3.32]

        Reference: Theorem III.1 of the paper, in its finite form; Note [Two intervals, one limit].
        """
        found = []
        for suffix, (W, alpha) in zip(self.scan_alphas, self._maps(), strict=False):
            maps = self.scan_alphas[suffix].horizon if steps is None else steps
            count = _checks.size("steps", math.ceil(maps or 1))
            sigma = self.max_norm or float(schatten(W.detach().to(torch.float64)))
            r = ACTIVATIONS[self.nonlinearity].r
            rate = torch.as_tensor(alpha, dtype=torch.float64).detach()
            found.append(roa_bounds(rate, sigma, count, r).finite)
        if not found:
            _checks.fail("interval", "a layer that a theorem covers", type(self).__name__)
        return Interval(min(i.log_lower for i in found), max(i.log_upper for i in found))

    def _maps(self) -> list[tuple[Tensor, float | Tensor]]:
        """The weights W and the α of every recurrence, or of every stack of maps."""
        of = {suffix: self._tensor(self._W + suffix) for suffix in self.scan_alphas}
        return [(self._capped(W), self.alpha_of(suffix)) for suffix, W in of.items()]

    def roa_maps(self) -> RoaMaps:
        """The maps of the layer as they stand: see `roann.nn.maps`."""
        phi, scans = ACTIVATIONS[self.nonlinearity], []
        for suffix in self.scan_alphas:
            W, W_i, b = self._effective(suffix)
            O = self._filter("filter" + suffix).form()
            scans.append(Scan(W, O, self.alpha_of(suffix), phi, b, W_i))
        return RoaMaps(tuple(scans), max_norm=None if self.learn_rho else self.max_norm)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw new parameters; filters stay, unless they came from meta without numbers."""
        for suffix in self.scan_alphas:
            initialise(self.init, *self._held(suffix), generator)
        self._reset(generator)

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
