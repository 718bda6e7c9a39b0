"""Tables of the bounds study."""

from __future__ import annotations

import math
import statistics
from typing import Any

from paper.committed import Records
from paper.measure import number, sigma, whole
from paper.pages import Table


def spectra(records: Records) -> Table:
    """Spectra beside the intervals of the theorems; plain networks beside the roa network's."""
    lines = [line for line in records["bounds"] if line["kind"] == "spectrum"]
    roa = {(line["over"], line["maps"], line["seed"]): line["finite"] for line in lines
           if line["setting"] == "paper" and line["network"].startswith("roa")}  # fmt: skip
    groups: dict[str, list[Any]] = {}
    for line in lines:
        ends = roa[line["over"], line["maps"], line["seed"]]
        held = [-math.inf if value is None else value for value in line["sigma"]]
        low = -math.inf if ends["lower"] is None else ends["lower"]
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
    lines = [line for line in records["bounds"] if line["kind"] == "worst-case"]
    ends = ((line["maps"], line["sigma"][-1], line["finite"], line["paper"]) for line in lines)
    rows = ([whole(L), *(number(value, 6) for value in values)] for L, *values in ends)
    return ("L", "ln σ", "finite lower end", "the paper's lower end"), rows


def first_order(records: Records) -> Table:
    """How far W moves an eigenvalue off the circle, at the largest N, and its growth N^p."""
    groups: dict[str, dict[int, list[Any]]] = {}
    for line in (line for line in records["bounds"] if line["kind"] == "first-order"):
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
