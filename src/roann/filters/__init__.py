"""Fixed (semi-)orthogonal filters O, by name and as classes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roann import _checks
from roann.filters.base import Common, Filter
from roann.filters.dense import QR, Given, Haar
from roann.filters.permutation import Cycle, Identity, Permutation
from roann.filters.spectra import Angles, Broad, Slow, Spectrum, Spread, Still
from roann.filters.structured import Householder, Rotations

__all__ = [
    "FILTERS",
    "QR",
    "Angles",
    "Broad",
    "Cycle",
    "Filter",
    "Given",
    "Haar",
    "Householder",
    "Identity",
    "Permutation",
    "Rotations",
    "Slow",
    "Spectrum",
    "Spread",
    "Still",
    "make",
]

FILTERS: dict[str, type[Filter]] = {
    f.name: f
    for f in (
        Broad, Still, Slow, Spread, QR, Haar, Permutation, Identity, Cycle, Rotations, Householder,
    )
}  # fmt: skip


def make(
    filter: str | Tensor | Filter | dict[str, Any],
    out_features: int,
    in_features: int | None = None,
    *,
    depth: int | None = None,
    horizon: float | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Filter:
    """A filter from its name, a matrix, a filter, or {"name": …, settings}.

    `horizon` is for a `Spectrum` whose settings do not name one.

    Example:
        >>> make("permutation", 4).to_dense().sum(0)
        tensor([1., 1., 1., 1.])
        >>> make("qt", 4)
        Traceback (most recent call last):
            ...
        ValueError: filter: expected one of 'broad', 'still', 'slow', 'spread', 'qr', 'haar', \
'permutation', 'identity', 'cycle', 'rotations', 'householder', got 'qt'; did you mean 'qr'?
    """
    _checks.generator(generator)
    in_features = out_features if in_features is None else in_features
    wanted = (out_features, in_features) if depth is None else (depth, out_features, in_features)
    if isinstance(filter, Tensor):
        filter = Given(filter, device=device, dtype=dtype)
    if isinstance(filter, Filter):
        lead = () if filter.depth is None else (filter.depth,)
        shape = (*lead, filter.out_features, filter.in_features)
        if shape not in (wanted, wanted[-2:]):
            _checks.fail("filter", f"shape {wanted}", shape)
        return filter
    settings: dict[str, Any] = dict(filter) if isinstance(filter, dict) else {"name": filter}
    name = settings.pop("name", None)
    if name == Given.name:  # a saved matrix, to be filled in by load_state_dict
        return Given(torch.empty(wanted, device="meta", dtype=dtype))
    cls = Angles if name == Angles.name else FILTERS[_checks.choice("filter", name, FILTERS)]
    if horizon is not None and issubclass(cls, Spectrum) and cls is not Angles:
        settings.setdefault("horizon", horizon)
    common = Common(depth=depth, generator=generator, device=device, dtype=dtype)
    return cls(out_features, in_features, **common, **settings)
