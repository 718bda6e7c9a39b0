"""On paper: what many machines would give, from what one machine measured.

The model. A machine computes an update of b examples in a + k·b seconds: `a` does not shrink with
the batch, because steps of a sequence follow one another. Both come from two measured batches, a
whole one and one of a few examples, so that machines with less than a batch lie in between.
Each of the collectives of an update is a ring: 2 (w − 1) messages one after the other, each with
the latency of the network. The ring of the gradients, 4 bytes for each of P parameters, also moves
2 (w − 1) / w · 4 P bytes through every machine. Computing and sending do not overlap: with one
recurrent layer, the gradient of W is complete only at the end.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from benchmarks.scale.steps import CASES, COLLECTIVES, FEW, FEW_PART, ONE

BANDWIDTH = 1.25e9  # bytes per second: 10 Gbit/s
LATENCY = 50e-6  # seconds per message
PAPER_CASE = "psMNIST, N = 512"
UPDATES = 20 * 600  # 20 epochs of 60,000 images, 100 in a batch
GRID = 10_000


@dataclass(frozen=True)
class Update:
    """The time of one update on w machines."""

    fixed: float  # a
    per_example: float  # k
    parameters: int
    batch: int

    def parts(self, machines: int, batch: int | None = None) -> dict[str, float]:
        """Seconds of each part; the batch is that of all machines together."""
        share = math.ceil((batch or self.batch) / machines)
        hops = 2 * (machines - 1)
        return {
            "fixed": self.fixed,
            "examples": self.per_example * share,
            "latency": COLLECTIVES * hops * LATENCY,
            "bytes": hops / machines * 4 * self.parameters / BANDWIDTH,
        }

    def seconds(self, machines: int, batch: int | None = None) -> float:
        """Seconds of an update."""
        return sum(self.parts(machines, batch).values())

    def best(self) -> int:
        """The number of machines with the shortest update, at most one for each example."""
        return min(range(1, self.batch + 1), key=self.seconds)

    def worth(self, efficiency: float = 0.5) -> int:
        """The largest number of machines of which none is used less than this."""
        used = [self.seconds(1) / (w * self.seconds(w)) for w in range(1, self.batch + 1)]
        return max(w for w, part in enumerate(used, 1) if part >= efficiency)


def update(record: dict[str, Any], case: str = PAPER_CASE) -> Update:
    """The model of a case, from medians."""
    whole, few = (statistics.median(record["steps"][case][way]["samples"]) for way in (ONE, FEW))
    batch = CASES[case].B
    slope = (whole - few) / (batch - round(batch * FEW_PART))
    fixed = min(max(0.0, whole - slope * batch), whole)  # noise may have put it outside
    return Update(fixed, (whole - fixed) / batch, record["steps"][case][ONE]["parameters"], batch)


@dataclass(frozen=True)
class Grid:
    """A grid of equal runs, one core each, dealt out by one driver."""

    run_seconds: float  # of training
    overhead: float  # seconds per run beside training
    driver: float  # processor seconds per run in the driver, one run after the other
    cores: int  # of a machine
    runs: int = GRID

    def hours(self, machines: int) -> float:
        """Hours until the last run ends: full rounds on all cores, or as fast as the driver is."""
        rounds = math.ceil(self.runs / (machines * self.cores))
        return max(rounds * (self.run_seconds + self.overhead), self.runs * self.driver) / 3600

    def served(self) -> float:
        """Machines that the driver can keep busy."""
        if self.driver <= 0:
            return math.inf
        return (self.run_seconds + self.overhead) / self.driver / self.cores


def grid(record: dict[str, Any], engine: str, run_seconds: float) -> Grid:
    """The model of a grid whose runs take so long, from the two sweeps of an engine."""
    overhead, driver = marginal(record, engine)
    return Grid(run_seconds, overhead, driver, record["environment"]["cores"])


def marginal(record: dict[str, Any], engine: str) -> tuple[float, float]:
    """Seconds beside training, and of the driver's processor, that one more run costs.

    The difference of a large and a small sweep: what both begin with drops out.
    """
    small, large = record["sweeps"][engine]
    more = large["runs"] - small["runs"]
    busy = record["settings"]["jobs"] * (large["seconds"] - small["seconds"])
    beside = (busy - (large["trained"] - small["trained"])) / more
    return max(0.0, beside), max(0.0, large["driver"] - small["driver"]) / more
