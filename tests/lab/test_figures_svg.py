"""Figures as files: the same bytes every time, at home in a page, and no name can break them."""

from __future__ import annotations

import ast
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib as mpl
import pytest

import roann.lab.figures as figures_package
from roann.lab.figures import save
from roann.lab.figures.curves import Curve, learning_curves
from roann.lab.figures.style import label_text, svg_bytes
from roann.lab.figures.svg import inline_svg

SEEDS = [
    Curve(0, [100, 200, 300], [0.1, 0.01, 0.004]),
    Curve(1, [100, 200], [0.15, 0.16], diverged=True),
]


def test_svg_is_the_same_every_time_and_carries_no_date():
    made = [svg_bytes(learning_curves({"a": SEEDS}, ylabel="y", log=True)) for _ in range(2)]
    assert made[0] == made[1]
    figure = learning_curves({"a": SEEDS}, ylabel="y", log=True)
    assert svg_bytes(figure) == svg_bytes(figure) == made[0]
    assert b"dc:date" not in made[0]


def test_the_users_own_style_changes_nothing():
    plain = svg_bytes(learning_curves({"a": SEEDS}, ylabel="y"))
    with mpl.rc_context({"lines.linewidth": 9, "svg.fonttype": "path", "font.size": 30}):
        assert svg_bytes(learning_curves({"a": SEEDS}, ylabel="y")) == plain


def test_inline_svg_shares_a_page_and_follows_its_colours():
    text = inline_svg(learning_curves({"roa-rnn": SEEDS}, ylabel="y"), "f7", 'a "caption" <b>')
    root = ET.fromstring(text)
    assert root.tag == "svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'a "caption" <b>'
    assert "http" not in text
    assert "<style" not in text
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert ids
    assert len(ids) == len(set(ids))
    assert all(name.startswith("f7-") for name in ids)
    references = [value[1:] for e in root.iter() for key, value in e.attrib.items()
                  if key == "href" and value.startswith("#")]  # fmt: skip
    assert references
    assert set(references) <= set(ids)
    assert "var(--vermillion, #d55e00)" in text
    assert "var(--ink, #1d2126)" in text


HOSTILE = [
    "<script>alert(1)</script>",
    "$\\frac{",
    "_hidden",
    "\x1b[31m\u202egnp.exe\x00",
    "漢字 🦊",
    "x" * 500,
    "",
    'id="x" url(#y) #d55e00 &amp;',
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_labels_are_drawn_as_text(name: str):
    figure = learning_curves({name: SEEDS[:1]}, ylabel=name)
    text = inline_svg(figure, "f1", name)
    root = ET.fromstring(text)
    assert {e.tag for e in root.iter()} <= {"svg", "g", "path", "defs", "use", "text", "clipPath",
                                             "rect"}  # fmt: skip
    shown = label_text(name)
    legend = figure.axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [shown]
    assert shown in ["".join(e.itertext()) for e in root.iter("text")]
    assert not any(ord(c) < 32 or c == "\u202e" for c in shown)
    assert len(shown) <= 50


def test_save_writes_what_the_suffix_says_and_names_what_it_cannot(tmp_path: Path):
    figure = learning_curves({"a": SEEDS}, ylabel="y")
    assert save(figure, tmp_path / "a.svg").read_bytes() == svg_bytes(figure)
    assert save(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    first = save(figure, tmp_path / "a.pdf").read_bytes()
    assert first.startswith(b"%PDF")
    assert save(figure, tmp_path / "a.pdf").read_bytes() == first
    assert b"Date" not in first
    with pytest.raises(ValueError, match=r"path must end in \.svg, \.png or \.pdf, got 'a\.bmp'"):
        save(figure, tmp_path / "a.bmp")


def test_figures_import_neither_torch_nor_pyplot():
    folder = Path(figures_package.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(n.split(".")[0] == "torch" or "pyplot" in n for n in names), path.name
