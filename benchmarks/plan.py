"""How to measure, at which sizes, and the rows of one race."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks import peers
from benchmarks.peers import Sequences
from benchmarks.record import Row
from benchmarks.timing import MOST_ROUNDS, SAMPLE_SECONDS, Contender, race


@dataclass(frozen=True)
class Plan:
    """How to measure.

    Attributes:
        rounds: n of "best of n", at least: short races have more.
        threads: of everyone.
        quick: small sizes, to see that everything works.
        skipped: filled with what could not be measured, and why.
    """

    rounds: int
    threads: int
    quick: bool = False
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def sample_seconds(self) -> float:
        """How long a sample should last at least."""
        return 1e-3 if self.quick else SAMPLE_SECONDS

    def few(self, full: int, quick: int) -> int:
        """A size: `full`, or `quick` in a quick run."""
        return quick if self.quick else full

    def sequences(self, case: Sequences) -> Sequences:
        """The case itself, or a small one like it."""
        return replace(case, T=12, B=4, N=16) if self.quick else case


# The paper's settings (Section IV).
PSMNIST = Sequences(T=784, B=100, N=178, I=1, rho=0.5, horizon=784)
COPYING = Sequences(T=2020, B=128, N=190, I=10, rho=3.0, horizon=2010, reads_all=True)
ADDING = Sequences(T=1000, B=50, N=128, I=2, rho=0.005, horizon=1000)
LONG = Sequences(T=1_000_000, B=1, N=128, I=1, rho=0.5, horizon=1_000_000)


def measured(
    plan: Plan,
    case: str,
    work: str,
    contenders: Sequence[Contender],
    sizes: dict[str, int],
    steps: int,
    versus: str | None,
) -> list[Row]:
    """The rows of one race."""
    found = race(
        contenders,
        plan.rounds,
        sample_seconds=plan.sample_seconds,
        most_rounds=plan.few(MOST_ROUNDS, 0),
    )
    rows = []
    for c in contenders:
        samples, calls, difference, _ = found[c.name]
        if c.name == "limit":
            assert c.flops is not None
            samples = [peers.in_limit(s, c.flops) for s in samples]
        row = Row(case, work, c.name, min(samples), c.steps or steps, samples, calls, versus)
        rows.append(replace(row, flops=c.flops, difference=difference, sizes=sizes))
    return rows
