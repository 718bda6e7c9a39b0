"""The weights, inputs and fillings of the golden vectors: every number is given by a formula."""

import math
from typing import TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def F(k: int, *shape: int) -> Tensor:
    """0.4·sin(k + n), n = 0, 1, 2, … in row-major order."""
    n = torch.arange(math.prod(shape), dtype=torch.float64)
    return (0.4 * torch.sin(k + n)).reshape(shape)


def inputs(batch: int = 1) -> Tensor:
    """x_t[b, j] = cos(0.5·t + j + 0.9·b), six steps of two numbers."""
    t, b, j = (torch.arange(n, dtype=torch.float64) for n in (6, batch, 2))
    return torch.cos(0.5 * t[:, None, None] + 0.9 * b[:, None] + j)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=rng(seed), dtype=torch.float64)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def filled(module: M, **values: Tensor | float) -> M:
    """The module in float64 and evaluation mode with these tensors (dots written as __)."""
    module.double().eval()
    state = module.state_dict()
    for name, value in values.items():
        target = state[name.replace("__", ".")]
        new = torch.as_tensor(value, dtype=target.dtype)
        assert new.shape == target.shape, name
        target.copy_(new)
    return module


def skew_entries(A: Tensor) -> Tensor:
    """The strict upper triangle of A, row by row: the inverse of `roann.lab.models.skew.skew`."""
    i, j = torch.triu_indices(A.shape[0], A.shape[0], 1, device=A.device)
    return A[i, j]
