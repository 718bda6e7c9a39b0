"""What the record of a run says beyond its scores, and how numbers are written."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from roann.lab.report import Outcome, duration


def meets(score: str, value: float | None, limit: float) -> bool:
    """Whether a score is as good as a limit: accuracies should be high, all else low."""
    return value is not None and (value >= limit if "accuracy" in score else value <= limit)


def better(score: str, ours: float, other: float) -> bool:
    """Whether a score is better than another."""
    return ours != other and meets(score, ours, other)


def best(outcome: Outcome, score: str) -> float:
    """The best value of any score; the worst there is if it was never measured."""
    values = [value for _, value in outcome.curve(score)]
    return max(values, default=-math.inf) if "accuracy" in score else min(values, default=math.inf)


def first(outcome: Outcome, score: str, limit: float, in_a_row: int = 1) -> int | None:
    """The first evaluation at which a score is, or has been so often, as good as `limit`."""
    met = 0
    for step, value in outcome.curve(score):
        met = met + 1 if meets(score, value, limit) else 0
        if met == in_a_row:
            return step
    return None


def evaluated(outcome: Outcome, **at: float | None) -> Mapping[str, Any]:
    """The evaluation of the set shown at a `step` or after an `epoch`; empty if there is none."""
    shown = outcome.goal.set
    lines = (line for line in outcome.run.records if line.get("set") == shown is not None)
    return next((line for line in lines if at.items() <= line.items()), {})


def lines(outcome: Outcome, *kinds: str) -> list[dict[str, Any]]:
    """The lines of a run's record of some kinds, by step."""
    return [line for line in outcome.run.records if line["kind"] in kinds]


def trained(outcome: Outcome) -> int:
    """Steps, or whole epochs where the config counts in epochs, so far."""
    if outcome.run.config["train"]["unit"] != "epoch":
        return outcome.run.steps
    return max((int(line.get("epoch") or 0) for line in outcome.run.records), default=0)


def sigma(line: Mapping[str, Any]) -> str:
    """The smallest and largest ln σ of a probe. JSON has no −∞, and says null."""
    found = [line["sigma_min"], line["sigma_max"]] if "sigma_max" in line else line.get("sigma")
    values = [-math.inf if value is None else float(value) for value in found or ()]
    return f"{number(min(values))} … {number(max(values))}" if values else "–"


def number(value: float | None, digits: int = 3) -> str:
    """A number for reading, with a few digits."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}".replace("inf", "∞").replace("-", "−")


def shown(score: str, value: float | None) -> str:
    """A score for reading: accuracies in percent."""
    if value is None or not math.isfinite(value) or "accuracy" not in score:
        return number(value)
    return f"{100 * value:.2f} %"


def whole(value: float | None) -> str:
    """A count."""
    return "–" if value is None else f"{value:,.0f}"


def wall(seconds: float) -> str:
    """A length of time, its spaces plain."""
    return duration(seconds).replace("\xa0", " ")


def median(values: Iterable[float | None]) -> float | None:
    """The median of the values that are known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def training(outcome: Outcome) -> float:
    """Wall time until the last update that was recorded: without a probe at the end."""
    return float(
        next((line["seconds"] for line in lines(outcome, "train")[::-1]), outcome.run.seconds)
    )


def speed(outcome: Outcome) -> float | None:
    """ms of an update: the median over the stretches of the records without evaluations."""
    times = {0: 0.0} | {line["step"]: line["seconds"] for line in lines(outcome, "train", "eval")}
    # The time of an evaluation's record is that of its beginning.
    after = {line["step"] for line in lines(outcome, "eval")}
    spans = [(a, b) for a, b in pairwise(sorted(times)) if a not in after]
    found = median((times[b] - times[a]) / (b - a) for a, b in spans)
    return None if found is None else 1e3 * found
