"""Sections and exhibits to one HTML file that needs nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from roann import __version__
from roann.lab.figures.style import duration
from roann.lab.figures.svg import inline_svg
from roann.lab.files import replace_file
from roann.lab.progress import counted, printable
from roann.lab.report.exhibits import Exhibit, exhibits_of, score_name, score_text
from roann.lab.report.results import Arm
from roann.lab.report.runs import ReportError, Run, load_runs
from roann.lab.report.summary import Section, sections_of


def write_report(
    places: Iterable[Path], out: Path, *, title: str = "Random orthogonal additive networks"
) -> Path:
    """Write one self-contained HTML page about runs; the same runs give the same bytes.

    `places` are run directories, or hold some at any depth; `out` is replaced whole or not at all.
    """
    if out.is_dir():
        raise ReportError(f"{out} is a directory; name the file to write, such as report.html.")
    page = render(load_runs(places), title=title)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page.encode())
    return out


def render(runs: Sequence[Run], *, title: str) -> str:
    """The page as text."""
    sections = sections_of(runs)
    anchors = {id(run): f"run-{place}" for place, run in enumerate(runs, 1)}
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("roann.lab", "report"),
        autoescape=True,
        finalize=_inert,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "anchor": lambda run: anchors[id(run)],
        "count": lambda number: "–" if not isinstance(number, int) else f"{number:,}",
        "counted": counted,
        "duration": lambda seconds: _powers(duration(seconds)),
        "powers": _powers,
        "score": lambda value, goal: _powers(score_text(goal.score, value)),
        "score_name": score_name,
    }
    numbers = count(1)
    return environment.get_template("report.html.j2").render(
        title=title,
        version=__version__,
        runs=runs,
        cards=[(section, arm) for section in sections for arm in _leading(section)],
        sections=sections,
        galleries=[_gallery(exhibits_of(section), numbers) for section in sections],
        environments=_environments(runs),
    )


def _inert(value: object) -> object:
    """Clean a value for the page: no control characters, no bidirectional overrides."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_POWER = re.compile(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")


def _powers(text: str) -> Markup:
    """Powers of ten with real superscripts, which every font has."""
    safe = str(escape(printable(text)))
    return Markup(_POWER.sub(lambda m: f"10<sup>{m[1].translate(_DIGITS)}</sup>", safe))


def _leading(section: Section) -> list[Arm]:
    """The arm with the best score, one of ours where there is one; none if none has a score."""
    scored = [arm for arm in section.arms if arm.best is not None]
    ours = [arm for arm in scored if arm.label.startswith("roa-")] or scored
    best = section.goal.best([arm.best for arm in ours if arm.best is not None])
    return [arm for arm in ours if arm.best == best][:1]


def _gallery(exhibits: Sequence[Exhibit], numbers: Iterator[int]) -> list[dict[str, Any]]:
    """Figures in two columns, then the wide ones; a single one has its caption at its side."""
    narrow = sum(not exhibit.wide for exhibit in exhibits)
    gallery = []
    for place, exhibit in enumerate(sorted(exhibits, key=lambda exhibit: exhibit.wide), 1):
        number = next(numbers)
        kind = "lone" if place == narrow and narrow % 2 else ""
        svg = inline_svg(exhibit.figure, f"f{number}", f"{exhibit.title}. {exhibit.caption}")
        shown = {"title": exhibit.title, "caption": exhibit.caption, "number": number}
        gallery.append(shown | {"kind": "wide" if exhibit.wide else kind, "svg": Markup(svg)})
    return gallery


def _environments(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Each distinct environment once, with how many runs had it."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.env, sort_keys=True), []).append(run)
    return [
        {
            "runs": "all runs" if len(groups) == 1 else counted(len(group), "run"),
            "facts": [
                (str(key), value if isinstance(value, str) else json.dumps(value))
                for key, value in group[0].env.items()
            ],
        }
        for group in groups.values()
        if group[0].env
    ]
