"""From series to the inputs of a network: scaling, missing values, differences.

Note [Missing values]
---------------------
A missing value is replaced by the last one seen in its series and channel, or by the mean of the
training data before the first. If the training data have missing values, each channel comes with
two more: whether it was seen at this step, and log(1 + the time since it was seen), in steps or,
where there are time stamps, in units of their median interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from roann.estimators.series import Floats, Prepared, Series

# A value far from the training data must not become an infinity in float32.
FARTHEST = 1e6


@dataclass(frozen=True)
class Preparation:
    """What was learned from the training data about its channels.

    Attributes:
        mean, scale: (C,), of each channel.
        step_scale: (C,), the size of its differences from step to step; None to leave them out.
        missing: whether there are channels for missing values: Note [Missing values].
        dt: the median interval between time stamps; None for regular samples.
    """

    mean: Floats
    scale: Floats
    step_scale: Floats | None
    missing: bool
    dt: float | None

    @classmethod
    def of(cls, series: Series, differences: bool) -> Preparation:
        """From training data alone."""
        x, dt = series.values, None
        mean, scale = _moments(x)
        step_scale = _moments(_steps(_filled(series, mean)[0], series))[1] if differences else None
        if series.times is not None:
            gaps = np.delete(np.diff(series.times, prepend=series.times[:1]), series.starts)
            gaps = gaps[gaps > 0]
            dt = float(np.median(gaps)) if len(gaps) else 1.0
        return cls(mean, scale, step_scale, bool(np.isnan(x).any()), dt)

    @property
    def inputs(self) -> int:
        """I, the number of inputs of the network."""
        each = 1 + (self.step_scale is not None) + 2 * self.missing
        return each * len(self.mean)

    def __call__(self, series: Series, device: torch.device | str | None = None) -> Prepared:
        """The inputs of a network."""
        filled, last = _filled(series, self.mean)
        parts = [(filled - self.mean) / self.scale]
        if self.step_scale is not None:
            parts.append(_steps(filled, series) / self.step_scale)
        if self.missing:
            parts += [~np.isnan(series.values), np.log1p(self._since(series, last))]
        inputs = np.concatenate(parts, axis=1, dtype=np.float64)
        u = torch.tensor(np.clip(inputs, -FARTHEST, FARTHEST), dtype=torch.float32, device=device)
        steps = None if self.dt is None else series.intervals(self.dt)
        return Prepared(
            u, torch.tensor(series.lengths), torch.tensor(series.starts),
            None if steps is None else torch.tensor(steps),
        )  # fmt: skip

    def span(self, series: Series) -> float:
        """The length of the longest series, in steps, or in units of dt if there are times."""
        if series.times is None or self.dt is None:
            return float(series.lengths.max())
        ends = series.starts + series.lengths - 1
        return float((series.times[ends] - series.times[series.starts]).max()) / self.dt + 1

    def _since(self, series: Series, last: np.ndarray) -> Floats:
        """The time since a value was seen, for each step and channel, in steps or in dt."""
        here = np.arange(len(last))[:, None]
        last = np.maximum(last, series.starts[series.owner][:, None])
        if series.times is None or self.dt is None:
            return np.asarray(here - last, dtype=np.float64)
        return np.asarray((series.times[here] - series.times[last]) / self.dt)


def _filled(series: Series, mean: Floats) -> tuple[Floats, np.ndarray]:
    """Values with gaps filled, and the step at which each was seen: before the first, -1."""
    seen = ~np.isnan(series.values)
    here = np.arange(len(seen))[:, None]
    last = np.maximum.accumulate(np.where(seen, here, -1), axis=0)
    last = np.where(last >= series.starts[series.owner][:, None], last, -1)
    filled = np.take_along_axis(series.values, np.maximum(last, 0), axis=0)
    return np.where(last >= 0, filled, mean), last


def _steps(filled: Floats, series: Series) -> Floats:
    """Differences from step to step within each series, (S, C); 0 at the first."""
    steps = np.diff(filled, axis=0, prepend=filled[:1])
    steps[series.starts] = 0
    return steps


def _moments(x: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each channel, those of a constant one 1."""
    seen = ~np.isnan(x)
    count = np.maximum(seen.sum(0), 1)
    largest = np.maximum(np.abs(np.where(seen, x, 0)).max(0), np.finfo(np.float64).tiny)
    unit = np.where(seen, x, 0) / largest  # squares of huge values must not overflow
    mean = unit.sum(0) / count
    spread = np.sqrt(np.where(seen, (unit - mean) ** 2, 0).sum(0) / count)
    return mean * largest, np.where(spread > 1e-12, spread * largest, 1.0)


def as_tensor(x: Floats, device: torch.device | str | None = None) -> Tensor:
    """An array in float32, copied."""
    return torch.tensor(x, dtype=torch.float32, device=device)
