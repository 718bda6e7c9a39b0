"""What a record says beyond its scores, and how numbers are written."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from roann.lab.report import Outcome, duration


def meets(score: str, value: float | None, limit: float) -> bool:
    """Whether a score is as good as a limit: accuracies should be high, all else low."""
    return value is not None and (value >= limit if "accuracy" in score else value <= limit)


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
    known = (
        line for line in outcome.run.records if line.get("set") == outcome.goal.set is not None
    )
    return next((line for line in known if at.items() <= line.items()), {})


def trained(outcome: Outcome) -> int:
    """Steps, or whole epochs where the config counts in epochs, so far."""
    if outcome.run.config["train"]["unit"] != "epoch":
        return outcome.run.steps
    return max((int(line.get("epoch") or 0) for line in outcome.run.records), default=0)


def training_seconds(outcome: Outcome) -> float:
    """Wall time until the last update that was recorded: without a probe at the end."""
    times = [line["seconds"] for line in outcome.run.records if line["kind"] == "train"]
    return float(times[-1]) if times else outcome.run.seconds


def step_seconds(outcome: Outcome) -> float | None:
    """Time of an update: the median over the stretches of the records without evaluations."""
    lines = [line for line in outcome.run.records if line["kind"] in ("train", "eval")]
    times = {0: 0.0} | {line["step"]: line["seconds"] for line in lines}
    # The time of an evaluation's record is that of its beginning.
    measured = {line["step"] for line in lines if line["kind"] == "eval"}
    spans = [(a, b) for a, b in pairwise(sorted(times)) if a not in measured]
    return statistics.median((times[b] - times[a]) / (b - a) for a, b in spans) if spans else None


def probes(outcome: Outcome) -> list[dict[str, Any]]:
    """Its probes, by step."""
    return [line for line in outcome.run.records if line["kind"] == "probe"]


def norm_W(outcome: Outcome, since: int = 0, until: float = math.inf) -> float | None:
    """The largest ‖W‖ that a probe saw from one step to another."""
    found = [probe for probe in probes(outcome) if isinstance(probe.get("norm_W"), float)]
    return max((p["norm_W"] for p in found if since <= p["step"] <= until), default=None)


def sigma(line: Mapping[str, Any] | None) -> str:
    """The smallest and largest ln σ of a probe. JSON has no −∞, and says null."""
    line = line or {}
    found = [line["sigma_min"], line["sigma_max"]] if "sigma_max" in line else line.get("sigma")
    values = [-math.inf if value is None else float(value) for value in found or ()]
    return f"{number(min(values))} … {number(max(values))}" if values else "–"


def number(value: float | None, digits: int = 3) -> str:
    """A number for reading, with a few digits."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "−∞" if value < 0 else "∞"
    return f"{value:.{digits}g}".replace("-", "−")


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
