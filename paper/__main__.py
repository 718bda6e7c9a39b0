"""`python -m paper`: make the runs, collect records, write the tables.

Exit codes: 0 ok, 2 usage, 75 runs are left to resume, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

from paper import ROOT, bounds, plan, run
from paper.collect import BOUNDS, collect, read_records
from paper.pages import filled, markdown
from paper.tables import SPECS, from_spec, tables
from roann.lab.checkpoint import replace_file
from roann.lab.config import ConfigError
from roann.lab.progress import logging_to_stderr
from roann.lab.report import ReportError
from roann.lab.stop import InterruptedRun

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
                made = tables(read_records(ROOT / "results"))
                blocks = {name: markdown(table) for name, table in made.items()}
                for page in (ROOT / name for name in PAGES):
                    text = filled(page.read_text(encoding="utf-8"), blocks)
                    replace_file(page, text.encode())
    except InterruptedRun as end:
        return 130 if end.number == signal.SIGINT else 75
    except (ConfigError, ReportError) as error:
        print(f"paper: {error}", file=sys.stderr)
        return 2
    return 0


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
    verbs.add_parser("tables", help="write the tables of the pages from the records")
    return parser


def _run(args: argparse.Namespace) -> int:
    every, quick = "all" in args.figures, args.scale == "quick"
    results = ROOT / ("runs/quick/results" if quick else "results")
    own = [name for name, figure in plan.FIGURES.items() if figure.get("own") and quick]
    names = [f for f in plan.FIGURES if f in args.figures or (every and f not in own)]
    files = ROOT / "experiments"
    chosen = {f: plan.experiments(f, args.scale, files, args.only) for f in names}
    if args.only and names and not any(chosen.values()):
        raise ConfigError(f"--only {' '.join(args.only)} matches no run; --dry-run lists them.")
    if args.dry_run:
        print("\n".join(f"{f}/{cell}" for f, cells in chosen.items() for cell in cells))
        return 0
    runs = ROOT / "runs" / args.scale
    left = sum(run.train(f, cells, runs, results, args.jobs) for f, cells in chosen.items())
    if every or "bounds" in args.figures:
        bounds.main(quick, results / BOUNDS)
    if quick:
        records = read_records(results)
        print("\n".join(markdown(from_spec(records, SPECS[f])) for f in names if f in SPECS))
    return 75 if left else 0


if __name__ == "__main__":
    sys.exit(main())
