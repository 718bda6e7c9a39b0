"""The generated tables of the pages, from the records alone.

`tables.toml` chooses rows and columns of most of them; a row of one seed is an arm of one.
"""

from __future__ import annotations

import fnmatch
import math
import statistics
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from paper import ROOT
from paper.collect import ELSEWHERE, Records
from paper.judge import CLAIMS, GOAL, judge, meets
from paper.pages import Table, number, scored
from paper.plan import FIGURES, PLAN, SEEDS, entries
from roann.lab.report import Arm, Outcome, duration

CLAIM = ("place", "the paper", "here", "verdict")  # the head of a table of claims
SPECS: dict[str, Any] = tomllib.loads((ROOT / "paper/tables.toml").read_text(encoding="utf-8"))


def _logs(values: Iterable[float | None]) -> list[float]:
    """Logarithms of a record: JSON has no −∞, and says null."""
    return [-math.inf if value is None else value for value in values]


def _sigma(line: Mapping[str, Any]) -> str:
    """The smallest and largest ln σ of a probe."""
    extremes = [line["sigma_min"], line["sigma_max"]] if "sigma_max" in line else []
    values = _logs(extremes or line.get("sigma", ()))
    return f"{number(min(values))} … {number(max(values))}" if values else "–"


def _trained(o: Outcome) -> int:
    """Steps, or whole epochs where the config counts in epochs, so far."""
    if o.run.config["train"]["unit"] != "epoch":
        return o.run.steps
    return max((int(line.get("epoch") or 0) for line in o.run.records), default=0)


def _training(o: Outcome) -> float:
    """Wall time until the last update that was recorded: without a probe at the end."""
    train = o.run.of_kind("train")
    return float(train[-1]["seconds"] if train else o.run.seconds)


def _met(o: Outcome, value: float | None) -> bool:
    return meets(o.goal.score, value, GOAL[o.run.task["name"]])


def _goal(o: Outcome, in_a_row: int = 1) -> float | None:
    """The first evaluation at which the goal is met, and has been so often."""
    met = 0
    for step, value in o.curve():
        met = met + 1 if _met(o, value) else 0
        if met == in_a_row:
            return step
    return None


def _norm_W(arm: Arm, since: int, until: float = math.inf) -> str:
    """The largest ‖W‖ that a probe of the first seed saw from one step to another."""
    probes = [p for p in arm.runs[0].of_kind("probe") if since <= p["step"] <= until]
    return number(max((p["norm_W"] for p in probes if p.get("norm_W")), default=None))


def _probe(arm: Arm, place: int) -> dict[str, Any]:
    """The first probe of the first seed, or the last if there are two."""
    seen = arm.runs[0].of_kind("probe")
    return seen[place] if len(seen) > (place == -1) else {}


def _after(arm: Arm, epoch: int) -> str:
    return scored("accuracy", dict(arm.outcomes[0].curve("accuracy", "epoch")).get(epoch))


def _each(of: Callable[[Outcome], str], between: str) -> Callable[[Arm], str]:
    return lambda a: between.join(map(of, a.outcomes))


def _count(of: Callable[[Outcome], object]) -> Callable[[Arm], str]:
    return lambda a: f"{sum(bool(of(o)) for o in a.outcomes)} of {len(a.outcomes)}"


