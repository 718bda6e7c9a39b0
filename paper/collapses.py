"""Columns of tables whose rows are collapses: when, how the run ended, what grew before."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from paper import measure as m
from roann.lab.report import Collapse, Outcome


def _collapse(o: Outcome, fall: Collapse) -> dict[str, str]:
    """When a run collapsed, how it ended, and what the last probe before it measured."""
    values = {step: m.shown(o.goal.score, value) for step, value in o.curve()}
    later = [value for step, value in o.curve() if step > fall.gone]
    probe = [p for p in m.lines(o, "probe") if p["step"] <= fall.held][-1]
    ends = (m.number(probe["bound"][end]) for end in ("lower", "upper"))
    return {
        "last good evaluation": f"{values[fall.held]} at {fall.held:,}",
        "gone by step": f"{fall.gone:,} ({'diverged' if fall.diverged else values[fall.gone]})",
        "best after": m.shown(o.goal.score, o.goal.best(later)),
        "end": m.shown(o.goal.score, o.last),
        "last probe": f"{probe['step']:,}",
        "‖W‖ there": m.number(probe["norm_W"]),
        "ln σ there": m.sigma(probe),
        "interval there": " … ".join(ends),
    }


def _spike(o: Outcome, fall: Collapse) -> dict[str, str] | None:
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
    rows: list[list[dict[str, Any]]] = []
    for line in m.lines(o, "leap"):
        if not rows or line["step"] != rows[-1][-1]["step"] + 1:
            rows.append([])
        rows[-1].append(line)
    row = next((row for row in rows if fall.held < row[-1]["step"]), [])
    return row if row and row[0]["step"] <= fall.gone else []


COLLAPSE: dict[str, Callable[[Outcome, Collapse], dict[str, str] | None]] = {
    "collapses": _collapse,
    "spikes": _spike,
}
