"""The report in a real browser: from disk, without a network, small, dark, and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import OVERFLOW, needs_chromium, started
from made_runs import write_many

from roann.lab.report import write_report

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("browser")
    write_many(root / "runs")
    name = "<script>document.title='hit'</script><img src=x onerror=alert(1)>".replace("/", "|")
    (root / "runs" / "adding-rho0-s0").rename(root / "runs" / name)
    return write_report([root / "runs"], root / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from started()


class Visit:
    """A page opened from disk, and all it said and asked for."""

    def __init__(self, browser: Any, report: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True
        )
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.goto(report.as_uri())

    def ask(self, script: str) -> Any:
        return self.page.evaluate(script)


@pytest.fixture(
    scope="module",
    params=[(1280, "light"), (420, "light"), (360, "dark")],
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def visit(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Visit]:
    made = Visit(browser, report, *request.param)
    yield made
    made.context.close()


OPEN_ALL = "document.querySelectorAll('details').forEach(d => { d.open = true })"


def test_opens_from_disk_silently_and_asks_for_nothing_else(visit: Visit, report: Path):
    visit.ask(OPEN_ALL)
    visit.page.wait_for_load_state("load")
    outside = [url for url in visit.requests if not url.startswith("data:")]
    assert outside == [report.as_uri()]
    assert visit.complaints == []
    assert visit.page.title() == "Random orthogonal additive networks"


def test_nothing_sticks_out_sideways(visit: Visit):
    assert visit.ask(OVERFLOW) == 0
    visit.ask(OPEN_ALL)
    assert visit.ask(OVERFLOW) == 0
    assert not visit.ask(
        "[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth + 1)"
    )


def test_a_narrow_table_names_every_value(visit: Visit):
    """Columns of a wide screen are labels on a narrow one: nothing is cut off."""
    visit.ask(OPEN_ALL)
    narrow = visit.page.viewport_size["width"] < 800
    assert visit.ask("getComputedStyle(document.querySelector('thead')).display") == (
        "none" if narrow else "table-header-group"
    )
    labels = visit.ask(
        "[...document.querySelectorAll('table')].map(t => [...t.querySelectorAll('thead th')]"
        ".slice(1).map(th => th.innerText || th.textContent))"
    )
    rows = visit.ask(
        "[...document.querySelectorAll('table')].map(t => [...t.querySelectorAll('tr:has(td)')]"
        ".map(r => [...r.querySelectorAll('td')].map(td => td.dataset.label)))"
    )
    assert len(labels) > 2
    for names, table in zip(labels, rows, strict=True):
        assert table
        assert all(row == names for row in table)
    inside = visit.ask(
        "[...document.querySelectorAll('td')].every(td => { const box = td.getBoundingClientRect();"
        " return box.left >= 0 && box.right <= document.documentElement.clientWidth })"
    )
    assert inside


def test_every_figure_has_a_size_and_fits_its_box(visit: Visit):
    sizes = visit.ask(
        "[...document.querySelectorAll('figure')].map(f => { const s = f.querySelector('svg')"
        ".getBoundingClientRect(); return [s.width, s.height, f.getBoundingClientRect().right] })"
    )
    width = visit.page.viewport_size["width"]
    assert len(sizes) == 13
    for drawn, height, right in sizes:
        assert drawn > 250
        assert height > 150
        assert right <= width


def test_figures_draw_their_lines_in_the_colours_of_the_page(visit: Visit):
    """CSS variables reach into the drawings, so a dark page has light ink."""
    ink = visit.ask("getComputedStyle(document.querySelector('figure svg text')).fill")
    page = visit.ask("getComputedStyle(document.body).color")
    assert ink == page
    dark = visit.ask("matchMedia('(prefers-color-scheme: dark)').matches")
    assert (page == "rgb(230, 228, 223)") == dark
    assert visit.ask(
        "[...document.querySelectorAll('figure svg use')].every(u => "
        "document.querySelector(u.getAttribute('href')) !== null)"
    )


def test_a_link_to_a_run_opens_its_config(visit: Visit):
    visit.ask("document.querySelectorAll('details').forEach(d => { d.open = false })")
    visit.ask("location.hash = '#run-1'")
    visit.page.wait_for_function("document.querySelector('#run-1').checkVisibility()")
    assert "[task]" in visit.page.inner_text("#run-1")


def test_a_hostile_name_is_only_text(visit: Visit):
    visit.ask(OPEN_ALL)
    assert visit.ask("document.scripts.length") == 0
    assert visit.ask("document.querySelectorAll('img').length") == 0
    assert "document.title='hit'" in visit.page.inner_text("main")


def test_keyboard_reaches_the_tables(visit: Visit):
    reached = visit.ask(
        "[...document.querySelectorAll('.scroll')].every(e => e.tabIndex === 0 && "
        "(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')))"
    )
    assert reached


def test_prints_light_and_whole(browser: Any, report: Path):
    visit = Visit(browser, report, 720, "dark")
    visit.page.emulate_media(media="print")
    assert visit.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert visit.ask("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert visit.ask("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    assert visit.ask(OVERFLOW) == 0
    assert visit.page.pdf(format="A4").startswith(b"%PDF-")
    visit.context.close()
    assert visit.complaints == []
