"""`python -m benchmarks`: the command line."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import document, machine, table
from benchmarks.cases import CASES
from benchmarks.plan import Plan
from benchmarks.record import Record, read

OK, USAGE, CTRL_C = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure or write; returns the exit code."""
    parser = _parser()
    try:
        args = parser.parse_args(argv)
        if args.write_docs:
            return _write_docs(parser, *map(Path, args.write_docs))
        return _measure(args)
    except SystemExit as end:  # argparse has said why
        return end.code if isinstance(end.code, int) else USAGE
    except OSError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return CTRL_C


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure speed and memory; print tables, write a record.",
    )
    add, names = parser.add_argument, list(CASES)
    words = f"what to measure, out of: {', '.join(names)} (default: all)"
    add("--cases", nargs="+", choices=names, metavar="NAME", default=names, help=words)
    add("--quick", action="store_true", help="small sizes: to see that it works, not how fast")
    words = "where the record goes (default: results/bench)"
    add("--out", type=Path, default=Path("results/bench"), metavar="DIR", help=words)
    words = "measure nothing; write the tables of a page of the documentation from a record"
    add("--write-docs", nargs=2, metavar=("RECORD", "PAGE"), help=words)
    return parser


def _measure(args: argparse.Namespace) -> int:
    threads = machine.set_up()
    passes, rounds = (1, 2) if args.quick else (3, 3)
    plan = Plan(rounds, threads, args.quick)
    cases = list(dict.fromkeys(args.cases))
    settings = {"passes": passes, "rounds": rounds, "threads": threads, "quick": args.quick}
    settings |= {"cases": cases}
    record = Record(machine.describe(), settings, skipped=plan.skipped)
    args.out.mkdir(parents=True, exist_ok=True)  # before hours of work, not after
    for name in cases * passes:
        start = time.perf_counter()
        record.add(CASES[name](plan))
        print(f"benchmarks: {name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    path = args.out / f"{stem(record)}.json"
    path.write_text(record.to_json(), encoding="utf-8")
    print(table.text(record))
    print(f"benchmarks: written to {path}", file=sys.stderr)
    return OK


def stem(record: Record) -> str:
    """A file name: the processor, the threads, and the cases where they are not all.

    So a part measured again does not take the place of the whole.
    """
    cpu = re.sub(r"\(r\)|\(tm\)", "", record.environment["cpu"].lower())
    words = re.sub(r"[^a-z0-9]+", "-", cpu).strip("-") or "unknown"
    part = [] if set(record.settings["cases"]) == set(CASES) else record.settings["cases"]
    marks = [f"{record.settings['threads']}t", *(["quick"] if record.quick else []), *part]
    return "-".join([words, *marks])


def _write_docs(parser: argparse.ArgumentParser, record: Path, page: Path) -> int:
    try:
        found = read(record)
    except ValueError as error:
        parser.error(f"{record}: {error}")
    from paper.pages import filled

    text = filled(page.read_text(encoding="utf-8"), document.blocks(found))
    page.write_text(text, encoding="utf-8")
    print(f"benchmarks: {page} written from {record}", file=sys.stderr)
    return OK


if __name__ == "__main__":
    sys.exit(main())
