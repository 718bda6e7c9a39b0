"""Where the time of a training step goes, by torch's own profiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks import flops, peers
from benchmarks.plan import PSMNIST, Plan
from benchmarks.record import Row
from benchmarks.timing import race
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


def profiled(plan: Plan) -> list[Row]:
    """Where the time of a training step goes, and how far each part is from the limit."""
    made: list[Row] = []
    for N in (178, 256, 512):
        case = plan.sequences(replace(PSMNIST, N=N))
        u, g, one = case.input(), case.cotangent(), case.count(flops.Products(1, 0, 0), "forward")
        limit = peers.limit(one)
        for filter, of in flops.FILTERS.items():
            counts = dict(zip(PARTS, of, strict=True)) | {"limit": 1}
            run = peers.recurrent(case.roa(filter), u, g, "train")
            samples: dict[str, list[float]] = {}
            for _ in range(1 + plan.rounds):  # the first is to warm up
                run()
                found = parts(run)
                took = race([limit], 1, sample_seconds=plan.sample_seconds)["limit"].samples[0]
                for name, seconds in (found | {"limit": peers.in_limit(took, one)}).items():
                    samples.setdefault(name, []).append(seconds)
            for name, times in samples.items():
                row = Row(f"profile-{N}", filter, name, min(times[1:]), case.T, times[1:])
                count = one * counts.get(name, 0) or None
                made.append(replace(row, flops=count, sizes=case.sizes()))
    return made
