"""The command `roann`, also as `python -m roann.lab`.

Nothing of the extra `lab` is imported at the top, so that a message can say that it is missing.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from roann.lab.exits import USAGE


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # In an encoding that lacks a character, its code is printed in its place.
            stream.reconfigure(errors="backslashreplace")
    # Read when torch is loaded: it would warn of a flag that `roann.lab.distributed` needs.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        from roann.lab import cli

        return cli.main(argv)
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "roann":
            raise  # a bug in roann
        print(
            f"roann: the command needs the extra 'lab' ({error}); "
            "install it with: python -m pip install 'roann[lab]'",
            file=sys.stderr,
        )
        return USAGE


if __name__ == "__main__":
    sys.exit(main())
