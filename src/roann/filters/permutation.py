"""Filters that only move coordinates: stored as integers, applied by gather, O(N).

A rectangular one is a corner of a square permutation of max(out, in) coordinates: its first rows
(out < in) or first columns (out > in), which is the paper's semi-permutation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from roann import _checks
from roann.filters.base import Filter, _Source
from roann.kernels.linear import Gather, Linear


class _Order(Filter):
    index: Tensor
    inverse: Tensor

    def _core(self) -> Linear:
        return Gather(self._held("index"), self._held("inverse"))

    def _both(self, index: Tensor) -> dict[str, Tensor]:
        index = index.expand(*self._lead(), self.larger).contiguous()
        return {"index": index, "inverse": index.argsort(-1)}

    def _check(self, buffers: Mapping[str, Tensor]) -> None:
        index, inverse = buffers["index"], buffers["inverse"]
        _checks.permutation("index", index)
        _checks.permutation("inverse", inverse)
        if not torch.equal(index.gather(-1, inverse), index.sort(-1).values):
            _checks.fail("inverse", "the inverse of index", "another permutation")


class _Fixed(_Order):
    """Abstract: nothing is drawn, so there is one right order."""

    def _check(self, buffers: Mapping[str, Tensor]) -> None:
        for key, right in self._draw(_Source(None, None)).items():
            if not torch.equal(buffers[key], right):
                _checks.fail(key, f"that of {type(self).__name__}({self.extra_repr()})", "another")


@final
class Permutation(_Order):
    r"""A uniformly random (semi-)permutation: strategy I of the paper.

    .. math:: (O x)_i = x_{\pi(i)}

    Example:
        >>> P = Permutation(6, generator=torch.Generator().manual_seed(0))
        >>> x = torch.randn(6)
        >>> bool((P.matvec_transpose(P.matvec(x)) == x).all())
        True

    Reference: Appendix C, Definition C.1 of the paper.
    """

    name = "permutation"

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        return self._both(source.permutations(*self._lead(), self.larger))


@final
class Identity(_Fixed):
    r"""The (semi-)identity: eyeRNN, FastRNN with fixed weights, the leaky integrator.

    .. math:: O x = x

    Shape: x (…, in) gives O x (…, out), cut or padded with zeros.

    Example:
        >>> Identity(3).matvec(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 2., 3.])

    Reference: Section IV-D of the paper (identity versus random orthogonal).
    """

    name = "identity"
    has_powers = True

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        return self._both(torch.arange(self.larger, device=source.device))

    def turned(self, power: Tensor) -> Linear:
        """Every power of the identity is the identity."""
        return self.form()

    def generator_of(self, x: Tensor) -> Tensor:
        """(log O) x = 0."""
        return torch.zeros_like(x)


@final
class Cycle(_Fixed):
    r"""The cyclic shift by one coordinate, whose eigenvalues are the N-th roots of unity.

    .. math:: (O x)_i = x_{i-1 \bmod N}

    Example:
        >>> Cycle(3).matvec(torch.tensor([1.0, 2.0, 3.0]))
        tensor([3., 1., 2.])

    Reference: the shifting permutation of Rotman and Wolf's Shuffling RNN.
    """

    name = "cycle"

    def _draw(self, source: _Source) -> dict[str, Tensor]:
        return self._both(torch.arange(self.larger, device=source.device).roll(1))
