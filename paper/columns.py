"""The columns that the tables of `tables.toml` choose from; a row of one seed is an arm of one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from functools import partial

from paper import measure as m
from paper.judge import GOAL, pairs
from roann.lab.report import LOST, Arm, Collapse, Outcome

ALIKE = 0.01  # scores within this part of the way from guessing to perfect count as equal


def _goal(o: Outcome, in_a_row: int = 1) -> int | None:
    return m.first(o, o.goal.score, GOAL[o.run.task["name"]], in_a_row)


def _each(of: Callable[[Outcome], str], between: str) -> Callable[[Arm], str]:
    return lambda a: between.join(map(of, a.outcomes))


def _count(of: Callable[[Outcome], object]) -> Callable[[Arm], str]:
    return lambda a: f"{sum(bool(of(o)) for o in a.outcomes)} of {len(a.outcomes)}"


def _met(which: str) -> Callable[[Arm], str]:
    return _count(lambda o: m.meets(o.goal.score, getattr(o, which), GOAL[o.run.task["name"]]))


def _norm_W(arm: Arm, since: int, until: float = math.inf) -> str:
    """The largest ‖W‖ that a probe of the first seed saw from one step to another."""
    probes = [p for p in m.lines(arm.outcomes[0], "probe") if since <= p["step"] <= until]
    norms = [p["norm_W"] for p in probes if isinstance(p.get("norm_W"), float)]
    return m.number(max(norms, default=None))


def _ends(arm: Arm, place: int) -> str:
    seen = m.lines(arm.outcomes[0], "probe")
    return m.sigma(seen[place]) if len(seen) > (place == -1) else "–"


def _after(arm: Arm, epoch: int) -> str:
    return m.shown("accuracy", m.evaluated(arm.outcomes[0], epoch=epoch).get("accuracy"))


def _gains(arm: Arm, other: Arm) -> list[float]:
    """How much further on the way to perfect each seed gets; all that is called lost is alike."""

    def way(o: Outcome) -> float:
        return max(LOST, LOST if o.best is None else o.goal.progress(o.best) or 0.0)

    theirs = {o.run.seed: way(o) for o in other.outcomes}
    return [way(o) - theirs[o.run.seed] for o in arm.outcomes]


def collapse(o: Outcome, fall: Collapse) -> dict[str, str]:
    """When a run collapsed, how it ended, and what the last probe before it measured."""
    values = {step: m.shown(o.goal.score, value) for step, value in o.curve()}
    later = [value for step, value in o.curve() if step > fall.gone]
    probe = [p for p in m.lines(o, "probe") if p["step"] <= fall.held][-1]
    return {
        "last good evaluation": f"{values[fall.held]} at {fall.held:,}",
        "gone by step": f"{fall.gone:,} ({'diverged' if fall.diverged else values[fall.gone]})",
        "best after": m.shown(o.goal.score, o.goal.best(later)),
        "last probe": f"{probe['step']:,}",
        "‖W‖ there": m.number(probe["norm_W"]),
        "ln σ there": m.sigma(probe),
        "interval there": " … ".join(m.number(probe["bound"][e]) for e in ("lower", "upper")),
    }


ARM: dict[str, Callable[[Arm], str]] = {
    "parameters": lambda a: f"{a.runs[0].facts['parameters']:,}",
    "trained numbers": lambda a: f"{a.runs[0].facts['effective_parameters']:,}",
    "seeds": lambda a: f"{len(a.runs)}",
    "best": lambda a: m.shown(a.goal.score, a.best),
    "best of each seed": _each(
        lambda o: m.shown(o.goal.score, o.best) if o.curve() else o.run.status, " · "
    ),
    "median of best": lambda a: m.shown(a.goal.score, a.median("best")),
    "median at the end": lambda a: m.shown(a.goal.score, a.median("last")),
    "lost": _count(lambda o: o.lost),
    "collapsed": _count(lambda o: o.collapses),
    "training": lambda a: m.wall(statistics.median(map(m.training, a.outcomes))),
    "steps": lambda a: m.whole(m.median(run.steps for run in a.runs)),
    "evaluations": lambda a: m.whole(m.median(len(o.curve()) for o in a.outcomes)),
    "ms per step": lambda a: m.number(m.median(map(m.speed, a.outcomes))),
    "ln σ before": lambda a: _ends(a, 0),
    "ln σ after": lambda a: _ends(a, -1),
    "goal first met": _each(lambda o: m.whole(_goal(o)), ", "),
    "goal at the end": _met("last"),
    "goal at the best": _met("best"),
    "stopped early": _count(lambda o: _goal(o, 3)),
    "lost of these": lambda a: str(sum(o.lost for o in a.outcomes if _goal(o, 3))),
    "trained": _each(lambda o: f"{m.trained(o)}", ", "),
    "by validation": _each(lambda o: m.shown(o.goal.score, o.selected), " · "),
    "collapses": _each(lambda o: f"{len(o.collapses)}", ", "),
    "‖W‖ at the start": lambda a: _norm_W(a, 0, 0),
    "‖W‖ after 1 step": lambda a: _norm_W(a, 1, 1),
    "‖W‖ within 50": lambda a: _norm_W(a, 1, 50),
    "largest ‖W‖": lambda a: _norm_W(a, 1),
    "‖W‖ at the end": lambda a: m.number(m.lines(a.outcomes[0], "probe")[-1].get("norm_W")),
}
ARM |= {f"after {epoch}": partial(_after, epoch=epoch) for epoch in (1, 10, 11)}
SAME = {"end": "median at the end", "step to the goal": "goal first met"}
SAME |= {"ln σ at the start": "ln σ before", "ln σ at the end": "ln σ after"}
ARM |= {name: ARM[other] for name, other in SAME.items()}
VERSUS: dict[str, Callable[[Arm, Arm], str]] = {
    "pairs won": lambda a, b: "{} of {}".format(*pairs(a, b)),
    "better": lambda a, b: str(sum(gain > ALIKE for gain in _gains(a, b))),
    "worse": lambda a, b: str(sum(gain < -ALIKE for gain in _gains(a, b))),
}