COLUMNS: dict[str, Callable[[Arm], str]] = {
    "parameters": lambda a: f"{a.runs[0].facts['parameters']:,}",
    "trained numbers": lambda a: f"{a.runs[0].facts['effective_parameters']:,}",
    "seeds": lambda a: f"{len(a.runs)}",
    "best": lambda a: scored(a.goal.score, a.best),
    "best of each seed": _each(
        lambda o: scored(o.goal.score, o.best) if o.curve() else o.run.status, " · "
    ),
    "median of best": lambda a: scored(a.goal.score, a.median("best")),
    "median at the end": lambda a: scored(a.goal.score, a.median("last")),
    "end": lambda a: scored(a.goal.score, a.median("last")),
    "lost": _count(lambda o: o.lost),
    "collapsed": _count(lambda o: o.collapses),
    "training": lambda a: duration(statistics.median(map(_training, a.outcomes))),
    "steps": lambda a: number(statistics.median(run.steps for run in a.runs), 0),
    "evaluations": lambda a: number(statistics.median(len(o.curve()) for o in a.outcomes), 0),
    "ln σ at the start": lambda a: _sigma(_probe(a, 0)),
    "ln σ at the end": lambda a: _sigma(_probe(a, -1)),
    "step to the goal": _each(lambda o: number(_goal(o), 0), ", "),
    "goal at the end": _count(lambda o: _met(o, o.last)),
    "goal at the best": _count(lambda o: _met(o, o.best)),
    "stopped early": _count(lambda o: _goal(o, 3)),
    "trained": _each(lambda o: f"{_trained(o)}", ", "),
    "by validation": _each(lambda o: scored(o.goal.score, o.selected), " · "),
    "collapses": _each(lambda o: f"{o.collapses}", ", "),
    "‖W‖ at the start": lambda a: _norm_W(a, 0, 0),
    "‖W‖ after 1 step": lambda a: _norm_W(a, 1, 1),
    "‖W‖ within 50": lambda a: _norm_W(a, 1, 50),
    "largest ‖W‖": lambda a: _norm_W(a, 1),
    "‖W‖ at the end": lambda a: number(_probe(a, -1).get("norm_W")),
}
COLUMNS |= {f"after {epoch}": partial(_after, epoch=epoch) for epoch in (1, 10, 11)}


def from_spec(records: Records, spec: Mapping[str, Any]) -> Table:
    """A table of `tables.toml`: a row is an arm, or one of its seeds."""
    rows: dict[str, Arm] = {}
    for name, arm in _arms(records, spec).items():
        seeds = {f" seed {o.run.seed}": replace(arm, outcomes=(o,)) for o in arm.outcomes}
        chosen = seeds if spec.get("rows") == "seeds" else {"": arm}
        rows |= {f"`{name}`{seed}": one for seed, one in chosen.items()}
    columns = spec["columns"]
    cells = [[name, *(COLUMNS[c](arm) for c in columns)] for name, arm in rows.items()]
    return ["run", *columns], cells


def _arms(records: Records, spec: Mapping[str, Any]) -> dict[str, Arm]:
    """The arms of a table by the name of their row."""
    found: dict[str, Arm] = {}
    for figure, _, pattern in (place.partition("/") for place in spec["arms"]):
        note = ", elsewhere" if figure == ELSEWHERE else ""
        names = fnmatch.filter(records[figure], pattern)
        found |= {name + note: records[figure][name] for name in names}
    if not spec.get("sort"):
        return found
    sign = -1 if next(iter(found.values())).goal.better == "higher" else 1
    known = {n: m for n, arm in found.items() if (m := arm.median("best")) is not None}
    return {n: found[n] for n in sorted(found, key=lambda n: sign * known.get(n, sign * math.inf))}


def _reached(arm: Arm | None) -> str:
    """How many seeds meet the goal of a task, and by when; where there is none, their scores."""
    if arm is None:
        return "not run"
    if arm.runs[0].task["name"] in GOAL:
        steps = [step for o in arm.outcomes if (step := _goal(o)) is not None]
        latest = f", step {number(max(steps), 0)}" if steps else ""
        return f"{len(steps)} of {len(arm.outcomes)}{latest}"
    chosen = [o.selected for o in arm.outcomes if o.selected is not None]
    scores = chosen or [o.best for o in arm.outcomes if o.best is not None]
    ends = dict.fromkeys(scored(arm.goal.score, value) for value in (min(scores), max(scores)))
    return "…".join(ends).replace(" %…", "…") + ("" if chosen else " (test)")


def beyond(records: Records) -> Table:
    """The layer's defaults, beside the paper's setting here and the best elsewhere."""
    rows = []
    for row in CLAIMS["beyond"]:
        arms = []
        for key in ("defaults", "setting"):
            figure, _, name = row.get(key, "/").partition("/")
            arms.append(records.get(figure, {}).get(name))
        rows.append([row["task"], *map(_reached, arms), row.get("elsewhere", "–")])
    return ("task", "defaults", "the paper's setting, here", "best elsewhere"), rows


