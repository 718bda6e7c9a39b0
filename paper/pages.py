"""Generated tables in hand-written pages, and the numbers of prose that refer to their cells.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. A number in a sentence is followed
by a comment: `<!-- NAME: ROW | COLUMN -->` names the cell it is read from, `<!-- paper -->` and
`<!-- setting -->` say that it is the paper's or was chosen. A comment covers the numbers since the
one before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

Table = tuple[Sequence[str], Iterable[Sequence[str]]]
"""Head and rows."""
_TABLE = re.compile(r"<!-- table: ([\w-]+) -->\n(.*?)<!-- end -->", re.DOTALL)
_REFERENCE = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_NUMBER = re.compile(r"[+−-]?\d[\d,.]*\d(?:e[+−-]?\d+)?|\d")
# Not numbers of a sentence: code, links, formulas, names of figures, a letter with its value.
_NAMES = re.compile(
    r"`[^`]*`|\$\$[^$]*\$\$|\$[^$]*\$|\]\([^)]*\)|https?:\S+|(?:Figs?\.|Tables?|seed) \d+"
    r"(?: and \d+)?|(?:arXiv:|doi )\S+|[A-Zαρφ] = [\d,./]+(?:(?:,| and| or) [\d,./]+)*"
    r"|^#.*$|[A-Za-z_]\w*\d\w*|O\(1\)",
    re.MULTILINE,
)


def markdown(table: Table) -> str:
    """A Markdown table, columns of numbers to the right."""
    head, rows = table[0], [list(row) for row in table[1]]
    columns = zip(*rows, strict=True) if rows else [()] * len(head)
    rule = ["---:" if all(re.match(r"[\d+×–−∞]", cell) for cell in c) else "---" for c in columns]
    return "".join("| " + " | ".join(line) + " |\n" for line in [head, rule, *rows])


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """The page with new text between its markers."""
    return _TABLE.sub(lambda m: f"<!-- table: {m[1]} -->\n{blocks[m[1]]}<!-- end -->", text)


def problems(text: str, tables: Mapping[str, Table]) -> Iterator[str]:
    """Every number of a hand-written sentence that no reference covers, or that is not its cell."""
    prose = re.sub(r"```.*?```", "", _TABLE.sub("", text), flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", prose):
        parts = [*_REFERENCE.split(paragraph), "no reference"]
        for words, reference in zip(parts[::2], parts[1::2], strict=True):
            numbers = _NUMBER.findall(_NAMES.sub("x", words))
            if reference in ("paper", "setting") or not numbers:
                continue
            cell = _cell(reference, tables)
            missing = [n for n in numbers if n not in _NUMBER.findall(cell or "")]
            if missing:
                where = " ".join(words.split())[-60:]
                yield f"{', '.join(missing)} in “…{where}”: not in {reference!r} ({cell})"


def _cell(reference: str, tables: Mapping[str, Table]) -> str | None:
    """The text of a cell, by table, one of the first two cells of its row, and column."""
    name, _, rest = reference.partition(": ")
    row, _, column = rest.rpartition(" | ")
    head, rows = tables.get(name, ((), ()))
    for line in rows:
        if column in head and row in [cell.replace("`", "") for cell in line[:2]]:
            return line[list(head).index(column)]
    return None
