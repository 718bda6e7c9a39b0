"""Where the time of a training step goes, by torch's own profiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.flops import Products
from roann.kernels import native

# Part of a step → the operators that belong to it, in the order of `Products`.
PARTS: dict[str, tuple[str, ...]] = {
    "forward sweep": ("roann::scan_forward", "roann::scan"),
    "backward sweep": ("roann::scan_backward",),
    "products for gradients": ("roann::add_outer", "aten::addmm_", "aten::mm", "aten::bmm"),
}
REST = "everything else"


@contextmanager
def _sums_named() -> Iterator[None]:
    """Give the native sums over rows, which are part of the adjoint, a name of their own."""
    sums = native.add_outer

    def named(*args: Any, **kwargs: Any) -> None:
        with record_function("roann::add_outer"):
            sums(*args, **kwargs)

    native.add_outer = named
    try:
        yield
    finally:
        native.add_outer = sums


def parts(run: Callable[[], Any]) -> dict[str, float]:
    """Seconds of one call by part; operators of no part are the rest.

    Example:
        >>> import torch
        >>> found = parts(lambda: torch.mm(torch.ones(4, 4), torch.ones(4, 4)))
        >>> found["products for gradients"] > 0, found["forward sweep"]
        (True, 0.0)
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it tells the user of its stages
    with _sums_named(), profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    found = dict.fromkeys((*PARTS, REST), 0.0)
    for event in seen.key_averages():
        part = next((name for name, keys in PARTS.items() if event.key in keys), REST)
        found[part] += event.self_cpu_time_total / 1e6
    return found


def products(of: Products) -> dict[str, int]:
    """How many N × N products per step each part has.

    Example:
        >>> products(Products(2, 2, 1))["forward sweep"]
        2
    """
    return dict(zip(PARTS, of, strict=True))
