"""`python -m benchmarks`: the command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import command, machine, tables
from benchmarks.cases import CASES, QUICK_ROUNDS, ROUNDS
from benchmarks.record import Record, RecordError, SkippedError, read


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure or write; returns the exit code."""
    return command.run(_parser(), argv, _work, RecordError)


def _work(args: argparse.Namespace) -> None:
    if args.write_docs:
        record, page = args.write_docs
        blocks = tables.blocks(read(record))
        command.fill(page, blocks)
        print(f"benchmarks: {page} written from {record}", file=sys.stderr)
    else:
        _measure(args.cases, args.quick, args.passes, args.out)


def _parser() -> argparse.ArgumentParser:
    words = "Measure speed and memory; print tables, write a record."
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=words)
    add, names = parser.add_argument, list(CASES)
    words = f"what to measure, out of: {', '.join(names)} (default: all)"
    add("--cases", nargs="+", choices=names, metavar="NAME", default=names, help=words)
    add("--quick", action="store_true", help="small sizes: to see that it works, not how fast")
    add(
        "--passes",
        type=int,
        default=3,
        metavar="N",
        help="how often all cases are run (default: 3)",
    )
    words = "where the record goes (default: results/bench)"
    add("--out", type=Path, default=Path("results/bench"), metavar="DIR", help=words)
    words = "measure nothing; write the tables of a page of the documentation from a record"
    add("--write-docs", nargs=2, type=Path, metavar=("RECORD", "PAGE"), help=words)
    return parser


def _measure(names: Sequence[str], quick: bool, passes: int, out: Path) -> None:
    machine.set_up(machine.cores())
    cases, passes = list(dict.fromkeys(names)), 1 if quick else passes
    settings: dict[str, Any] = {"passes": passes, "rounds": QUICK_ROUNDS if quick else ROUNDS}
    settings |= {"threads": machine.cores(), "quick": quick, "cases": cases}
    record = Record(machine.describe(), settings)
    out.mkdir(parents=True, exist_ok=True)  # before hours of work, not after
    for name in cases * passes:
        start = time.perf_counter()
        try:
            record.add(CASES[name](quick))
        except SkippedError as why:
            record.skipped[name] = str(why)
        print(f"benchmarks: {name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    path = out / f"{stem(record)}.json"
    path.write_text(record.to_json(), encoding="utf-8")
    print(tables.text(record))
    print(f"benchmarks: written to {path}", file=sys.stderr)


def stem(record: Record) -> str:
    """A file name: the processor, the threads, and the cases where they are not all.

    So a part measured again does not take the place of the whole.
    """
    words = machine.slug(record.environment["cpu"])
    marks = [f"{record.settings['threads']}t", *["quick"] * record.settings["quick"]]
    cases = record.settings["cases"]
    return "-".join([words, *marks, *([] if set(cases) == set(CASES) else cases)])


if __name__ == "__main__":
    sys.exit(main())
