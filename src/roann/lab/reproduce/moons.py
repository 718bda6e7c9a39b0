"""The chapter on Fig. 1, and the search for its learning rates."""

from __future__ import annotations

import statistics

from roann.lab.reproduce.judges import SOLVED_MOON, Arm
from roann.lab.reproduce.reading import Reading
from roann.lab.reproduce.tables import ABSENT, Arms, arms_table, number, table
from roann.lab.reproduce.verdicts import Book


def moon(arms: Arms, book: Book) -> list[str]:
    """Fig. 1."""
    lines = [
        "Regression on two interlocking half rings, 1,000 points, labels ∓1, batch 100, tanh on "
        "every neuron, ρ = 5. The score is the mean squared error over the points; guessing "
        "scores 1. Decision surfaces are in the report.",
        "",
        *arms_table(arms),
    ]
    search = book.get("lr", {})
    if search:
        lines += ["### Learning rates", "", *learning_rates(search, arms)]
    return lines


def learning_rates(search: Arms, used: Arms) -> list[str]:
    """What each rate of the search gave, and the one that was taken."""
    families: dict[str, dict[float, Arm]] = {}
    for name, arm in search.items():
        families.setdefault(name.rpartition("-lr-")[0], {})[_lr(arm)] = arm
    rows = []
    for family, by_rate in families.items():
        errors = {
            lr: [float("inf") if (v := r.score("best")) is None else v for r in arm]
            for lr, arm in sorted(by_rate.items())
        }
        solved = {lr: sum(v < SOLVED_MOON for v in values) for lr, values in errors.items()}
        best = min(errors, key=lambda lr: (-solved[lr], statistics.median(errors[lr])))
        edge = ", at the edge of the search" if best in (min(errors), max(errors)) else ""
        words = {lr: " · ".join(map(number, values)) for lr, values in errors.items()}
        taken = _lr(used[family]) if family in used else None
        rows.append(
            [
                f"`{family}`",
                "; ".join(f"{lr:g}: {values}" for lr, values in words.items()),
                f"{best:g}{edge}" if solved[best] else "none solves it",
                ABSENT if taken is None else f"{taken:g}",
            ]
        )
    return [
        "The paper's text does not print them. The best mean squared error of each seed at every "
        f"rate tried; the best rate is that with most seeds below {SOLVED_MOON}, then the least "
        "median:",
        "",
        *table(("run", "rate: error of each seed", "best rate", "rate used"), rows),
        *_twins(search, used),
    ]


def _twins(search: Arms, used: Arms) -> list[str]:
    """Trainings that stand in both tables, and ended otherwise on another processor."""
    words = []
    for name, arm in search.items():
        others = used.get(name.rpartition("-lr-")[0], [])
        for r in arm:
            for other in others:
                same = r.run.seed == other.run.seed and _lr(arm) == _lr(others)
                a, b = r.score("best"), other.score("best")
                if (
                    same
                    and a is not None
                    and b is not None
                    and (a < SOLVED_MOON) != (b < SOLVED_MOON)
                ):
                    words.append(
                        f"`{other.run.name}` {number(b)} ({_units(other)}) and {number(a)} "
                        f"({_units(r)})"
                    )
    if not words:
        return []
    return [
        "A training repeats to the bit on one machine; another processor rounds otherwise. Where "
        "the rate used was searched, too, a training was made twice, and here that decides whether "
        "the moons are told apart: " + "; ".join(words) + ".",
        "",
    ]


def _units(r: Reading) -> str:
    return str(r.run.env.get("native_kernel", "unknown"))


def _lr(arm: Arm) -> float:
    return float(arm[0].run.config["train"]["lr"])
