"""Formulas of the documentation are MathML in the page itself: a reader needs no network."""

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def build(folder, page):
    (folder / "index.md").write_text(page, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-c", str(DOCS)]
    command += ["-D", "html_theme=basic", str(folder), str(folder / "html")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_formulas_are_mathml_and_nothing_is_loaded(tmp_path):
    done = build(tmp_path, "# Page\n\nInline $x_k, \\dots$.\n\n$$ y = \\alpha x \\tag{14, 22} $$\n")
    assert done.returncode == 0, done.stderr
    html = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert html.count("<math") == 2
    assert "<mi>α</mi>" in html
    assert '<span class="tag">(14, 22)</span>' in html
    assert "tag{" not in html
    assert 'src="http' not in html


def test_a_formula_that_cannot_be_rendered_fails_the_build(tmp_path):
    done = build(tmp_path, "# Page\n\n$$ \\nosuchcommand x $$\n")
    assert done.returncode != 0
    assert "write it another way" in done.stderr
