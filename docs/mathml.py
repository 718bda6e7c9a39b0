"""Formulas as MathML, which browsers render themselves: the pages need no network and no script."""

import html
import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)
_TAG = re.compile(r"\\tag\{([^}]*)\}")


def _mathml(node: nodes.Element, block: bool) -> str:
    tex = _TAG.sub("", node.astext()).strip()
    tex = re.sub(r"\\dots\b", r"\\ldots", tex)  # which docutils does not know
    try:
        return tex2mathml(tex, as_block=block)
    except MathError as error:
        logger.warning("%s in %r; write it another way", error, tex, location=node)
        return f"<code>{html.escape(tex)}</code>"


def inline(self: HTML5Translator, node: nodes.Element) -> None:
    """A formula within a sentence."""
    self.body.append(_mathml(node, block=False))
    raise nodes.SkipNode


def display(self: HTML5Translator, node: nodes.Element) -> None:
    """A formula on a line of its own, with the number of its \\tag at the right."""
    tag = _TAG.search(node.astext())
    number = f'<span class="tag">({tag[1]})</span>' if tag else ""
    formula = _mathml(node, block=True)
    self.body.append(f'<div class="formula"><div>{formula}</div>{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; `html_math_renderer = "mathml"` chooses it."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
