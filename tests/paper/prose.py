"""Every number of a hand-written sentence, against the cell that the comment behind it names."""

import re

_TABLE = re.compile(r"<!-- table: [\w-]+ -->.*?<!-- end -->", re.DOTALL)
_REFERENCE = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_NUMBER = re.compile(r"[+−-]?\d[\d,.]*\d(?:e[+−-]?\d+)?|\d")
# Not numbers of a sentence: code, links, formulas, names of figures, a letter with its value.
_NAMES = re.compile(
    r"`[^`]*`|\$\$[^$]*\$\$|\$[^$]*\$|\]\([^)]*\)|https?:\S+|(?:Figs?\.|Tables?|seed) \d+"
    r"(?: and \d+)?|(?:arXiv:|doi )\S+|[A-Zαρφ] = [\d,./]+(?:(?:,| and| or) [\d,./]+)*"
    r"|^#.*$|[A-Za-z_]\w*\d\w*|O\(1\)",
    re.MULTILINE,
)


def problems(text, tables):
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


def _cell(reference, tables):
    """The text of a cell, by table, one of the first two cells of its row, and column."""
    name, _, rest = reference.partition(": ")
    row, _, column = rest.rpartition(" | ")
    head, rows = tables.get(name, ((), ()))
    for line in rows:
        if column in head and row in [cell.replace("`", "") for cell in line[:2]]:
            return line[list(head).index(column)]
    return None
