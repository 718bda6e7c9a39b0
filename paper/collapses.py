"""Columns of tables whose rows are collapses: when, how the run ended, what grew before."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from paper import measure as m
from roann.lab.report import Collapse, Outcome


def collapse(o: Outcome, fall: Collapse) -> dict[str, str]:
    """When a run collapsed, how it ended, and what the last probe before it measured."""
    values, score = dict(o.curve()), o.goal.score
    probe = [p for p in m.probes(o) if p["step"] <= fall.held][-1]
    bound = probe["bound"]
    later = [value for step, value in values.items() if step > fall.gone]
    return {
        "last good evaluation": f"{m.shown(score, values[fall.held])} at {fall.held:,}",
        "gone by step": f"{fall.gone:,}"
        + (" (diverged)" if fall.diverged else f" ({m.shown(score, values[fall.gone])})"),
        "best after": m.shown(score, o.goal.best(later)),
        "end": m.shown(score, o.last),
        "last probe": f"{probe['step']:,}",
        "‖W‖ there": m.number(probe["norm_W"]),
        "ln σ there": m.sigma(probe),
        "interval there": f"{m.number(bound['lower'])} … {m.number(bound['upper'])}",
    }


def spike(o: Outcome, fall: Collapse) -> dict[str, str] | None:
    """What grew in the steps before a collapse, where the weights of these were kept."""
    frames = _frames(o, fall)
    if not frames:
        return None
    losses = [float(frame["loss"]) for frame in frames]
    worst = losses.index(max(losses))
    leaps = (k for k in range(1, worst) if losses[k] > 10 * statistics.median(losses[:k]))
    leap = next(leaps, worst)
    start, before, lr = frames[0], frames[leap - 1], float(o.run.config["train"]["lr"])
    moves = [float(f["moved"]) / lr for f in frames[:worst] if f.get("moved") is not None]
    change = 100 * (frames[leap]["norm_W"] / start["norm_W"] - 1)
    return {
        "first step seen": f"{start['step']:,}",
        "spike at": f"{frames[leap]['step']:,}",
        "‖W‖ until the spike": f"{change:+.2g} %".replace("-", "−"),
        "loss before it": f"× {m.number(before['loss'] / start['loss'])}",
        "gradient before it": f"× {m.number(before['grad_norm'] / start['grad_norm'])}",
        "largest ln σ": f"{m.number(start['sigma_max'])} → {m.number(frames[worst]['sigma_max'])}",
        "updates": f"{m.number(moves[0])} → {m.number(max(moves))}" if moves else "–",
    }


def _frames(o: Outcome, fall: Collapse) -> list[dict[str, Any]]:
    """The first unbroken row of steps that the black box kept and that reaches into a collapse."""
    row: list[dict[str, Any]] = []
    for line in (line for line in o.run.records if line["kind"] == "leap"):
        if row and line["step"] != row[-1]["step"] + 1:
            if fall.held < row[-1]["step"]:
                break
            row = []
        row.append(line)
    return row if row and row[0]["step"] <= fall.gone and fall.held < row[-1]["step"] else []


COLLAPSE: dict[str, Callable[[Outcome, Collapse], dict[str, str] | None]] = {
    "collapses": collapse,
    "spikes": spike,
}
