"""What every layer of the package shares: its settings, and how they are checked and shown."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter
from roann.kernels.activations import ACTIVATIONS
from roann.nn.init import INITS


class RoaModule(nn.Module):
    """Abstract: a layer with α, φ and an initialisation.

    α is a number, or a buffer `_alpha` with one entry per neuron.
    """

    _alpha: Tensor | None

    def __init__(
        self,
        rho: float,
        horizon: float | None,
        alpha: float | Tensor | None,
        features: int | None,
        nonlinearity: str,
        init: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        self.nonlinearity = _checks.choice("nonlinearity", nonlinearity, ACTIVATIONS)
        self.init = _checks.choice("init", init, INITS)
        value = _checks.mixing(rho, horizon, alpha, features)
        kind = torch.get_default_dtype() if dtype is None else dtype
        if not kind.is_floating_point:
            _checks.fail("dtype", "a floating point dtype", kind, error=TypeError)
        self._scalar = None if isinstance(value, Tensor) else value
        self.register_buffer(
            "_alpha", value.to(device=device, dtype=kind) if isinstance(value, Tensor) else None
        )

    @property
    def alpha(self) -> float | Tensor:
        """α: a number, or a tensor (N,)."""
        if self._alpha is not None:
            return self._alpha
        assert self._scalar is not None
        return self._scalar

    def _tensor(self, name: str) -> Tensor:
        """A parameter, or what stands in its place.

        Not `get_parameter`: `torch.func.functional_call` and parametrizations put others there.
        """
        value: Tensor = getattr(self, name)
        return value

    def _filter(self, name: str) -> Filter:
        value: Filter = getattr(self, name)
        return value

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments that rebuild this module, as JSON can hold them."""
        alpha = self.alpha
        return {
            "nonlinearity": self.nonlinearity,
            "init": self.init,
            "alpha": alpha.tolist() if isinstance(alpha, Tensor) else alpha,
        }

    def _describe_alpha(self) -> str:
        alpha = self.alpha
        if isinstance(alpha, Tensor):
            return f"alpha=vector of {alpha.numel()}"
        return f"alpha={alpha:.6g}"


def spec(filter: Filter) -> str | dict[str, Any]:
    """A filter's name, with its settings where it has any."""
    settings = filter.settings()
    return {"name": filter.name, **settings} if settings else filter.name
