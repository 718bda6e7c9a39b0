"""`roann reproduce`: the paper's figures and tables, and studies around them, from scratch.

Runs go to `runs/<scale>/<figure>/<name>/`, and can be stopped and started again at any time. What
they measured goes to small records, `results/<figure>/<name>.jsonl`, and from these records alone
the pages are written: `results/report.html`, `docs/reproduction.md` and a table in `README.md`.
The scale "quick" leaves those places alone: its records and its report are in `runs/quick/`.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roann.lab.config import ConfigError, Experiment
from roann.lab.reproduce import plan
from roann.lab.reproduce.collect import collect, note_source

_log = logging.getLogger(__name__)
# Without training: modules with a `main`, imported when called.
_STUDIES = {"bounds": "roann.lab.reproduce.bounds", "fig4": "roann.lab.reproduce.digit"}
_COLLECT, _PAGES = "collect", "pages"


@dataclass(frozen=True)
class Places:
    """Where everything is.

    Attributes:
        runs: holds run directories, by figure.
        results: holds records, by figure.
        experiments: holds the experiment files.
    """

    runs: Path
    results: Path
    experiments: Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code: 0, or 75 if runs are left to come back to."""
    options = _parser().parse_args(argv)
    of_full = {_COLLECT, _PAGES}
    scale: plan.Scale = options.scale or ("full" if of_full >= {*options.figures} else "quick")
    if scale == "quick" and _PAGES in options.figures:
        raise ConfigError(
            "The pages are written from the records of the full scale: leave out `pages`, or say "
            "--scale full."
        )
    root = options.root / scale
    results = options.results or (Path("results") if scale == "full" else root / "results")
    places = Places(root, results, options.experiments)
    everything = "all" in options.figures
    names = _chosen(options.figures, scale)
    chosen = {
        name: plan.experiments(name, scale, places.experiments, options.only)
        for name in names
        if name in plan.FIGURES
    }
    if options.only and chosen and not any(chosen.values()):
        raise ConfigError(
            f"--only {' '.join(options.only)} matches no run of {', '.join(options.figures)}: "
            "--dry-run without --only lists them."
        )
    if options.dry_run:
        for name, cells in chosen.items():
            for cell in cells:
                print(f"{name}/{cell}{_ending(places, name, cell)}")
        return 0
    left = 0
    for name in names:
        if name in _STUDIES:
            study: Callable[..., None] = importlib.import_module(_STUDIES[name]).main
            study(scale, places.results / name)
        else:
            left += _train(name, chosen[name], places, options.jobs)
    if _COLLECT in options.figures:
        _collect(places)
    _write_pages(scale, places, pages=_PAGES in options.figures or (everything and scale == "full"))
    return 75 if left else 0


def _chosen(words: Sequence[str], scale: plan.Scale) -> list[str]:
    """The figures and studies that the words of a command line ask for, in the plan's order."""
    every = [*plan.FIGURES, *_STUDIES]
    if "all" not in words:
        return [name for name in every if name in words]
    ours = [name for name, figure in plan.FIGURES.items() if figure.ours and scale == "quick"]
    return [name for name in every if name in words or name not in ours]


def _parser() -> argparse.ArgumentParser:
    words = [*plan.FIGURES, *_STUDIES, "all", _COLLECT, _PAGES]
    parser = argparse.ArgumentParser(
        prog="roann reproduce",
        description="Make the paper's figures and tables from scratch. Safe to stop (Ctrl-C) and "
        "to start again: what has ended is not run twice, what has not is resumed. `collect` "
        "makes records of what there is, also of runs under way, and keeps what another machine "
        "needs to go on with these in results/unfinished/, where a run looks before it begins; "
        "`pages` writes docs/reproduction.md and the table in README.md from the records. At the "
        "quick scale `all` is what is in the paper; the other studies are run by name.",
    )
    parser.add_argument(
        "figures", nargs="+", choices=words, metavar="FIGURE", help=", ".join(words)
    )
    parser.add_argument(
        "--scale",
        choices=("quick", "full"),
        help="quick (the default, but for collect and pages): one seed, shorter; full: the paper's "
        "setting, with fewer seeds or steps where docs/reproduction.md says so",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="how many runs at a time; those that wall time ends run one by one",
    )
    parser.add_argument(
        "--only", nargs="+", default=(), metavar="NAME", help="only runs whose names contain this"
    )
    parser.add_argument("--root", type=Path, default=Path("runs"), help="where runs are made")
    parser.add_argument("--results", type=Path, help="where records are written")
    parser.add_argument("--experiments", type=Path, default=Path("experiments"))
    parser.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    return parser


