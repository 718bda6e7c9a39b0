"""What expRNN, scoRNN and nnRNN share: modReLU, and W from a skew matrix."""

from __future__ import annotations

from abc import abstractmethod
from typing import TypeVar

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings
from roann.lab.models.recurrence import DrivenSystem, Transition
from roann.lab.models.skew import skew

C = TypeVar("C", bound=HiddenSettings)


def modrelu(z: Tensor, b: Tensor) -> Tensor:
    """sign(z)·max(|z| + b, 0), real. Its slope is 1 where |z| > −b, else 0; at z = 0 it is 0."""
    return torch.sign(z) * torch.relu(torch.abs(z) + b)


class OrthogonalSystem(DrivenSystem[C]):
    """Abstract: h' = modrelu_b(W h + W_i x), W made by `recurrent_matrix` from a skew matrix A.

    A has a tenth of the learning rate. See Note [Only free numbers are stored] in `skew`.
    """

    input_map = ("W_i",)
    W_i: nn.Parameter
    b: nn.Parameter
    A: nn.Parameter

    def skew_matrix(self) -> Tensor:
        """A (N, N), from its free entries."""
        return skew(self.A, self.state_size)

    @abstractmethod
    def recurrent_matrix(self) -> Tensor:
        """W (N, N), for the present parameters."""

    def transition(self) -> Transition:
        """h, d ↦ modrelu_b(W h + d)."""
        W_t, b = self.recurrent_matrix().mT, self.b
        return lambda h, d: modrelu(h @ W_t + d, b)

    def learning_rate_scales(self) -> dict[str, float]:
        return {"A": 0.1}