def departures(records: Records) -> Table:
    """Where there are fewer seeds or steps than in the paper, and why."""
    rows = []
    for figure, entry in ((f, e) for f in FIGURES for e in entries(f) if "cut" in e):
        arms = [a for n, a in records[figure].items() if f"{n}-".startswith(f"{entry['name']}-")]
        ended = [o for arm in arms[:1] for o in arm.outcomes if o.run.status != "diverged"]
        of = f" of {entry['paper_length']:,}" if "paper_length" in entry else ""
        unit = ended[0].run.config["train"]["unit"] if ended else ""
        length = f"{min(map(_trained, ended)):,}{of} {unit}s" if ended else "–"
        seeds = f"{entry['seeds']} of {SEEDS}"
        rows.append([f"`{figure}`", f"`{entry['name']}`", seeds, length, entry["cut"]])
    return ("results", "run", "seeds", "trained for", "why"), rows


def cost(records: Records) -> Table:
    """Runs and core time of every figure."""
    rows = []
    for figure in (figure for figure in records if figure != "bounds"):
        runs = [run for arm in records[figure].values() for run in arm.runs]
        seconds = sum(run.seconds * float(run.config["train"]["threads"]) for run in runs)
        rows.append((f"`{figure}`", len(runs), seconds))
    rows.append(("`bounds`", 0, sum(line.get("seconds", 0.0) for line in records["bounds"])))
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    cells = [[name, number(count, 0), duration(seconds)] for name, count, seconds in rows]
    return ("results", "runs", "core time"), cells


def _study(records: Records, kind: str, **values: object) -> list[dict[str, Any]]:
    """The lines of the bounds study of a kind and with some values."""
    wanted = {"kind": kind} | values
    return [line for line in records["bounds"] if wanted.items() <= line.items()]


def spectra(records: Records) -> Table:
    """Spectra beside the intervals of the theorems; plain networks beside the roa network's."""
    rows = []
    for label, setting in ((net["label"], net["setting"]) for net in PLAN["bounds"]["networks"]):
        lines = _study(records, "spectrum", network=label, setting=setting)
        roa = _study(records, "spectrum", network=label.replace("plain ", "roa"), setting=setting)
        finite = []
        for line, ends in zip(lines, (line["finite"] for line in roa), strict=True):
            low, high, *held = _logs([ends["lower"], ends["upper"], *line["sigma"]])
            plain = {"inside": low <= min(held) and max(held) <= high}
            finite.append(line.get("finite", plain)["inside"])
        papers = [line.get("paper", {}).get("inside") for line in lines]
        counts = [finite, papers, [line.get("vacuous") for line in lines]]
        cells = ("–" if None in c else f"{sum(c)} of {len(c)}" for c in counts)
        rows.append([f"{label}, {setting}", *cells, _sigma(lines[0]), _sigma(lines[-1])])
    head = ("network, W", "in the finite interval", "in the paper's interval", "vacuous",
            "ln σ, L = 10", "ln σ, L = 100,000")  # fmt: skip
    return head, rows


def worst_cases(records: Records) -> Table:
    """The network on the finite lower end, and below the paper's, at every L."""
    rows = []
    for line in _study(records, "worst-case"):
        values = line["sigma"][-1], line["finite"], line["paper"]
        rows.append([number(line["maps"], 0), *(number(value, 6) for value in values)])
    return ("L", "ln σ", "finite lower end", "the paper's lower end"), rows


def first_order(records: Records) -> Table:
    """How far W moves an eigenvalue off the circle, at the largest N, and its growth N^p."""
    rows = []
    for filter in PLAN["bounds"]["filters"]:
        lines = _study(records, "first-order", filter=filter)
        sizes = sorted({line["width"] for line in lines})
        moved, *others = (
            [statistics.median(line[key] for line in lines if line["width"] == N) for N in sizes]
            for key in ("moved", "diagonal", "norm_W")
        )
        slope = statistics.linear_regression(list(map(math.log, sizes)), list(map(math.log, moved)))
        values = [moved[-1], *(other[-1] for other in others), slope.slope]
        rows.append([filter, *map(number, values)])
    return ("O", "measured", "by the diagonal", "‖W‖", "exponent p"), rows


def tables(records: Records) -> dict[str, Table]:
    """Every table by name."""
    makers = (beyond, departures, cost, spectra, worst_cases, first_order)
    made = {make.__name__: make(records) for make in makers}
    made["claims"] = CLAIM, [judge(claim, records) for claim in CLAIMS["claim"]]
    return made | {name: from_spec(records, spec) for name, spec in SPECS.items()}
