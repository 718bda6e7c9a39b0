"""Names from disk made harmless before they are shown."""

from __future__ import annotations

import unicodedata

_LABEL_LENGTH = 48


def inert(text: str) -> str:
    """The text with control, format, surrogate and private characters shown as U+FFFD.

    Control characters confuse parsers, and bidirectional overrides make a name read as another;
    neither says anything a reader of a report needs. Line feeds and tabs stay.

    Example:
        >>> inert("run\\x1b[31m \\u202egnp.exe")
        'run�[31m �gnp.exe'
    """
    return "".join(
        "\N{REPLACEMENT CHARACTER}"
        if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Co"} and c not in "\n\t"
        else c
        for c in text
    )


def label_text(text: str) -> str:
    """`inert` text on one line, short enough for a legend, that matplotlib will not hide.

    Example:
        >>> label_text("a\\nb"), label_text("_x").strip()
        ('a b', '_x')
    """
    line = " ".join(inert(text).split()) or "(no name)"
    if len(line) > _LABEL_LENGTH:
        line = line[: _LABEL_LENGTH - 1] + "…"
    # matplotlib leaves labels that begin with an underscore out of legends.
    return "\N{HAIR SPACE}" + line if line.startswith("_") else line
