"""Time contenders in turns, so that noise of the machine affects all of them alike."""

from __future__ import annotations

import math
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SAMPLE_SECONDS = 0.05  # a sample is the mean of as many calls as take about this long
LONG_SECONDS = 1.0  # a call that takes longer needs no call before it to be warm
RACE_SECONDS = 6.0  # a race shorter than this may go on
UNSETTLED_SECONDS = 30.0  # and so may one shorter than this whose best times are still falling:
SETTLED_ROUNDS, SETTLED = 3, 0.02  # by so much in any of the last so many rounds
BUDGET_SECONDS = 40.0  # a contender that has used this much sits out the remaining rounds
# Contenders that say they compute the same must: another update differs by order one, float32
# rounding through 2,020 expanding steps by some 1e-3. How equal kernels are is for the tests.
SAME = 1e-2


@dataclass(frozen=True)
class Contender:
    """Someone to time."""

    name: str
    run: Callable[[], Any]  # one call; returns something that depends on all of its work
    flops: int | None = None  # operations in N × N products of one call, if they are counted
    twin: str | None = None  # an earlier contender whose result must be the same
    as_tensor: Callable[[Any], Tensor] = lambda result: result  # of what `run` returns, not timed
    steps: int | None = None  # of the recurrence in one call, if not the case's number
    scale: float = 1.0  # the seconds that are recorded for one second of a call


class Timed(NamedTuple):
    """What a race found of one contender."""

    samples: list[float]
    calls: int
    difference: float | None
    long: bool


def call(
    module: nn.Module,
    inputs: Sequence[Any],
    g: Tensor,
    work: str,
    read: Callable[[Any], Any] = lambda output: output,
    **options: Any,
) -> Callable[[], Any]:
    """One call of a module: what is read of its output, or ∂ℓ/∂W of a training step.

    The work is "forward" (no graph), "forward with graph", or "train", where g is the gradient
    of what is read.
    """
    parameters = dict(module.named_parameters())
    W = parameters[min(name for name in parameters if "weight" in name)]  # _hh comes before _ih

    def forward() -> Any:
        with torch.set_grad_enabled(work != "forward"):
            return read(module(*inputs, **options))

    def train() -> Any:
        for p in parameters.values():
            p.grad = None
        torch.autograd.backward(read(module(*inputs, **options)), g)
        return W.grad

    return train if work == "train" else forward


def race(
    contenders: Sequence[Contender],
    rounds: int,
    most_rounds: int = 0,
    sample_seconds: float = SAMPLE_SECONDS,
) -> dict[str, Timed]:
    """Samples of all contenders, by name: one each per round, each round begun by another.

    There are `rounds` rounds. Up to `most_rounds` there are more where the best would else be a
    matter of luck: in a short race, and while somebody's best time is still falling.

    Every contender is called once or twice before, to warm up and to see how many calls make a
    sample; the results of that are compared where two contenders must agree. A sample begins with
    a call that does not count: caches and pools of memory are as the contender before left them.
    """
    found: dict[str, Timed] = {}
    results: dict[str, Tensor] = {}
    twins = {c.twin for c in contenders}
    for c in contenders:
        result, took = _warm_up(c)
        if c.name in twins:
            results[c.name] = c.as_tensor(result).detach().clone()
        difference = None if c.twin is None else _difference(c, result, results[c.twin])
        calls = max(1, math.ceil(sample_seconds / max(took, 1e-7)))
        found[c.name] = Timed([], calls, difference, took > LONG_SECONDS)
        del result
    start = time.perf_counter()
    for r in range(max(rounds, most_rounds)):
        steady = all(settled(timed.samples) for timed in found.values())
        limit = RACE_SECONDS if steady else UNSETTLED_SECONDS
        if r >= rounds and time.perf_counter() - start >= limit:
            break
        first = r % len(contenders)
        for c in (*contenders[first:], *contenders[:first]):
            samples, calls, _, long = found[c.name]
            if not samples or sum(samples) * calls < BUDGET_SECONDS:
                if not long:
                    c.run()
                samples.append(sample(c.run, calls))
    return found


def settled(samples: Sequence[float]) -> bool:
    """Whether the last rounds have not made the best time notably better.

    Example:
        >>> settled([9.0, 5.0, 5.2, 4.95, 5.1]), settled([9.0, 5.2, 5.1, 5.3, 4.0])
        (True, False)
    """
    before = samples[:-SETTLED_ROUNDS]
    return bool(before) and min(samples) >= (1 - SETTLED) * min(before)


def sample(run: Callable[[], Any], calls: int) -> float:
    """Seconds of one call, as the mean of several, with the garbage collector off."""
    return timeit.timeit(run, number=calls) / calls


def _warm_up(c: Contender) -> tuple[Any, float]:
    """The result of a first call, and how long a call takes."""
    start = time.perf_counter()
    result = c.run()
    took = time.perf_counter() - start
    # The first call pays for loading and allocating: look again.
    return result, took if took >= LONG_SECONDS else sample(c.run, 1)


def _difference(c: Contender, result: Any, twin: Tensor) -> float:
    mine = c.as_tensor(result).detach()
    distance = float(torch.linalg.vector_norm(mine - twin) / torch.linalg.vector_norm(twin))
    if not distance <= SAME:
        raise RuntimeError(
            f"{c.name} and {c.twin} must compute the same, but differ by {distance:.1e} "
            f"(relative): their times cannot be compared"
        )
    return distance
