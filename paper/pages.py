"""Generated tables in hand-written pages, and the numbers of prose that refer to their cells.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. A number in a sentence is followed
by a comment: `<!-- NAME: ROW | COLUMN -->` names the cell it is read from, `<!-- paper -->` and
`<!-- setting -->` say that it is the paper's or was chosen. A comment covers the numbers since the
one before it. The tests compare numbers and cells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Head and rows."""
_TABLE = re.compile(r"<!-- table: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)


def markdown(table: Table, right: bool = False) -> str:
    """A Markdown table, columns of numbers to the right, or all but the first."""
    head, rows = table
    columns = [[row[k] for row in rows] for k in range(len(head))]
    numbers = [all(re.match(r"[\d+×–−∞]", cell) for cell in cells) for cells in columns]
    if right:
        numbers = [k > 0 for k in range(len(head))]
    rule = ["---:" if number else "---" for number in numbers]
    text = "".join("| " + " | ".join(line) + " |\n" for line in [head, rule, *rows])
    return text.replace("\N{NO-BREAK SPACE}", " ")


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """The page with new text between its markers."""
    return _TABLE.sub(lambda m: f"<!-- table: {m[1]} -->\n{blocks[m[1]]}<!-- end -->", text)


def number(value: float | None, digits: int = 3) -> str:
    """A number for reading, with a few digits, or rounded to a whole one."""
    if value is None:
        return "–"
    text = f"{value:.{digits}g}" if digits else f"{value:,.0f}"
    return text.replace("inf", "∞").replace("-", "−")


def scored(score: str, value: float | None) -> str:
    """A score for reading: accuracies in percent."""
    if value is None or not math.isfinite(value) or "accuracy" not in score:
        return number(value)
    return f"{100 * value:.2f} %"
