"""Sums over rows, aᵀ x: the gradients of what all steps share, as products of torch."""

from __future__ import annotations

import torch
from torch import Tensor

Maybe = Tensor | None

FEW_INPUTS = 16  # up to which W_i and b are summed in one pass
CALL = 1 << 34  # multiply-adds in one product, some tenths of a second: signals wait for its end
_PARTS = 8  # of a sum over rows, whatever the number of threads


def add_outer(
    a: Tensor, x: Tensor, u: Maybe, W: Maybe, W_i: Maybe, b: Maybe, places: Maybe = None
) -> None:
    """See `Kernel.add_outer`.

    b is the weight of an input that is always 1. To read a is most of the work for W_i and b, so
    both are made in one pass unless u is too large to copy.
    """
    if W is not None:
        _add(W, a, x if places is None else x.index_select(0, places))
    if u is not None and W_i is not None and u.shape[1] > FEW_INPUTS:
        _add(W_i, a, u)
        u = None
    inputs = [u] if u is not None and W_i is not None else []
    if b is not None:
        inputs.append(a.new_ones(len(a), 1))
    if not inputs:
        return
    joint = torch.cat(inputs, 1)
    found = a.new_zeros(a.shape[1], joint.shape[1])
    _add(found, a, joint)
    if b is not None:
        b += found[:, -1]
    if u is not None and W_i is not None:
        W_i += found[:, : u.shape[1]]


def _add(to: Tensor, a: Tensor, x: Tensor) -> None:
    """to += aᵀ x, summed over rows in an order that does not depend on the number of threads.

    As one product, BLAS would cut a long sum into as many parts as it has threads. As a batch of
    products it gives each thread whole ones. A wide a and a narrow x are multiplied as xᵀ a: BLAS
    reads them up to three times as fast that way.
    """
    if x.shape[1] < a.shape[1]:
        to, a, x = to.mT, x, a
    parts = min(_PARTS, max(1, (1 << 24) // max(1, to.numel())))  # their sums must fit in memory
    block = max(parts, CALL // max(1, to.numel()) // parts * parts)
    for low in range(0, len(a), block):
        a_, x_ = a[low : low + block], x[low : low + block]
        whole = len(a_) // parts * parts
        if whole:
            shape = (parts, whole // parts, -1)
            to += torch.bmm(a_[:whole].view(shape).mT, x_[:whole].view(shape)).sum(0)
        if whole < len(a_):
            to.addmm_(a_[whole:].mT, x_[whole:])
