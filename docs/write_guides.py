"""Write the guides in docs/guides/ from the scripts in examples/: text, code, what it prints.

    python docs/write_guides.py                  # run all scripts, write all pages: minutes
    python docs/write_guides.py forecast         # one of them
    python docs/write_guides.py --keep-output    # after a change of text alone: run nothing

A script is a list of cells. A cell begins with `# %%`; its first comment is text in Markdown, the
rest is code. The page shows both, and below the code what it printed. Pictures are files that the
code saves in the current directory; they are copied to docs/guides/.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS, PAGES = ROOT / "examples", ROOT / "docs" / "guides"
MARK = "# %%\n"
PRINTED = re.compile(r"\n```text\n(.*?)```\n", re.DOTALL)


class Cell(NamedTuple):
    """Text in Markdown and the code below it; either may be empty."""

    text: str
    code: str


def names() -> list[str]:
    """The scripts that are guides, in alphabetical order."""
    return sorted(p.stem for p in SCRIPTS.glob("*.py") if p.read_text("utf-8").startswith(MARK))


def cells(name: str) -> list[Cell]:
    """The cells of a script."""
    found = []
    for part in (SCRIPTS / f"{name}.py").read_text("utf-8").split(MARK)[1:]:
        lines = part.splitlines()
        end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
        text = "\n".join(line[2:] for line in lines[:end])
        found.append(Cell(text.strip(), "\n".join(lines[end:]).strip("\n")))
    return found


def run(name: str) -> list[str]:
    """What each cell prints; pictures are written to the current directory."""
    path, printed = SCRIPTS / f"{name}.py", []
    namespace = {"__name__": "__main__", "__file__": str(path)}
    for cell in cells(name):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(cell.code, str(path), "exec"), namespace)
        printed.append(out.getvalue())
    return printed


def page(name: str, printed: list[str]) -> str:
    """The page of a script whose cells printed this."""
    parts = [f"<!-- Written by docs/write_guides.py from examples/{name}.py: edit that file. -->"]
    for cell, output in zip(cells(name), printed, strict=True):
        parts += [cell.text] if cell.text else []
        parts += [f"```python\n{cell.code}\n```"] if cell.code else []
        parts += [f"```text\n{output.rstrip()}\n```"] if output.strip() else []
    parts.append(f"*All of the code: `examples/{name}.py`.*")
    return "\n\n".join(parts) + "\n"


def shown(name: str) -> list[str]:
    """What the committed page says that each cell prints."""
    text, printed = (PAGES / f"{name}.md").read_text("utf-8"), []
    for cell in cells(name):
        output = ""
        if cell.code:
            block = f"```python\n{cell.code}\n```\n"
            if block not in text:
                raise SystemExit(f"{name}: the code has changed; run docs/write_guides.py {name}")
            text = text.partition(block)[2]
            found = PRINTED.match(text)
            output = found.group(1) if found else ""
        printed.append(output)
    return printed


def write(name: str, keep_output: bool) -> None:
    """Write one page, and run its script first unless told not to."""
    began = time.perf_counter()
    if keep_output:
        printed = shown(name)
    else:
        import matplotlib

        matplotlib.use("Agg")
        matplotlib.rcParams.update({"svg.hashsalt": "roann", "svg.fonttype": "none"})
        os.environ["SOURCE_DATE_EPOCH"] = "0"  # the same bytes for the same picture
        sys.argv = [str(SCRIPTS / f"{name}.py")]
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            printed = run(name)
            for picture in Path(folder).glob("*.svg"):
                shutil.copy(picture, PAGES)
    (PAGES / f"{name}.md").write_text(page(name, printed), encoding="utf-8")
    print(f"{name}: {time.perf_counter() - began:.0f} s")


def main() -> None:
    """Write the pages that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help="guides; all if none is named")
    parser.add_argument("--keep-output", action="store_true", help="run nothing")
    given = parser.parse_args()
    for name in given.names or names():
        write(name, given.keep_output)


if __name__ == "__main__":
    main()
