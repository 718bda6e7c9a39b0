"""The additive filter around any module: α f(x) + (1 − α) O x."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter, make
from roann.kernels.reference import mix
from roann.nn.alpha import Alpha
from roann.nn.alpha_module import AlphaModule, spec

# What torch's layers call the width they take and the width they give.
WIDTHS = (("in_features", "out_features"), ("in_channels", "out_channels"))


class Roa(AlphaModule):
    r"""Any module with a random orthogonal additive filter around it.

    .. math:: x' = \alpha\, f(x) + (1 - \alpha)\, O x, \quad \alpha = \rho / \mathrm{horizon}

    f is `module`, O the fixed semi-orthogonal `filter`, applied along the dimension `dim`. f may
    change the size of that dimension and no other. A recurrent cell f(u, x) is filtered along its
    state x; a state of several tensors (an LSTM's h and c) has the same O for each.

    If f is Lipschitz with constant λ, a map between equal widths changes the length of a gradient
    by a factor within 1 − α ± αλ: the theorems hold, with λ in place of rσ. A gain, a cap on norms
    and initial weights are matters of f.

    Args:
        module: f.
        features: N, or (N_in, N_out). If not given, it is read from torch's own layers: from f,
            or, if f is an `nn.Sequential`, from the first and last of its layers that have widths.
        rho, horizon, alpha, learn_rho: as in `RoaRNN`, with ρ = 1 by default; the horizon is the
            number of steps, or of such maps in the network. The learned parameter is `alpha_logit`.
        filter: O, as in `RoaRNN`.
        dim: the dimension of the features: −1, or 1 for the channels of images.
        state: which positional argument of f is x. If not given, 1 (the second) for torch's
            recurrent cells and 0 for other modules.
        generator: where the filter comes from.
        device: where the filter lives; where f does, if not given.
        dtype: its dtype; that of f, if not given.

    Shape: as f; `features` along `dim`.

    Example:
        >>> f = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
        >>> net = torch.nn.Sequential(*(Roa(f, horizon=1000) for _ in range(1000)))
        >>> x = torch.randn(3, 4, requires_grad=True)
        >>> net(x).sum().backward()
        >>> bool(0.01 < x.grad.norm() < 100)
        True
        >>> cell = Roa(torch.nn.GRUCell(2, 5), alpha=0.0)
        >>> h = torch.randn(3, 5)
        >>> bool(((cell(torch.randn(3, 2), h).norm(dim=1) - h.norm(dim=1)).abs() < 1e-5).all())
        True

    Reference: Eq. (12) of the paper for any f; Section III, "in any kind of neural network model".
    """

    filter: Filter

    def __init__(
        self,
        module: nn.Module,
        features: int | tuple[int, int] | None = None,
        *,
        rho: float | Tensor = 1.0,
        horizon: float | None = None,
        alpha: float | Tensor | None = None,
        learn_rho: bool = False,
        filter: str | Tensor | Filter | dict[str, Any] = "broad",
        dim: int = -1,
        state: int | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(module, nn.Module):
            _checks.fail("module", "an nn.Module", type(module).__name__, error=TypeError)
        like = next((p for p in module.parameters() if p.is_floating_point()), None)
        if like is not None:
            device, dtype = device or like.device, dtype or like.dtype
        n_in, n_out = _widths(module) if features is None else _given(features)
        given = Alpha.given(rho, horizon, alpha, learn_rho, n_out)
        super().__init__(given, device, dtype)
        self.module, self.dim = module, dim
        cell = isinstance(module, nn.RNNCellBase)
        self.state = _checks.size("state", int(cell) if state is None else state, least=0)
        self.filter = make(
            filter, n_out, n_in, horizon=given.horizon, generator=generator, device=device,
            dtype=dtype,
        )  # fmt: skip
        self._add_scan("", torch.empty(0, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Return a learned α to its start; draw a filter that came from meta without numbers.

        The parameters of `module` are its own to reset.
        """
        self._reset_alpha()
        self.filter.reset_parameters(generator)

    @property
    def state_size(self) -> int:
        """N_out, of the state of a cell."""
        return self.filter.out_features

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """α f(…) + (1 − α) O x; a state that is left out or None is zero."""
        if not args:
            _checks.fail("x", "positional arguments", "none", error=TypeError)
        new = self.module(*args, **kwargs)
        x = args[self.state] if len(args) > self.state else kwargs.get("hx")
        if isinstance(new, Tensor):
            return self._mix(new, x)
        if not isinstance(new, tuple) or not all(isinstance(t, Tensor) for t in new):
            got = type(new).__name__
            _checks.fail("module", "one that returns a tensor or a tuple of them", got)
        olds = (None,) * len(new) if x is None else x
        return tuple(self._mix(t, old) for t, old in zip(new, olds, strict=True))

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """The next state of a cell from x (…, N) and u (…, I), as the diagnostics ask for it."""
        if self.state != 1:
            _checks.fail("state", "1, a cell f(u, x), for step", self.state, error=TypeError)
        after: Tensor = self(u, x)
        return after

    def _mix(self, new: Tensor, x: Tensor | None) -> Tensor:
        alpha = self.alpha
        if isinstance(alpha, Tensor) and alpha.dim() == 1:
            after = new.dim() - 1 - self.dim if self.dim >= 0 else -1 - self.dim
            alpha = alpha.reshape(-1, *(1,) * after)
        if x is None:
            return (alpha * new).to(new.dtype)
        turned = self._turn(x)
        if turned.shape != new.shape:
            _checks.fail(
                "module",
                f"an output of shape {tuple(turned.shape)}, as O x",
                tuple(new.shape),
                f"features are counted along dim={self.dim}; the rest of the shape must stay",
            )
        return mix(new, turned, alpha).to(new.dtype)

    def _turn(self, x: Tensor) -> Tensor:
        """O x along `dim`."""
        n = self.filter.in_features
        if not isinstance(x, Tensor) or not -x.dim() <= self.dim < x.dim():
            got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
            _checks.fail("x", f"a tensor that has a dimension {self.dim}", got, error=RuntimeError)
        if x.shape[self.dim] != n:
            got = tuple(x.shape)
            _checks.fail("x", f"{n} features along dim={self.dim}", got, error=RuntimeError)
        return self.filter.matvec(x.movedim(self.dim, -1)).movedim(-1, self.dim)

    def settings(self) -> dict[str, Any]:
        """What its `state_dict` does not hold, as JSON can hold it."""
        own = {"filter": spec(self.filter), "dim": self.dim, "state": self.state}
        return self._alpha_settings() | own

    def extra_repr(self) -> str:
        """α, and along which dimension."""
        parts = [str(self._given)]
        parts += [f"dim={self.dim}"] if self.dim != -1 else []
        return ", ".join(parts)


def _given(features: int | tuple[int, int]) -> tuple[int, int]:
    both = (features, features) if isinstance(features, int) else tuple(features)
    if len(both) != 2:
        _checks.fail("features", "N or (N_in, N_out)", features)
    return _checks.size("features", both[0]), _checks.size("features", both[1])


def _widths(module: nn.Module) -> tuple[int, int]:
    """N_in and N_out, read from torch's layers."""
    layers = list(module) if isinstance(module, nn.Sequential) else [module]
    n_in, n_out = _first(layers, 0), _first(reversed(layers), 1)
    if n_in is None or n_out is None:
        _checks.fail(
            "features", "N or (N_in, N_out)", None, f"{type(module).__name__} does not tell its own"
        )
    return n_in, n_out


def _first(layers: Iterable[nn.Module], end: int) -> int | None:
    """The width of the first of the layers that has one, on the side it takes (0) or gives (1)."""
    for layer in layers:
        if isinstance(layer, nn.RNNCellBase):
            return layer.hidden_size
        for names in WIDTHS:
            if isinstance(width := getattr(layer, names[end], None), int):
                return width
    return None
