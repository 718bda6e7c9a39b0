"""`python -m paper`: make the runs, collect records, write the tables, draw the report.

Exit codes: 0 ok, 2 usage, 75 runs are left to resume, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paper import ROOT, bounds, plan, run
from paper.collect import BOUNDS, read_book
from paper.pages import filled, markdown
from paper.tables import SPECS, from_spec, tables
from roann.lab.checkpoint import replace_file
from roann.lab.config import ConfigError
from roann.lab.progress import logging_to_stderr
from roann.lab.report import ReportError, render
from roann.lab.run import InterruptedRun

PAGES = ("paper/findings.md", "README.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    parser.add_argument("verb", choices=("run", "collect", "tables", "report"), help="run: finish "
                        "the runs of some figures; collect: thin every run directory to its "
                        "record; tables: write the generated tables of the pages; report: draw "
                        "all records in one HTML page")  # fmt: skip
    parser.add_argument("figures", nargs="*", default=["all"], metavar="FIGURE",
                        help=f"{', '.join([*plan.FIGURES, 'bounds'])}; default: all")  # fmt: skip
    parser.add_argument("--scale", choices=("quick", "full"), default="quick", help="quick: one "
                        "seed, shorter, the paper's figures; full: plan.toml")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--only", nargs="+", default=(), help="only runs whose names contain this")
    parser.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the report's file")
    args = parser.parse_args(argv)
    known = [*plan.FIGURES, "bounds"]
    if unknown := {*args.figures} - {*known, "all"}:
        parser.error(f"unknown figures {sorted(unknown)}; choose from {', '.join(known)}")
    try:
        with logging_to_stderr(logging.INFO):
            return _perform(args)
    except InterruptedRun as end:
        return 130 if end.number == signal.SIGINT else 75
    except (ConfigError, ReportError) as error:
        print(f"paper: {error}", file=sys.stderr)
        return 2


def _perform(args: argparse.Namespace) -> int:
    runs = ROOT / "runs" / args.scale
    results = ROOT / "results" if args.scale == "full" else runs / "results"
    if args.verb == "run":
        return _run(args, runs, results)
    if args.verb == "collect":
        for folder in sorted(path.parent for path in (ROOT / "runs/full").glob("*/*/config.toml")):
            run.keep(folder, ROOT / "results")
        return 0
    book = read_book(ROOT / "results" if args.verb == "tables" else results)
    if args.verb == "tables":
        made = {name: markdown(table) for name, table in tables(book)}
        for page in (ROOT / name for name in PAGES):
            replace_file(page, filled(page.read_text(encoding="utf-8"), made).encode())
        return 0
    every = [(f, r) for f in plan.FIGURES for arm in book[f].values() for r in arm.runs]
    placed = [replace(r, config={**r.config, "task": {**r.task, "in": plan.FIGURES[f]["title"]}})
              for f, r in every]  # fmt: skip
    replace_file(args.out, render(placed, title="The paper's experiments").encode())
    return 0


def _run(args: argparse.Namespace, runs: Path, results: Path) -> int:
    own = [f for f, figure in plan.FIGURES.items() if figure.get("own") and args.scale == "quick"]
    every = "all" in args.figures
    names = [f for f in plan.FIGURES if f in args.figures or (every and f not in own)]
    files = ROOT / "experiments"
    chosen = {f: plan.experiments(f, args.scale, files, args.only) for f in names}
    if args.only and names and not any(chosen.values()):
        raise ConfigError(f"--only {' '.join(args.only)} matches no run; --dry-run lists them.")
    if args.dry_run:
        print("\n".join(f"{f}/{cell}" for f, cells in chosen.items() for cell in cells))
        return 0
    left = sum(run.train(f, cells, runs, results, args.jobs) for f, cells in chosen.items())
    if every or "bounds" in args.figures:
        bounds.main(args.scale == "quick", results / BOUNDS)
    if args.scale == "quick":
        book = read_book(results)
        print("\n".join(markdown(from_spec(book, SPECS[f])) for f in names if f in SPECS))
    return 75 if left else 0


if __name__ == "__main__":
    sys.exit(main())
