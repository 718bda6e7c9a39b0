"""The documentation in a real browser: search, dark mode, formulas offline, small screens."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from chromium import OVERFLOW, needs_chromium, started

ROOT = Path(__file__).parent.parent
pytestmark = needs_chromium


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All pages, built with warnings as errors."""
    pytest.importorskip("furo", reason="the extra [docs] is not installed")
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html"]
    command += ["-d", str(folder / "trees"), str(ROOT / "docs"), str(folder / "html")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served: search reads pages, which a browser forbids for files."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started()


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Any]:
    """A page as wide as a phone that asks nobody but the server; `outside` is what it tried."""
    context = browser.new_context(viewport={"width": 360, "height": 800}, color_scheme="light")
    page = context.new_page()
    page.outside, page.errors = [], []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on(
        "request",
        lambda r: None if r.url.startswith((address, "data:")) else page.outside.append(r),
    )
    yield page
    context.close()


def test_no_page_scrolls_sideways_on_a_phone_or_asks_the_network(
    visit: Any, address: str, site: Path
):
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    assert "guides/first_sequence.html" in pages
    wide = {}
    for name in pages:
        visit.goto(address + name)
        wide[name] = visit.evaluate(OVERFLOW)
        broken = visit.evaluate(
            "[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)"
        )
        assert broken == [], name
    assert {name: by for name, by in wide.items() if by > 0} == {}
    assert visit.outside == []
    assert visit.errors == []


def test_search_finds_a_guide(visit: Any, address: str):
    visit.goto(address + "search.html?q=certificate")
    visit.wait_for_selector("#search-results li a[href*='gradients']")
    visit.goto(address + "search.html?q=zzzznothing")
    visit.wait_for_function(
        "document.querySelector('#search-results').innerText.includes('did not match')"
    )
    assert visit.outside == []


def test_dark_mode_toggles_and_stays(visit: Any, address: str):
    ground = "getComputedStyle(document.body).backgroundColor"
    visit.goto(address + "guides/choose.html")
    assert visit.evaluate(ground) == "rgb(255, 255, 255)"
    for _ in range(3):  # auto, light and dark, in the theme's order
        if visit.evaluate("document.body.dataset.theme") == "dark":
            break
        visit.locator(".theme-toggle:visible").first.click()
    dark = visit.evaluate(ground)
    assert max(map(int, dark.removeprefix("rgb(").rstrip(")").split(","))) < 60
    ink = visit.evaluate("getComputedStyle(document.querySelector('article p')).color")
    assert min(map(int, ink.removeprefix("rgb(").rstrip(")").split(","))) > 150
    visit.goto(address + "guides/deep.html")
    assert visit.evaluate(ground) == dark


def test_formulas_are_drawn_without_a_network(visit: Any, address: str):
    visit.goto(address + "mathematics.html")
    sizes = visit.evaluate(
        "[...document.querySelectorAll('math')].map(m => { const box = m.getBoundingClientRect();"
        " return [box.width, box.height] })"
    )
    assert len(sizes) > 50
    assert all(width > 2 and height > 2 for width, height in sizes)
    tall = visit.evaluate("document.querySelector('math mfrac').getBoundingClientRect().height")
    plain = visit.evaluate("document.querySelector('math mi').getBoundingClientRect().height")
    assert tall > 1.4 * plain  # a fraction is two lines: laid out, not text
    assert visit.evaluate("typeof MathJax") == "undefined"
    assert visit.outside == []
