"""A figure as an SVG element that lives inside an HTML page and follows its colours."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from matplotlib.figure import Figure

from roann.lab.figures.style import GRID, INK, MUTED, OKABE_ITO, PAPER, svg_bytes
from roann.lab.progress import printable

_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    GRID: "grid",
    PAPER: "paper",
    **{code: name for name, code in OKABE_ITO.items()},
}
_COLOR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"url\(#")
_FONT = re.compile(r"font-family:[^;]*")
_FONT_SHORT = re.compile(r"'DejaVu Sans'(?:,[^;]*)?")


def inline_svg(figure: Figure, prefix: str, description: str) -> str:
    """The figure as one ``<svg>`` element for an HTML page.

    House colours become CSS variables with the printed colour as fallback (``var(--ink, #1d2126)``)
    so that a page can have a dark side; identifiers get a prefix so that figures can share a page;
    namespaces, prolog and metadata go, since HTML needs none of them. `description` is for readers
    who cannot see the figure.
    """
    root = ET.fromstring(svg_bytes(figure))
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {
            name.rpartition("}")[2]: _rewritten(name.rpartition("}")[2], value, prefix)
            for name, value in element.attrib.items()
        }
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in {"style", "metadata"}:
                parent.remove(child)
    root.attrib.pop("version", None)
    # The page sets the width; the view box keeps the proportions.
    natural = root.attrib.pop("width"), root.attrib.pop("height")
    root.set("role", "img")
    root.set("aria-label", printable(description))
    root.set("style", f"--natural-width: {natural[0]}")
    return ET.tostring(root, encoding="unicode", short_empty_elements=True)


def _rewritten(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    if name in {"style", "clip-path", "fill", "stroke"}:
        value = _REFERENCE.sub(f"url(#{prefix}-", value)
        value = _COLOR.sub(_variable, value)
        value = _FONT.sub("font-family: inherit", value)
        return _FONT_SHORT.sub("var(--sans, sans-serif)", value)
    return value


def _variable(match: re.Match[str]) -> str:
    code = match.group()
    return f"var(--{_VARIABLES[code]}, {code})" if code in _VARIABLES else code
