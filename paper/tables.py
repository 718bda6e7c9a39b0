"""The generated tables of the pages, from the records alone."""

from __future__ import annotations

import fnmatch
import itertools
import math
import re
import statistics
import tomllib
from dataclasses import replace
from typing import Any

from paper import ROOT
from paper.collect import ELSEWHERE, Records
from paper.columns import ARM, VERSUS, collapse
from paper.judge import CLAIMS, judge
from paper.measure import number, shown, sigma, trained, wall, whole
from paper.pages import Table
from paper.plan import FIGURES, SEEDS, entries
from roann.lab.report import Arm
from roann.lab.tasks.mnist import LINEAR_SOFTMAX

SPECS: dict[str, Any] = tomllib.loads((ROOT / "paper/tables.toml").read_text(encoding="utf-8"))


def from_spec(records: Records, spec: dict[str, Any]) -> Table:
    """A table of `tables.toml`: rows are arms, seeds, or the collapses of seeds."""
    rows: list[list[str]] = []
    columns, arms, kind = spec["columns"], _arms(records, spec), spec.get("rows", "arms")
    pattern, to = spec.get("versus", ("$", ""))
    for name, arm in arms.items():
        other = arms.get(re.sub(pattern, to, name), arm)
        if kind == "arms":
            rows.append([f"`{name}`", *(_cell(column, arm, other, {}) for column in columns)])
            continue
        for o in arm.outcomes:
            one = replace(arm, outcomes=(o,))
            falls = [{}] if kind == "seeds" else [collapse(o, fall) for fall in o.collapses]
            cells = [[_cell(column, one, one, known) for column in columns] for known in falls]
            rows += [[f"`{name}` seed {o.run.seed}", *found] for found in cells]
    return ["run", *columns], rows


def _cell(column: str, arm: Arm, other: Arm, known: dict[str, str]) -> str:
    if column in VERSUS:
        return "–" if other is arm else VERSUS[column](arm, other)
    return known[column] if column in known else ARM[column](arm)


def _arms(records: Records, spec: dict[str, Any]) -> dict[str, Arm]:
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


def claims(records: Records) -> Table:
    """Every claim of the paper, judged."""
    head = ("place", "the paper", "here", "verdict")
    return head, [judge(claim, records) for claim in CLAIMS["claim"]]


def headlines(records: Records) -> Table:
    """Those that the README shows."""
    head, rows = claims(records)
    chosen = [claim.get("headline") for claim in CLAIMS["claim"]]
    return head, [*itertools.compress(rows, chosen)]


def departures(records: Records) -> Table:
    """Where there are fewer seeds or steps than in the paper, and why."""
    rows = []
    for figure, entry in ((f, e) for f in FIGURES for e in entries(f) if e.cut):
        arms = [a for n, a in records[figure].items() if f"{n}-".startswith(f"{entry.name}-")]
        ended = [o for arm in arms[:1] for o in arm.outcomes if o.run.status != "diverged"]
        of = f" of {entry.paper_length:,}" if entry.paper_length else ""
        unit = ended[0].run.config["train"]["unit"] if ended else ""
        length = f"{min(map(trained, ended)):,}{of} {unit}s" if ended else "–"
        rows.append([f"`{entry.name}`", f"{entry.seeds} of {SEEDS}", length, entry.cut])
    return ("run", "seeds", "trained for", "why"), rows


def cost(records: Records) -> Table:
    """Runs and core time of every figure."""
    rows = []
    for figure in (figure for figure in records if figure != "bounds"):
        runs = [run for arm in records[figure].values() for run in arm.runs]
        seconds = sum(run.seconds * float(run.config["train"]["threads"]) for run in runs)
        rows.append((f"`{figure}`", len(runs), seconds))
    rows.append(("`bounds`", 0, sum(line.get("seconds", 0.0) for line in records["bounds"])))
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    cells = [[name, whole(count), wall(seconds)] for name, count, seconds in rows]
    return ("results", "runs", "core time"), cells


