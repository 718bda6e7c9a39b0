"""`python -m benchmarks.real`: the command line."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

import roann
from benchmarks import command
from benchmarks.real import epochs, minirocket, records, tables
from benchmarks.real.sets import FORECAST, SETS, Set
from benchmarks.real.systems import DRAW_NOTHING, SEARCHED, SYSTEMS, score, takes
from roann.lab.exits import LabError

Done = set[tuple[str, str, int]]
"""Sets, systems and seeds that have a record."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure or write; returns the exit code."""
    return command.run(_parser(), argv, _work, ValueError, LabError)


def _work(args: argparse.Namespace) -> None:
    if args.write_docs:
        command.fill(args.write_docs, tables.blocks(records.read(args.out), epochs.read(args.out)))
    else:
        _run(args)


def _parser() -> argparse.ArgumentParser:
    words = "Compare roann with other systems on real series; write records."
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real", description=words)
    add = parser.add_argument
    words = "directory with ucr/ (.ts and .csv files) and the Free Spoken Digits"
    add("--data", type=Path, metavar="DIR", default=Path(), help=words)
    words = f"out of: {', '.join(SETS)} (default: all but digits-samples)"
    usual = [name for name in SETS if name != "digits-samples"]
    add("--sets", nargs="+", choices=list(SETS), metavar="SET", default=usual, help=words)
    words = f"out of: {', '.join(SYSTEMS)} (default: all)"
    add("--systems", nargs="+", choices=list(SYSTEMS), metavar="SYSTEM", default=list(SYSTEMS),
        help=words)  # fmt: skip
    add("--seeds", type=int, default=3, help="seeds of each system (default: 3)")
    words = "measure again what has a record; the default is to continue with what has none"
    add("--again", action="store_true", help=words)
    add("--epochs", type=int, help="train networks for as many epochs in place of the set's")
    words = "only measure what an epoch of the networks costs, on a tenth of the series"
    add("--one-epoch", action="store_true", help=words)
    add("--threads", type=int, default=1, help="threads of torch (default: 1)")
    words = "a Python that has aeon, to run MiniRocket with"
    add("--aeon", type=Path, metavar="PYTHON", help=words)
    words = "directory of the records (default: results/real)"
    add("--out", type=Path, default=Path("results/real"), metavar="DIR", help=words)
    words = "measure nothing; write the tables of this page from the records"
    add("--write-docs", type=Path, metavar="PAGE", help=words)
    return parser


def _run(args: argparse.Namespace) -> None:
    torch.set_num_threads(args.threads)
    about = {"roann": roann.__version__, "torch": torch.__version__, "threads": args.threads}
    SEARCHED.clear()
    rows = [] if args.again else records.read(args.out)
    done = {(row["set"], row["system"], row["seed"]) for row in rows}
    for row in rows:  # a search for a learning rate is done once
        tried = row.get("chosen", {}).get("validation", {}).items()
        if tried:
            SEARCHED[row["system"], row["set"]] = {float(rate): value for rate, value in tried}
    for name in args.sets:
        data = SETS[name](args.data)
        if args.epochs is not None:
            data = replace(data, epochs=args.epochs)
        if args.one_epoch:
            for system in (s for s in args.systems if s in tables.NETWORKS):
                epochs.add(args.out, epochs.measure(data, system))
            continue
        for row in _rows(data, args, done):
            records.add(args.out, [row | about])
            said = f"{name}, {row['system']}, seed {row['seed']}: {row['score']:.4f}"
            print(f"{said} in {row['seconds']:.1f} s", file=sys.stderr, flush=True)


def _rows(data: Set, args: argparse.Namespace, done: Done) -> Iterator[records.Row]:
    """What is measured, one by one; nothing that is done."""
    about = {"set": data.name, "kind": data.kind}
    if args.aeon is not None and data.files is not None and data.kind != FORECAST:
        wanted = {(data.name, minirocket.NAME, seed) for seed in range(args.seeds)}
        if wanted - done:
            for row in minirocket.run(args.aeon, data.kind, data.files, args.seeds):
                yield about | {"system": minirocket.NAME} | row
    for system in args.systems:
        if not takes(system, data.kind):
            continue
        for seed in range(1 if system in DRAW_NOTHING else args.seeds):
            if (data.name, system, seed) in done:
                continue
            yield about | {"system": system} | _one(data, system, seed)


def _one(data: Set, system: str, seed: int) -> records.Row:
    start = time.perf_counter()
    fit = SYSTEMS[system](data, seed)
    # A network's search takes place in its first fit, and is not a part of its own.
    seconds = time.perf_counter() - start - fit.searched
    row: dict[str, Any] = {"seed": seed, "score": score(data, fit.answers), "seconds": seconds}
    return row | {"parameters": fit.parameters, "chosen": fit.chosen}


if __name__ == "__main__":
    sys.exit(main())
