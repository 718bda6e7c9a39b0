"""What the project set out to reach, and whether a record says that it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from roann.bench.record import Record

Verdict = Literal["met", "not met", "not measured"]
Value = Callable[[Record], float | None]


@dataclass(frozen=True)
class Target:
    """A number to reach.

    Attributes:
        what: in words.
        sense: whether `bound` is the least or the most allowed, or must be gone below.
        bound: the number.
        value: finds the number of a record, None if it was not measured.
        of: the width and filter of a training step that is compared with another contender;
            there the part of the limit that would meet the target says whether it can be met.
    """

    what: str
    sense: Literal["at least", "at most", "above", "below"]
    bound: float
    value: Value
    of: tuple[int, str] | None = None

    def reaches(self, record: Record) -> float | None:
        """The part of the limit at which the training step is."""
        return None if self.of is None else _of_limit(*self.of)(record)

    def needs(self, record: Record) -> float | None:
        """The part of the limit at which the target would be met, all else as measured."""
        part, value = self.reaches(record), self.value(record)
        return None if part is None or value is None else part * self.bound / value

    def verdict(self, record: Record) -> Verdict:
        """Computed, never typed. The sizes of a quick run are not those the targets speak of."""
        value = None if record.quick else self.value(record)
        if value is None:
            return "not measured"
        met = {
            "at least": value >= self.bound,
            "at most": value <= self.bound,
            "above": value > self.bound,
            "below": value < self.bound,
        }[self.sense]
        return "met" if met else "not met"


def _faster(case: str, ours: str, other: str, work: str = "train") -> Value:
    """How many times faster, per step, `ours` is than `other`."""

    def value(record: Record) -> float | None:
        a, b = record.find(case, work, ours), record.find(case, work, other)
        return None if a is None or b is None else b.per_step / a.per_step

    return value


def _slower(case: str, ours: str, other: str, work: str = "train") -> Value:
    return _faster(case, other, ours, work)


def _of_limit(N: int, filter: str) -> Value:
    def value(record: Record) -> float | None:
        row = record.find(f"psmnist-{N}", "train", f"roann {filter}")
        return None if row is None else record.of_limit(row)

    return value


def _megabytes(case: str, contender: str) -> Value:
    def value(record: Record) -> float | None:
        row = record.find(case, "train", contender)
        return None if row is None or row.extra_bytes is None else row.extra_bytes / 1e6

    return value


def _flatness(case: str) -> Value:
    """The largest time per step of an axis over the smallest."""

    def value(record: Record) -> float | None:
        times = [row.per_step for row in record.rows if row.case == case]
        return max(times) / min(times) if times else None

    return value


def _percent_over(value: Value) -> Value:
    def over(record: Record) -> float | None:
        ratio = value(record)
        return None if ratio is None else 100 * (ratio - 1)

    return over


def _training() -> list[Target]:
    made = []
    for N, limit, rnn in ((178, 0.65, 1.5), (256, 0.75, 1.25), (512, 0.75, 0.9)):
        case, at = f"psmnist-{N}", f"psMNIST, N = {N}"
        qr, permutation = (N, "qr"), (N, "permutation")
        made += [
            Target(f"{at}: part of the limit", "at least", limit, _of_limit(*qr)),
            Target(
                f"{at}: times faster than nn.RNN", "at least", rnn,
                _faster(case, "roann qr", "nn.RNN"), qr,
            ),
            Target(
                f"{at}: times faster than nn.LSTM", "at least", 4.0,
                _faster(case, "roann qr", "nn.LSTM"), qr,
            ),
            Target(
                f"{at}, permutation: times faster than qr", "at least", 1.4,
                _faster(case, "roann permutation", "roann qr"), permutation,
            ),
            Target(
                f"{at}, permutation: times faster than nn.RNN", "above", 1.0,
                _faster(case, "roann permutation", "nn.RNN"), permutation,
            ),
        ]  # fmt: skip
    naive = _faster("psmnist-178", "roann qr", "naive loop")
    what = "psMNIST, N = 178: times faster than the naive loop"
    return [*made, Target(what, "at least", 2.5, naive, (178, "qr"))]


TARGETS: list[Target] = [
    *_training(),
    Target(
        "50,000 layers: times faster than one module per layer", "at least", 100.0,
        _faster("fnn", "roann qr", "one module per layer"),
    ),
    Target(
        "packed: time per real step over that of a padded batch", "at most", 1.2,
        _slower("packed", "roann packed", "roann padded"),
    ),
    Target(
        "RoaRNNCell, batch 1: time over nn.RNNCell's", "at most", 1.0,
        _slower("cell", "RoaRNNCell qr", "nn.RNNCell", "forward"),
    ),
    Target(
        "RoaRNNCell, batch 1, with graph: time over nn.RNNCell's", "at most", 1.0,
        _slower("cell", "RoaRNNCell qr", "nn.RNNCell", "forward with graph"),
    ),
    Target(
        "time per step, T from 196 to 6,272: largest over smallest", "at most", 1.2,
        _flatness("growth-T"),
    ),
    Target(
        "a million steps: peak extra memory in MB", "below", 1000.0,
        _megabytes("long-time", "RoaRNN reversible"),
    ),
    Target(
        "a million layers: peak extra memory in MB", "below", 1000.0,
        _megabytes("long-depth", "RoaFNN reversible"),
    ),
    Target(
        "the lab's loop: percent above the bare training step", "below", 5.0,
        _percent_over(_slower("lab", "roann.lab.train", "bare loop")),
    ),
]  # fmt: skip
