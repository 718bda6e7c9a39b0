"""Tables of `docs/real.md`, from the records."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.real import epochs, goals
from benchmarks.real.minirocket import NAME as MINIROCKET
from benchmarks.real.records import Row
from benchmarks.real.sets import CLASSIFY, FORECAST, REGRESS, SETS
from benchmarks.real.systems import DRAW_NOTHING, FIXED, RIDGE, ROA
from paper.pages import Table, markdown

NETWORKS = (ROA, "LSTM", "GRU")
COLUMNS = {
    CLASSIFY: (FIXED, *NETWORKS, RIDGE, MINIROCKET),
    REGRESS: (FIXED, *NETWORKS, RIDGE, MINIROCKET),
    FORECAST: (*NETWORKS, RIDGE, "seasonal", "persistence"),
}
NONE = "–"


def _cell(rows: Sequence[Row], percent: bool) -> str:
    """The mean over seeds, with the lowest and highest; or a note that there was one seed.

    Lines break before the parentheses and not within.
    """
    if not rows:
        return NONE
    scale, digits = (100, 1) if percent else (1, 2)
    scores = [scale * row["score"] for row in rows]
    mean, low, high = (f"{v:.{digits}f}" for v in (fmean(scores), min(scores), max(scores)))
    more = f" ({low}\u202f…\u202f{high})" if low != high else ""
    if len(rows) == 1 and rows[0]["system"] not in DRAW_NOTHING:
        more = " (one seed)"
    return (mean + more).replace("-", "−")


def scores(rows: Sequence[Row], kind: str) -> Table:
    """A row for each set, a column for each system."""
    columns = COLUMNS[kind]
    lines = []
    for name in SETS:
        here = [row for row in rows if row["set"] == name and row["kind"] == kind]
        if here:
            cells = [[r for r in here if r["system"] == system] for system in columns]
            seeds = max(len(cell) for cell in cells)
            lines.append([name, *(_cell(cell, kind == CLASSIFY) for cell in cells), str(seeds)])
    return ("set", *columns, "seeds"), lines


def cost(rows: Sequence[Row]) -> Table:
    """Seconds of a fit and its answers without the search, and trained parameters."""
    lines = []
    for name in SETS:
        here = [row for row in rows if row["set"] == name]
        for system in dict.fromkeys(column for kind in COLUMNS.values() for column in kind):
            found = [row for row in here if row["system"] == system]
            if found:
                rate = found[0].get("chosen", {}).get("learning_rate", NONE)
                seconds = fmean(row["seconds"] for row in found)
                lines.append([
                    name, system, f"{seconds:.3g}", f"{found[0]['parameters']:,}", str(rate),
                ])  # fmt: skip
    return ("set", "system", "seconds", "parameters", "learning rate"), lines


def blocks(rows: Sequence[Row], timed: Sequence[Row] = ()) -> dict[str, str]:
    """The tables of the page by name."""
    made = {kind: scores(rows, kind) for kind in COLUMNS} | {"cost": cost(rows)}
    made["epochs"] = epochs.table(timed)
    found = {name: markdown(table, right=True) for name, table in made.items()}
    return found | {"goals": markdown(goals.table(rows))}
