"""`python -m paper`: make the runs, collect records, write the tables and pictures.

Exit codes: 0 ok, 2 usage, 75 runs are left to resume, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from paper import ROOT, bounds, figures, plan
from paper.collect import BOUNDS, ENDS, collect, note_source, read_records
from paper.pages import filled, markdown
from paper.tables import SPECS, from_spec, spectra, tables
from roann.lab import checkpoint, records, run, sweep
from roann.lab.config import ConfigError, Experiment
from roann.lab.data import DataError, find_mnist
from roann.lab.exits import INTERRUPTED, OK, LabError
from roann.lab.figures import save
from roann.lab.files import replace_file
from roann.lab.probe import probe
from roann.lab.progress import logging_to_stderr
from roann.lab.run_context import CHECKPOINTS
from roann.lab.stop import Stop

_log = logging.getLogger("roann.paper")
PAGES = ("paper/findings.md", "README.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    args = _parser().parse_args(argv)
    try:
        with logging_to_stderr(logging.INFO):
            if args.verb == "run":
                return _run(args)
            if args.verb == "collect":
                for config in sorted((ROOT / "runs/full").glob("*/*/config.toml")):
                    collect(config.parent, ROOT / "results")
            else:
                found = read_records(ROOT / "results")
                made = tables(found)
                blocks = {name: markdown(table) for name, table in made.items()}
                for page in (ROOT / name for name in PAGES):
                    replace_file(page, filled(page.read_text(encoding="utf-8"), blocks).encode())
                for name, figure in figures.pictures(found).items():
                    save(figure, ROOT / "docs/images" / name)
    except LabError as error:
        print(f"paper: {error}", file=sys.stderr)
        return error.code
    return OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    runs = verbs.add_parser("run", help="finish the runs of some figures and collect them")
    known = [*plan.FIGURES, "bounds", "all"]
    runs.add_argument("figures", nargs="*", default="all", choices=known, metavar="FIGURE",
                      help=", ".join(known))  # fmt: skip
    runs.add_argument("--jobs", type=int, default=1, help="runs at a time")
    runs.add_argument("--only", nargs="+", default=(), help="only runs whose names contain this")
    runs.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    words = "quick: one seed, shorter, the paper's figures; full: plan.toml (default: quick)"
    runs.add_argument("--scale", choices=("quick", "full"), default="quick", help=words)
    verbs.add_parser("collect", help="thin every run directory (full) to its record")
    verbs.add_parser("tables", help="write the tables and pictures of the pages from the records")
    return parser


def _run(args: argparse.Namespace) -> int:
    every, quick = "all" in args.figures, args.scale == "quick"
    usual = [f for f, row in plan.FIGURES.items() if every and not (quick and row.get("own"))]
    names = [f for f in plan.FIGURES if f in [*usual, *args.figures]]
    chosen = {f: plan.experiments(f, args.scale, ROOT / "experiments", args.only) for f in names}
    if args.only and names and not any(chosen.values()):
        raise ConfigError(f"--only {' '.join(args.only)} matches no run; --dry-run lists them.")
    if args.dry_run:
        print("\n".join(f"{f}/{cell}" for f, cells in chosen.items() for cell in cells))
        return OK
    runs = ROOT / "runs" / args.scale
    results = runs / "results" if quick else ROOT / "results"
    left = sum(_train(f, cells, runs, results, args.jobs) for f, cells in chosen.items())
    if every or "bounds" in args.figures:
        bounds.main(quick, results / BOUNDS)
    if quick:
        found = read_records(results)
        made = [from_spec(found, SPECS[f]) for f in names if f in SPECS]
        made += [spectra(found)] if found["bounds"] else []
        print("\n".join(map(markdown, made)))
    return INTERRUPTED if left else OK


def _train(figure: str, cells: dict[str, Experiment], runs: Path, results: Path, jobs: int) -> int:
    """Finish the runs of a figure and collect them; returns how many are left."""
    folders = {runs / figure / name: cell for name, cell in _with_data(cells).items()}
    timed = plan.FIGURES[figure].get("timed", False)
    if timed:  # one by one, seed by seed: no system has all its runs in one slow minute
        folders = dict(sorted(folders.items(), key=lambda item: item[1].train.seed))
    for folder, cell in folders.items():
        run.prepare(folder, cell)
        if run.result_of(folder) is None:
            note_source(folder)
    stop = Stop()
    with stop.listening():
        statuses = sweep.run_all(folders, 1 if timed else jobs, stop)
        for folder, cell in folders.items():
            if timed and cell.train.seed == 0 and not stop.number:
                _probe_ends(folder, cell)
    for folder in folders:
        collect(folder, results)
    stop.poll()
    return len(cells) - sum(status in sweep.ENDED for status in statuses.values())


def _with_data(cells: dict[str, Experiment]) -> dict[str, Experiment]:
    """The runs whose data are here; what is missing is logged."""
    there = {name: cell for name, cell in cells.items() if "mnist" not in cell.task_name}
    try:
        if len(there) < len(cells):
            find_mnist()
    except DataError as error:
        _log.warning("%d runs are left out: %s", len(cells) - len(there), error)
        return there
    return cells


def _probe_ends(folder: Path, cell: Experiment) -> None:
    """Probe the model of a run as it began and as it ended, once, outside its wall time."""
    result, found = run.result_of(folder), checkpoint.newest(folder / CHECKPOINTS, touch=False)
    if result is None or found is None or (folder / ENDS).exists():
        return
    run.set_up(cell.train.threads, cell.train.seed)
    task, model = run.build(cell)
    about = {"kind": "probe", "epoch": None, "seconds": None}
    lines = [about | {"step": 0} | probe(task, model, cell.train.seed)]
    checkpoint.unpack(found.tensors, model, None)
    if result["status"] != "diverged":
        lines.append(about | {"step": found.step} | probe(task, model, cell.train.seed))
    replace_file(folder / ENDS, records.encoded(*lines))


if __name__ == "__main__":
    sys.exit(main())
