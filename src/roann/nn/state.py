"""The settings that travel with the weights, compared when they are loaded.

Note [What travels with the weights]
------------------------------------
The same weights under another α, φ or kind of filter are another function. So `state_dict` carries
these settings beside the tensors, as `_extra_state`: JSON in a tensor of bytes, because a great
deal of code takes every value of a `state_dict` for a tensor. A layer keeps its
own settings whatever it loads; where they differ, `load_state_dict` names both under "Unexpected
key(s)", which is an error if strict and is returned if not. (torch tells modules of the keys, and
not of `strict`.) Weights without `_extra_state`, of an older file or one of tensors alone, load as
they always did. A vector α is compared as the buffer it is. A learned α is a parameter, which
weights may set: it is "learned", wherever it started.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import torch
from torch import Tensor


def differences(key: str, own: dict[str, Any], given: object) -> list[str]:
    """One sentence on the settings that a layer and the weights it loads both have, and differ."""
    given = _decoded(given)
    if not isinstance(given, dict):
        what = f"other {given.dtype}" if isinstance(given, Tensor) else type(given).__name__
        return [_sentence(key, "settings as JSON in a tensor of bytes", what)]
    given = {"gain": 1.0, "max_norm": None} | given  # of weights that do not name them
    unknown = {n for n in own if own[n] == "auto"}  # until α has numbers
    names = [n for n in own if n in given and n not in unknown and not _same(own[n], given[n])]
    if not names:
        return []
    here, there = (", ".join(f"{n}={d[n]!r}" for n in names) for d in (own, given))
    return [_sentence(key, here, there)]


def _decoded(state: object) -> object:
    """The settings that `get_extra_state` wrote, or what else there is."""
    if not isinstance(state, Tensor) or state.dtype != torch.uint8 or state.is_meta:
        return state
    try:
        return json.loads(bytes(state.flatten().tolist()))
    except (ValueError, RecursionError):
        return state


def is_alpha(alpha: Tensor) -> bool:
    """Whether these can be α, as far as they are known."""
    if alpha.is_meta:
        return True
    return alpha.is_floating_point() and bool(((alpha >= 0) & (alpha <= 1)).all())


def _sentence(key: str, expected: str, got: str) -> str:
    cure = "build the layer with the settings of the weights, or pass strict=False to keep its own"
    return f"{key}: expected {expected}, as in this layer, got {got}; {cure}"


def _same(a: object, b: object) -> bool:
    """Whether two settings are equal, numbers to rounding."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, int | float) and abs(b) < sys.float_info.max:
        return math.isclose(a, b, rel_tol=1e-9)
    return a == b


def distance(key: str, own: Tensor, given: Tensor) -> list[str]:
    """One sentence if two vectors α differ by more than the rounding of the coarser dtype."""
    rounding = 2 * max(torch.finfo(t.dtype).eps for t in (own, given))
    a, b = (t.detach().to("cpu", torch.float64) for t in (own, given))
    if torch.allclose(a, b, rtol=rounding, atol=0):
        return []
    most = float((a - b).abs().max())
    return [_sentence(key, "the same alpha", f"one that differs by up to {most:.3g}")]
