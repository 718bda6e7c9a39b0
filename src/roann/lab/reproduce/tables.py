"""Markdown tables of records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from roann.lab.report import duration
from roann.lab.reproduce.reading import Reading, best_of, median_of

Arms = Mapping[str, list[Reading]]
"""By the name of an arm, its readings."""
ABSENT = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, the first column to the left, the others to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return [*lines, ""]


def shown(score: str, value: float | None) -> str:
    """A score for reading: accuracies in percent."""
    if value is None:
        return ABSENT
    return f"{100 * value:.2f} %" if "accuracy" in score else number(value)


def number(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return ABSENT
    if not math.isfinite(value):
        return "−∞" if value < 0 else "∞"
    return f"{value:.3g}".replace("-", "−")


def wall(seconds: float) -> str:
    """A length of time, its spaces plain."""
    return duration(seconds).replace("\xa0", " ")


def arms_table(arms: Arms) -> list[str]:
    """Every arm: seeds, best, medians, how many were lost, and the median time of a run."""
    head = (
        "run", "parameters", "seeds", "best", "median of best", "median at the end",
        "lost", "training", "with probes",
    )  # fmt: skip
    return table(head, (_row(name, arm) for name, arm in arms.items()))


def _row(name: str, arm: Sequence[Reading]) -> list[str]:
    score = arm[0].primary
    lost = sum(r.lost for r in arm)
    diverged = sum(r.run.status == "diverged" for r in arm)
    open_ = sum(r.run.status == "unfinished" for r in arm)
    words = [f"{lost} of {len(arm)}" if lost else "0"]
    words += [f"{diverged} by non-finite numbers"] if diverged else []
    seeds = f"{len(arm)}" + (f" ({open_} unfinished)" if open_ else "")
    return [
        f"`{name}`",
        f"{arm[0].run.facts['parameters']:,}",
        seeds,
        shown(score, best_of(arm, "best")),
        shown(score, median_of(arm, "best")),
        shown(score, median_of(arm, "final")),
        ", ".join(words),
        wall(statistics.median(r.training_seconds for r in arm)),
        wall(statistics.median(r.run.seconds for r in arm)),
    ]


def sizes(r: Reading) -> str:
    """How large a run is: lengths, width, and for how long it is to be trained."""
    plan, task, N = r.run.config["train"], r.run.task, r.run.model["hidden_size"]
    words = [f"T = {task['length']}"] if "length" in task else []
    words += [f"L = {task['lag']}"] if "lag" in task else []
    return ", ".join([*words, f"N = {N}", f"{plan['length']:,} {plan['unit']}s"])
