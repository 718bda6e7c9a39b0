"""On paper: what many machines would give, from what one machine measured.

The model. A machine has two cores. One training uses both by two threads, and computes an update of
b examples in a + k·b seconds: `a` does not shrink with the batch, because steps of a sequence
follow one another. Both come from two measured batches, a whole one and one of a few examples, so
that machines with less than a batch lie in between.
Each of the collectives of an update is a ring: 2 (w − 1) messages one after the other, each with
the latency of the network. The ring of the gradients, 4 bytes for each of P parameters, also moves
2 (w − 1) / w · 4 P bytes through every machine. Computing and sending do not overlap: with one
recurrent layer, the gradient of W is complete only at the end.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.scale.steps import CASES, COLLECTIVES, CORES, FEW, FEW_PART, ONE, THREADS

BANDWIDTH = 1.25e9  # bytes per second: 10 Gbit/s
LATENCY = 50e-6  # seconds per message
PAPER_CASE = "psMNIST, N = 512"
UPDATES = 20 * 600  # 20 epochs of 60,000 images, 100 in a batch
GRID = 10_000


def shortest(time: Callable[[int], float], most: int) -> int:
    """The number of machines, up to `most`, with the shortest time."""
    return min(range(1, most + 1), key=time)


def worthwhile(time: Callable[[int], float], most: int, efficiency: float = 0.5) -> int:
    """The largest number of machines, up to `most`, that are used for this part of their time."""
    alone = time(1)
    return max(w for w in range(1, most + 1) if alone >= efficiency * w * time(w))


@dataclass(frozen=True)
class Update:
    """The time of one update on w machines."""

    fixed: float  # a
    per_example: float  # k
    parameters: int
    batch: int

    def parts(self, machines: int, batch: int | None = None) -> dict[str, float]:
        """Where the seconds of an update go; the batch is that of all machines together.

        "useful" is what one machine would need for all examples, divided by the machines.
        """
        examples = (batch or self.batch) / machines
        hops = 2 * (machines - 1)
        latency = COLLECTIVES * hops * LATENCY
        return {
            "useful": self.fixed / machines + self.per_example * examples,
            "sequential": self.fixed * (1 - 1 / machines),
            "uneven": self.per_example * (math.ceil(examples) - examples),
            "sending": latency + hops / machines * 4 * self.parameters / BANDWIDTH,
        }

    def seconds(self, machines: int, batch: int | None = None) -> float:
        """Seconds of an update."""
        return sum(self.parts(machines, batch).values())


def update(record: dict[str, Any], case: str = PAPER_CASE) -> Update:
    """The model of a case, from medians."""
    ways = record["steps"][case]
    whole, few = (statistics.median(ways[way]["samples"]) for way in (THREADS, FEW))
    batch = CASES[case].B
    slope = (whole - few) / (batch - round(batch * FEW_PART))
    fixed = min(max(0.0, whole - slope * batch), whole)  # noise may have put it outside
    return Update(fixed, (whole - fixed) / batch, ways[ONE]["parameters"], batch)


@dataclass(frozen=True)
class Grid:
    """A grid of equal runs, one core each, dealt out by one driver."""

    run_seconds: float  # of training
    overhead: float  # seconds per run beside training
    driver: float  # processor seconds per run in the driver, one run after the other
    runs: int = GRID
    cores: int = CORES  # of a machine

    def seconds(self, machines: int) -> float:
        """Until the last run ends: full rounds on all cores, or as fast as the driver is."""
        rounds = math.ceil(self.runs / (machines * self.cores))
        return max(rounds * (self.run_seconds + self.overhead), self.runs * self.driver)

    def most(self) -> int:
        """The number of machines with a core for each run."""
        return math.ceil(self.runs / self.cores)

    def served(self) -> float:
        """Machines that the driver can keep busy."""
        if self.driver <= 0:
            return math.inf
        return (self.run_seconds + self.overhead) / self.driver / self.cores


def grid(record: dict[str, Any], engine: str) -> Grid:
    """The model of a grid of trainings of the paper's case, from the two sweeps of an engine."""
    alone = statistics.median(record["steps"][PAPER_CASE][ONE]["samples"])
    return Grid(UPDATES * alone, *marginal(record, engine))


def marginal(record: dict[str, Any], engine: str) -> tuple[float, float]:
    """Seconds beside training, and of the driver's processor, that one more run costs.

    The difference of a large and a small sweep: what both begin with drops out.
    """
    small, large = record["sweeps"][engine]
    more = large["runs"] - small["runs"]
    busy = record["settings"]["jobs"] * (large["seconds"] - small["seconds"])
    beside = (busy - (large["trained"] - small["trained"])) / more
    return max(0.0, beside), max(0.0, large["driver"] - small["driver"]) / more
