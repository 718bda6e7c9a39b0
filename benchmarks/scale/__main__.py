"""`python -m benchmarks.scale`: measure on this machine, write a record, fill the page."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import command, machine
from benchmarks.record import RecordError, SkippedError
from benchmarks.scale import runs, steps, tables

SCHEMA = 2
PAGE = Path("docs/scale.md")


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure or write; returns the exit code."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # for the processes it starts
    return command.run(_parser(), argv, _work, RecordError)


def _work(args: argparse.Namespace) -> None:
    if args.write_docs:
        record, page = args.write_docs
        command.fill(page, tables.blocks(read(record)))
    else:
        _measure(args.quick, args.passes, args.out)


def _parser() -> argparse.ArgumentParser:
    words = "Measure what more processes and more runs at a time bring, in some minutes."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=words)
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes: to see that it works, not how fast")
    add("--passes", type=_count, default=3, help="how often to measure all updates (default: 3)")
    words = "where the record goes (default: results/bench)"
    add("--out", type=Path, default=Path("results/bench"), metavar="DIR", help=words)
    words = f"measure nothing; fill the tables of a page, as {PAGE}, from a record"
    add("--write-docs", nargs=2, type=Path, metavar=("RECORD", "PAGE"), help=words)
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 100, got {text!r:.60}")
    return int(text)


def _measure(quick: bool, passes: int, out: Path) -> None:
    settings: dict[str, Any] = {"quick": quick, "jobs": runs.JOBS}
    settings |= {"passes": 1 if quick else passes, "updates": 2 if quick else 4}
    settings |= {"runs": [2, 4] if quick else [10, 50], "steps": 20 if quick else 50}
    settings |= {"checkpoint_every": 20 if quick else 600}
    record: dict[str, Any] = {"schema": SCHEMA, "environment": machine.describe()}
    record |= {"settings": settings, "steps": {}, "sweeps": {}, "kill": {}, "skipped": {}}
    out.mkdir(parents=True, exist_ok=True)  # before minutes of work, not after
    if tables.is_busy(record["environment"]):
        print("benchmarks.scale: other programs run; measure on an idle machine", file=sys.stderr)
    for _ in range(settings["passes"]):
        _add_steps(record, quick)
    with tempfile.TemporaryDirectory() as folder:
        _add_runs(record, Path(folder))
    words = machine.slug(record["environment"]["cpu"])
    small = "-quick" if quick else ""
    path = out / f"scale-{words}-{record['environment']['cores']}c{small}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(tables.text(record))
    print(f"benchmarks.scale: written to {path}", file=sys.stderr)


def _add_steps(record: dict[str, Any], quick: bool) -> None:
    """One pass through all cases and ways; samples of earlier passes are kept."""
    for name, case in steps.CASES.items():
        small = {"T": 30, "B": 8, "N": 16, "rho": case.rho * 30 / case.T}  # the same alpha
        here = replace(case, **small) if quick else case
        ways = record["steps"].setdefault(name, {})
        for way in steps.WAYS:
            start = time.perf_counter()
            found = steps.measure(here, way, record["settings"]["updates"])
            found["samples"] = ways.get(way.name, {"samples": []})["samples"] + found["samples"]
            ways[way.name] = found
            print(f"{name}: {way.name}: {time.perf_counter() - start:.1f} s", file=sys.stderr)


def _add_runs(record: dict[str, Any], folder: Path) -> None:
    settings = record["settings"]
    for engine in runs.ENGINES:
        start = time.perf_counter()
        try:
            sizes = [runs.sweep(engine, n, settings["steps"], folder) for n in settings["runs"]]
            record["sweeps"][engine] = sizes
        except SkippedError as why:
            record["skipped"][f"sweep, {engine}"] = str(why)
        print(f"sweeps, {engine}: {time.perf_counter() - start:.1f} s", file=sys.stderr)
    try:
        record["kill"] = runs.kill(settings["checkpoint_every"], folder)
    except SkippedError as why:
        record["skipped"]["kill"] = str(why)


def read(path: Path) -> dict[str, Any]:
    """The record of a file."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["schema"] == SCHEMA and {"steps", "sweeps", "kill"} <= record.keys():
            return dict(record)
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError):
        pass
    raise RecordError(
        f"{path}: expected a record of benchmarks.scale of schema {SCHEMA}; measure again with "
        "this version"
    )


if __name__ == "__main__":
    sys.exit(main())
