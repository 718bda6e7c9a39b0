"""The generated tables of the pages, from the records alone."""

from __future__ import annotations

import fnmatch
import math
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from paper import ROOT
from paper.collapses import COLLAPSE
from paper.columns import ARM, SEED, VERSUS
from paper.committed import Records
from paper.judge import CLAIMS, verdicts
from paper.measure import shown, trained, wall, whole
from paper.pages import Table
from paper.plan import FIGURES, SEEDS, entries
from paper.theorems import first_order, spectra, worst_cases
from roann.lab.report import Arm
from roann.lab.tasks.mnist import LINEAR_SOFTMAX

SPECS: dict[str, Any] = tomllib.loads((ROOT / "paper/tables.toml").read_text(encoding="utf-8"))


def from_spec(records: Records, spec: dict[str, Any]) -> Table:
    """A table of `tables.toml`: rows are arms, seeds, or the collapses of seeds."""
    rows: list[list[str]] = []
    columns, arms, kind = spec["columns"], _arms(records, spec), spec.get("rows", "arms")
    for name, arm in arms.items():
        if kind == "arms":
            other = (
                arms.get(re.sub(spec["versus"][0], spec["versus"][1], name))
                if "versus" in spec
                else None
            )
            cells = [_cell(column, arm, other) for column in columns]
            rows.append([f"`{name}`", *cells])
        for o in arm.outcomes if kind != "arms" else ():
            found: list[Any] = [{column: SEED[column](o) for column in columns if column in SEED}]
            found = found if kind == "seeds" else [COLLAPSE[kind](o, fall) for fall in o.collapses]
            seed = f"`{name}` seed {o.run.seed}"
            rows += [[seed, *(cells[column] for column in columns)] for cells in found if cells]
    return ["run", *columns], rows


def _cell(column: str, arm: Arm, other: Arm | None) -> str:
    if column in ARM:
        return ARM[column](arm)
    return "–" if other in (None, arm) else VERSUS[column](arm, other)


def _arms(records: Records, spec: dict[str, Any]) -> dict[str, Arm]:
    """The arms of a table by the name of their row."""
    found: dict[str, Arm] = {}
    for pattern in spec["arms"]:
        figure, _, names = pattern.partition("/")
        note = ", elsewhere" if figure == "elsewhere" else ""
        arms = {n: arm for n, arm in records[figure].items() if fnmatch.fnmatchcase(n, names)}
        found |= {name + note: arm for name, arm in arms.items() if name + note not in found}
    if not spec.get("sort"):
        return found
    sign = -1 if next(iter(found.values())).goal.better == "higher" else 1
    known = {n: m for n, arm in found.items() if (m := arm.median("best")) is not None}
    return {n: found[n] for n in sorted(found, key=lambda n: sign * known.get(n, sign * math.inf))}


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
    seconds = {"bounds": sum(line.get("seconds", 0.0) for line in records["bounds"])}
    counts = {"bounds": 0}
    for figure in (figure for figure in records if figure != "bounds"):
        runs = [run for arm in records[figure].values() for run in arm.runs]
        counts[figure] = len(runs)
        seconds[figure] = sum(r.seconds * float(r.config["train"]["threads"]) for r in runs)
    rows = [[f"`{f}`", whole(counts[f]), wall(seconds[f])] for f in records]
    total = ["all", whole(sum(counts.values())), wall(sum(seconds.values()))]
    return ("results", "runs", "core time"), [*rows, total]


def published(records: Records) -> Table:
    """The paper's psMNIST table with our networks in it."""
    rows = [(b, name, weights, "the paper") for name, weights, b in CLAIMS["published"]["psmnist"]]
    rows.append((LINEAR_SOFTMAX, "linear softmax, all pixels at once", "7,850", "here"))
    for N in (178, 256, 512):
        arm = records["table1"][f"psmnist-{N}"]
        by = f"here, {max(map(trained, arm.outcomes))} epochs"
        rows.append((arm.best, f"roaRNN, N = {N}", ARM["parameters"](arm), by))
    cells = ([name, weights, shown("accuracy", b), by] for b, name, weights, by in sorted(rows))
    return ("system", "weights", "best test accuracy", "source"), cells


def tables(records: Records) -> Iterator[tuple[str, Table]]:
    """Every table by name."""
    head = ("place", "the paper", "here", "verdict")
    yield "claims", (head, list(verdicts(records)))
    yield "headlines", (head, list(verdicts(records, headlines=True)))
    for make in (departures, cost, published, spectra, worst_cases, first_order):
        yield make.__name__, make(records)
    yield from ((name, from_spec(records, spec)) for name, spec in SPECS.items())
