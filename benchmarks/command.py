"""What the command lines here share: how they end, and how they fill a page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from paper.pages import filled
from roann.lab.exits import CTRL_C, OK, USAGE


def run(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    work: Callable[[argparse.Namespace], None],
    *mistakes: type[Exception],
) -> int:
    """Parse and work; returns the exit code. A mistake, such as a missing file, is one line."""
    expected: tuple[type[Exception], ...] = (OSError, *mistakes)
    try:
        work(parser.parse_args(argv))
    except SystemExit as end:  # argparse has said why
        return int(end.code or OK)
    except expected as error:
        print(f"{parser.prog.removeprefix('python -m ')}: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return CTRL_C
    return OK


def fill(page: Path, blocks: Mapping[str, str]) -> None:
    """Write tables between the markers of a page of the documentation."""
    page.write_text(filled(page.read_text(encoding="utf-8"), blocks), encoding="utf-8")
