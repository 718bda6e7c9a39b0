"""The columns that the tables of `tables.toml` choose from, by the kind of their rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from itertools import pairwise

from paper import measure as m
from paper.rules import pairs
from roann.lab.report import LOST, Arm, Outcome

GOAL = {"double-moon": 0.05, "adding": 0.01, "copying": 0.99}  # by task, as in claims.toml
ALIKE = 0.01  # scores within this part of the way from guessing to perfect count as equal


def _goal(o: Outcome, in_a_row: int = 1) -> int | None:
    return m.first(o, o.goal.score, GOAL[o.run.task["name"]], in_a_row)


def _of(arm: Arm, flags: Iterable[object]) -> str:
    return f"{sum(map(bool, flags))} of {len(arm.outcomes)}"


def _met(arm: Arm, values: Iterable[float | None]) -> str:
    limit = GOAL[arm.runs[0].task["name"]]
    return _of(arm, (m.meets(arm.goal.score, value, limit) for value in values))


def _training(o: Outcome) -> float:
    """Wall time until the last update that was recorded: without a probe at the end."""
    return float(next((line["seconds"] for line in m.lines(o, "train")[::-1]), o.run.seconds))


def _speed(o: Outcome) -> float | None:
    """ms of an update: the median over the stretches of the records without evaluations."""
    times = {0: 0.0} | {line["step"]: line["seconds"] for line in m.lines(o, "train", "eval")}
    # The time of an evaluation's record is that of its beginning.
    after = {line["step"] for line in m.lines(o, "eval")}
    spans = [(a, b) for a, b in pairwise(sorted(times)) if a not in after]
    found = [(times[b] - times[a]) / (b - a) for a, b in spans]
    return 1e3 * statistics.median(found) if found else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _norm_W(o: Outcome, since: int = 0, until: float = math.inf) -> str:
    """The largest ‖W‖ that a probe saw from one step to another."""
    probes = [p for p in m.lines(o, "probe") if since <= p["step"] <= until]
    norms = [p["norm_W"] for p in probes if isinstance(p.get("norm_W"), float)]
    return m.number(max(norms, default=None))


def _ends(o: Outcome, place: int) -> str:
    seen = m.lines(o, "probe")
    return m.sigma(seen[place]) if len(seen) > (place == -1) else "–"


def _score(o: Outcome, value: float | None) -> str:
    return o.run.status if value is None and not o.curve() else m.shown(o.goal.score, value)


def _after(o: Outcome, epoch: int) -> str:
    return m.shown("accuracy", m.evaluated(o, epoch=epoch).get("accuracy"))


def _gains(arm: Arm, other: Arm) -> list[float]:
    """How much further on the way to perfect each seed gets; all that is called lost is alike."""

    def way(o: Outcome) -> float:
        return max(LOST, LOST if o.best is None else o.goal.progress(o.best) or 0.0)

    theirs = {o.run.seed: way(o) for o in other.outcomes}
    return [way(o) - theirs[o.run.seed] for o in arm.outcomes]


ARM: dict[str, Callable[[Arm], str]] = {
    "parameters": lambda a: f"{a.runs[0].facts['parameters']:,}",
    "trained numbers": lambda a: f"{a.runs[0].facts['effective_parameters']:,}",
    "seeds": lambda a: f"{len(a.runs)}",
    "best": lambda a: m.shown(a.goal.score, a.best),
    "best of each seed": lambda a: " · ".join(_score(o, o.best) for o in a.outcomes),
    "median of best": lambda a: m.shown(a.goal.score, a.median("best")),
    "median at the end": lambda a: m.shown(a.goal.score, a.median("last")),
    "lost": lambda a: _of(a, (o.lost for o in a.outcomes)),
    "collapsed": lambda a: f"{a.collapsed} of {len(a.outcomes)}",
    "training": lambda a: m.wall(statistics.median(map(_training, a.outcomes))),
    "steps": lambda a: m.whole(_median(run.steps for run in a.runs)),
    "evaluations": lambda a: m.whole(_median(len(o.curve()) for o in a.outcomes)),
    "ms per step": lambda a: m.number(_median(map(_speed, a.outcomes))),
    "ln σ before": lambda a: _ends(a.outcomes[0], 0),
    "ln σ after": lambda a: _ends(a.outcomes[0], -1),
    "goal first met": lambda a: ", ".join(m.whole(_goal(o)) for o in a.outcomes),
    "goal at the end": lambda a: _met(a, (o.last for o in a.outcomes)),
    "goal at the best": lambda a: _met(a, (o.best for o in a.outcomes)),
    "stopped early": lambda a: _of(a, (_goal(o, 3) for o in a.outcomes)),
    "lost of these": lambda a: str(sum(o.lost for o in a.outcomes if _goal(o, 3))),
}
VERSUS: dict[str, Callable[[Arm, Arm], str]] = {
    "pairs won": lambda a, b: "{} of {}".format(*pairs(a, b)),
    "better": lambda a, b: str(sum(gain > ALIKE for gain in _gains(a, b))),
    "worse": lambda a, b: str(sum(gain < -ALIKE for gain in _gains(a, b))),
}
SEED: dict[str, Callable[[Outcome], str]] = {
    "step to the goal": lambda o: m.whole(_goal(o)),
    "trained": lambda o: f"{m.trained(o)}",
    "best": lambda o: m.shown(o.goal.score, o.best),
    "end": lambda o: m.shown(o.goal.score, o.last),
    "by validation": lambda o: m.shown(o.goal.score, o.selected),
    "collapses": lambda o: f"{len(o.collapses)}",
    "‖W‖ at the start": lambda o: _norm_W(o, 0, 0),
    "‖W‖ after 1 step": lambda o: _norm_W(o, 1, 1),
    "‖W‖ within 50": lambda o: _norm_W(o, 1, 50),
    "largest ‖W‖": lambda o: _norm_W(o, 1),
    "‖W‖ at the end": lambda o: m.number(m.lines(o, "probe")[-1].get("norm_W")),
    "ln σ at the start": lambda o: _ends(o, 0),
    "ln σ at the end": lambda o: _ends(o, -1),
    "after 1": lambda o: _after(o, 1),
    "after 10": lambda o: _after(o, 10),
    "after 11": lambda o: _after(o, 11),
}
