"""Measurements of the updates around a loss spike.

A collapse takes a handful of updates, and it is not known in advance which: probes at chosen steps
miss it. So the weights of the last updates are kept, and probed after a loss spike.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

LEAP = 100.0  # times the loss of the updates before
CALM = 10.0  # times it: below this the spike is over, and the next one counts again


class Frame(NamedTuple):
    """A step: the loss and the gradient's norm of its weights, and the weights."""

    step: int
    loss: float
    grad_norm: float
    weights: list[Tensor]


class BlackBox:
    """Keep the last `size` steps; after a loss spike, write what a probe measures at each of them.

    Half of them are from before the spike; all are, where training ends in numbers that are not
    finite. A resumed run begins with an empty box. A box of `size` 0 keeps and writes nothing.
    """

    def __init__(
        self,
        model: nn.Module,
        size: int,
        probe: Callable[[], dict[str, Any]],
        write: Callable[[int, dict[str, Any]], None],
    ) -> None:
        self._model, self._size, self._probe, self._write = model, size, probe, write
        self._frames: deque[Frame] = deque(maxlen=size)
        self._due: int | None = None  # the step at which to open the box, after a spike
        self._calm = float("inf")  # a spike counts once the loss has been below this

    def note(self, step: int, loss: float, grad_norm: float) -> None:
        """Keep the weights before an update, with their loss and gradient norm."""
        if not self._size:
            return
        usual = statistics.median(frame.loss for frame in self._frames) if self._frames else loss
        full = len(self._frames) == self._size
        weights = [p.detach().clone() for p in self._model.parameters()]
        self._frames.append(Frame(step, loss, grad_norm, weights))
        if self._due is None and loss < self._calm:
            self._calm = float("inf")
            if full and loss > LEAP * usual:
                self._calm, self._due = CALM * usual, step + (self._size - 1) // 2
        if step == self._due:
            self.open()

    @torch.no_grad()
    def open(self) -> None:
        """Probe and write what is in the box, then empty it; the model is left as it was."""
        self._due = None
        now = [p.clone() for p in self._model.parameters()]
        try:
            while self._frames:
                frame = self._frames.popleft()
                self._set(frame.weights)
                seen = self._probe()
                values = {"loss": frame.loss, "grad_norm": frame.grad_norm}
                if self._frames:
                    values["moved"] = _rms(frame.weights, self._frames[0].weights)
                values |= {key: seen[key] for key in ("norm_W", "bound") if key in seen}
                if "sigma" in seen:
                    values |= {"sigma_max": max(seen["sigma"]), "sigma_min": min(seen["sigma"])}
                self._write(frame.step, values)
        finally:
            self._set(now)

    def _set(self, weights: list[Tensor]) -> None:
        for parameter, value in zip(self._model.parameters(), weights, strict=True):
            parameter.copy_(value)


def _rms(before: list[Tensor], after: list[Tensor]) -> float:
    """How far an update moves a weight: the root of the mean square over all of them."""
    squares = math.fsum(float((b - a).square().sum()) for a, b in zip(before, after, strict=True))
    return math.sqrt(squares / sum(a.numel() for a in before))