def published(records: Records) -> Table:
    """The paper's psMNIST table with our networks in it."""
    rows = [(b, name, weights, "the paper") for name, weights, b in CLAIMS["published"]["psmnist"]]
    rows.append((LINEAR_SOFTMAX, "linear softmax, all pixels at once", "7,850", "here"))
    for N in (178, 256, 512):
        arm = records["table1"][f"psmnist-{N}"]
        by = f"here, {max(map(trained, arm.outcomes))} epochs"
        rows.append((arm.best, f"roaRNN, N = {N}", ARM["parameters"](arm), by))
    cells = [[name, weights, shown("accuracy", b), by] for b, name, weights, by in sorted(rows)]
    return ("system", "weights", "best test accuracy", "source"), cells


def _study(records: Records, kind: str) -> list[dict[str, Any]]:
    return [line for line in records["bounds"] if line["kind"] == kind]


def spectra(records: Records) -> Table:
    """Spectra beside the intervals of the theorems; plain networks beside the roa network's."""
    lines = _study(records, "spectrum")
    roa = {(line["over"], line["maps"], line["seed"]): line["finite"] for line in lines
           if line["setting"] == "paper" and line["network"].startswith("roa")}  # fmt: skip
    groups: dict[str, list[Any]] = {}
    for line in lines:
        ends = roa[line["over"], line["maps"], line["seed"]]
        low, *held = (-math.inf if v is None else v for v in (ends["lower"], *line["sigma"]))
        plain = {"finite": {"inside": low <= min(held) and max(held) <= ends["upper"]}}
        groups.setdefault(f"{line['network']}, {line['setting']}", []).append(plain | line)
    rows = []
    for name, mine in groups.items():
        counts = [[line["finite"]["inside"] for line in mine]]
        counts.append([line.get("paper", {}).get("inside") for line in mine])
        counts.append([line.get("vacuous") for line in mine])
        cells = ("–" if None in c else f"{sum(c)} of {len(c)}" for c in counts)
        rows.append([name, *cells, sigma(mine[0]), sigma(mine[-1])])
    head = ("network, W", "in the finite interval", "in the paper's interval", "vacuous",
            "ln σ, L = 10", "ln σ, L = 100,000")  # fmt: skip
    return head, rows


def worst_cases(records: Records) -> Table:
    """The network on the finite lower end, and below the paper's, at every L."""
    lines = _study(records, "worst-case")
    ends = ((line["maps"], line["sigma"][-1], line["finite"], line["paper"]) for line in lines)
    rows = [[whole(L), *(number(value, 6) for value in values)] for L, *values in ends]
    return ("L", "ln σ", "finite lower end", "the paper's lower end"), rows


def first_order(records: Records) -> Table:
    """How far W moves an eigenvalue off the circle, at the largest N, and its growth N^p."""
    groups: dict[str, dict[int, list[Any]]] = {}
    for line in _study(records, "first-order"):
        groups.setdefault(line["filter"], {}).setdefault(line["width"], []).append(line)
    rows = []
    for name, widths in groups.items():
        keys = ("moved", "diagonal", "norm_W")
        last = [statistics.median(line[key] for line in widths[max(widths)]) for key in keys]
        moved = [statistics.median(line["moved"] for line in group) for group in widths.values()]
        logs = [math.log(N) for N in widths], [math.log(value) for value in moved]
        slope = statistics.linear_regression(*logs).slope
        rows.append([name, *map(number, last), number(slope)])
    return ("O", "measured", "by the diagonal", "‖W‖", "exponent p"), rows


def tables(records: Records) -> dict[str, Table]:
    """Every table by name."""
    makers = (claims, headlines, departures, cost, published, spectra, worst_cases, first_order)
    made = {make.__name__: make(records) for make in makers}
    return made | {name: from_spec(records, spec) for name, spec in SPECS.items()}