def _train(figure: str, cells: dict[str, Experiment], places: Places, jobs: int) -> int:
    """Bring the runs of a figure to their end and collect them; returns how many are left."""
    from roann.lab import sweep
    from roann.lab.reproduce.ends import probe_ends
    from roann.lab.reproduce.handover import keep, take_up
    from roann.lab.run import Stop, prepare, result_of

    folders = {places.runs / figure / name: cell for name, cell in _with_data(cells).items()}
    for folder, cell in folders.items():
        take_up(folder, cell, places.results)
        prepare(folder, cell)
        if result_of(folder) is None:
            note_source(folder)
    stop = Stop()
    with stop.listening():
        statuses: dict[Path, str] = {}
        for group, most in _turns(folders, jobs):
            statuses |= sweep.run_all(group, most, stop)
        for folder, cell in folders.items():
            if plan.FIGURES[figure].ends and cell.train.seed == 0 and not stop.number:
                probe_ends(folder)
    for folder in folders:
        collect(folder, places.results / figure)
        if result_of(folder) is not None:
            keep(folder, places.results)
    _tell(figure, statuses)
    stop.poll()
    return len(cells) - sum(status in sweep.ENDED for status in statuses.values())


def _collect(places: Places) -> None:
    """Records of all runs there are, and what goes on of those that have not ended."""
    from roann.lab.reproduce.handover import keep

    for folder in sorted(path.parent for path in places.runs.glob("*/*/config.toml")):
        collect(folder, places.results / folder.parent.name)
        keep(folder, places.results)


def _turns(
    folders: dict[Path, Experiment], jobs: int
) -> Iterator[tuple[dict[Path, Experiment], int]]:
    """The runs in groups, with how many at a time: those that wall time ends run one by one.

    They go seed by seed, so that no system has all its runs in one slow minute of the machine.
    """
    timed = {
        folder: cell
        for folder, cell in folders.items()
        if cell.train.max_seconds is not None and cell.train.clock == "wall"
    }
    if timed:
        yield dict(sorted(timed.items(), key=lambda item: item[1].train.seed)), 1
    rest = {folder: cell for folder, cell in folders.items() if folder not in timed}
    if rest:
        yield rest, jobs


def _with_data(cells: dict[str, Experiment]) -> dict[str, Experiment]:
    """The runs whose data are here; what is missing is said."""
    from roann.lab.data import DataError, find_mnist

    try:
        find_mnist()
    except DataError as error:
        there = {name: cell for name, cell in cells.items() if "mnist" not in cell.task_name}
        if len(there) < len(cells):
            _log.warning("%d runs are left out: %s", len(cells) - len(there), error)
        return there
    return cells


def _tell(figure: str, statuses: dict[Path, str]) -> None:
    for folder, status in statuses.items():
        print(f"{status:>11}  {figure}/{folder.name}")
    sys.stdout.flush()


def _ending(places: Places, figure: str, name: str) -> str:
    from roann.lab.run import result_of

    result: dict[str, Any] | None = result_of(places.runs / figure / name)
    return "" if result is None else f"  ({result['status']})"


def _write_pages(scale: plan.Scale, places: Places, pages: bool) -> None:
    """The report from the records and, when asked for, the two pages of text."""
    from roann.lab.reproduce.pages import write_pages, write_report

    report = write_report(places.results, scale)
    if report is None:
        _log.warning("There are no records in %s yet.", places.results)
    else:
        print(report)
    if pages:
        for path in write_pages(places.results, Path("docs/reproduction.md"), Path("README.md")):
            print(path)
