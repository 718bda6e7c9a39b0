"""One step in time (`RoaRNNCell`) and one map in depth (`RoaLayer`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter
from roann.functional import roa_step, step
from roann.kernels.activations import ACTIVATIONS
from roann.nn.alpha import Alpha
from roann.nn.maps import RoaMaps
from roann.nn.module import RoaModule
from roann.nn.norm import CapMemo


class RoaRNNCell(RoaModule):
    r"""One step of a roaRNN: `torch.nn.RNNCell`'s contract.

    .. math:: x' = \alpha\, \phi(W x + \gamma \odot (W_i u + b)) + (1 - \alpha)\, O x

    u is `input`, x `hx`, W `weight_hh`, W_i `weight_ih`, b `bias`, O `filter`, and γ the fixed
    `gain_of("")`.

    Args:
        input_size: I.
        hidden_size: N.
        bias: whether there is b.
        nonlinearity: the name of φ.
        device: where parameters and filter live.
        dtype: their dtype.
        rho, horizon, alpha, learn_rho, filter, init, gain, max_norm, generator: as in `RoaRNN`.

    Shape: input (B, I) or (I,), hx (B, N) or (N,); the result is as hx.

    Example:
        >>> cell = RoaRNNCell(3, 5, alpha=0.0)
        >>> x = torch.randn(2, 5)
        >>> bool(((cell(torch.randn(2, 3), x).norm(dim=1) - x.norm(dim=1)).abs() < 1e-5).all())
        True

    Reference: Eq. (19) of the paper.
    """

    filter: Filter
    weight_hh: nn.Parameter
    weight_ih: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "relu",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rho: float | Tensor = 0.3,
        horizon: float | None = None,
        alpha: float | Tensor | None = None,
        learn_rho: bool = False,
        filter: str | Tensor | Filter | dict[str, Any] = "broad",
        init: str = "balanced",
        gain: float | Tensor | None = None,
        max_norm: float | str | None = "auto",
        generator: torch.Generator | None = None,
    ) -> None:
        _checks.size("input_size", input_size)
        _checks.size("hidden_size", hidden_size)
        given = Alpha.given(rho, horizon, alpha, learn_rho, hidden_size)
        super().__init__(
            given, nonlinearity, device, dtype,
            init=init, gain=gain, max_norm=max_norm, features=hidden_size,
        )  # fmt: skip
        self.input_size, self.hidden_size = input_size, hidden_size
        self._memo = CapMemo()
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._add_weights("", hidden_size, hidden_size, inputs=input_size, bias=bias, **place)
        if not bias:
            self.register_parameter("bias", None)
        self.reset_parameters(generator)
        self._add_filter("", filter, hidden_size, generator=generator, **place)

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """The next state from x (…, N) and u (…, I)."""
        return self._next(x, u, *self._weights())

    def _next(self, x: Tensor, u: Tensor, W: Tensor, W_i: Tensor, b: Tensor | None) -> Tensor:
        if self._cap is not None and self.max_norm is not None:
            W = self._memo(W, self.max_norm, x)
        driven: Tensor | None = W_i
        if self._buffers["_gain"] is not None:
            driven, b = self._driven(W_i, b, "")
        O: Any = self._modules["filter"]  # bypasses `nn.Module.__getattr__` for speed
        return step(x, u, W, driven, b, O.form(), self.alpha_of(""), ACTIVATIONS[self.nonlinearity])

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The next state; from zero if hx is None."""
        shape = input.shape
        if len(shape) not in (1, 2):
            _checks.fail("input", "1 dimension (unbatched) or 2", f"{len(shape)}")
        *lead, I = shape
        if self.input_size != I:
            _checks.fail("input", f"{self.input_size} features", I, error=RuntimeError)
        W, W_i, b = self._weights()
        if input.dtype is not W_i.dtype:
            _checks.same_dtype("input", input, W_i)
        wanted = (*lead, self.hidden_size)
        if hx is None:
            hx = W.new_zeros(wanted)
        elif not isinstance(hx, Tensor) or hx.shape != wanted:
            _checks.state(hx, wanted)
        return self._next(hx, input, W, W_i, b)

    def _weights(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """W, W_i and b; bypasses `nn.Module.__getattr__` for speed."""
        held: Any = self._parameters
        try:
            return held["weight_hh"], held["weight_ih"], held["bias"]
        except KeyError:  # a parametrization stands in the place of one
            return self.weight_hh, self.weight_ih, self.bias


class RoaLayer(RoaModule):
    r"""One map of a roaFNN, from N_in to N_out neurons.

    .. math:: x' = \alpha\, \phi(W x + b) + (1 - \alpha)\, O x

    W is `weight`, b `bias`, O the fixed semi-orthogonal `filter`.

    Args:
        in_features: N_in.
        out_features: N_out.
        bias: whether there is b.
        nonlinearity: the name of φ.
        device: where parameters and filter live.
        dtype: their dtype.
        rho, horizon, alpha, learn_rho, filter, max_norm, generator: as in `RoaRNN`, with
            ρ = 1 by default; the horizon is the number of maps of the network the layer is part of.
        init: as in `RoaFNN`.
        gain: γ on b, as in `RoaRNN`; 1 by default, because no input enters map after map.

    Shape: x (…, N_in) gives (…, N_out).

    Example:
        >>> layer = RoaLayer(4, 4, alpha=1.0, nonlinearity="tanh")
        >>> x = torch.randn(3, 4)
        >>> plain = torch.tanh(torch.nn.functional.linear(x, layer.weight, layer.bias))
        >>> bool((layer(x) - plain).abs().max() < 1e-6)
        True

    Reference: Eq. (12) of the paper.
    """

    _W = "weight"
    _sizes = ("in_features", "out_features")
    filter: Filter
    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rho: float | Tensor = 1.0,
        horizon: float | None = None,
        alpha: float | Tensor | None = None,
        learn_rho: bool = False,
        filter: str | Tensor | Filter | dict[str, Any] = "broad",
        init: str = "balanced",
        gain: float | Tensor | None = 1.0,
        max_norm: float | str | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        _checks.size("in_features", in_features)
        _checks.size("out_features", out_features)
        given = Alpha.given(rho, horizon, alpha, learn_rho, out_features)
        super().__init__(
            given, nonlinearity, device, dtype,
            init=init, gain=gain, max_norm=max_norm, features=out_features,
        )  # fmt: skip
        self.in_features, self.out_features = in_features, out_features
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._add_weights("", out_features, in_features, bias=bias, **place)
        if not bias:
            self.register_parameter("bias", None)
        self.reset_parameters(generator)
        self._add_filter("", filter, out_features, in_features, generator=generator, **place)

    def roa_maps(self) -> RoaMaps:
        """The one map of the layer as it stands: a stack of one."""
        maps = super().roa_maps()
        W, b = maps.scans[0].W, maps.scans[0].b
        one = maps.scans[0]._replace(W=W.unsqueeze(0), b=None if b is None else b.unsqueeze(0))
        return maps._replace(scans=(one,))

    def forward(self, x: Tensor) -> Tensor:
        """α φ(W x + b) + (1 − α) O x."""
        if x.shape[-1] != self.in_features:
            _checks.fail("x", f"{self.in_features} features", x.shape[-1], error=RuntimeError)
        _checks.same_dtype("x", x, self.weight)
        W, _, b = self._effective("")
        return roa_step(x, W, self.filter, self.alpha, b=b, nonlinearity=self.nonlinearity)
