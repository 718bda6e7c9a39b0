"""What every layer of the package shares: its settings, and how they are checked and shown."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor

from roann import _checks
from roann.filters import Filter
from roann.kernels.activations import ACTIVATIONS
from roann.nn import hypothesis
from roann.nn.init import INITS
from roann.nn.mixing import Mixed, spec

__all__ = ["RoaModule", "spec"]


class RoaModule(Mixed, ABC):
    """Abstract: a layer with α, φ and an initialisation."""

    _warned = False  # by `HypothesisWarning`, once in the life of a layer

    def __init__(
        self,
        rho: float | Tensor,
        horizon: float | None,
        alpha: float | Tensor | None,
        features: int | None,
        learn_rho: bool,
        nonlinearity: str,
        init: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        layers: int = 1,
    ) -> None:
        super().__init__(rho, horizon, alpha, features, learn_rho, device, dtype, layers)
        order = "it stands before bias and batch_first, as in torch.nn.RNN"
        self.nonlinearity = _checks.choice("nonlinearity", nonlinearity, ACTIVATIONS, order)
        self.init = _checks.choice("init", init, INITS)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments that rebuild this module, as JSON can hold them."""
        return {
            "nonlinearity": self.nonlinearity,
            "init": self.init,
        } | self._alpha_settings()

    def _weight_settings(self) -> dict[str, Any]:
        return super()._weight_settings() | {"nonlinearity": self.nonlinearity}

    @abstractmethod
    def _maps(self) -> list[tuple[Tensor, float | Tensor]]:
        """The weights W and the α of every recurrence, or of every stack of maps."""

    def _reset(self, generator: torch.Generator | None) -> None:
        """What is left to do when the parameters are drawn."""
        self._reset_alpha()
        for child in self.children():
            if isinstance(child, Filter):
                child.reset_parameters(generator)
        self._warn()

    def _load_from_state_dict(self, *arguments: Any) -> None:
        super()._load_from_state_dict(*arguments)
        self._warn()

    def _warn(self) -> None:
        if not self._warned:
            r = ACTIVATIONS[self.nonlinearity].r
            self._warned = hypothesis.warn(type(self).__name__, self._maps(), r)
