"""The command `roann`: from words to an exit code. `verbs` has the flags, `perform` the work."""

from __future__ import annotations

import errno
import logging
import os
import sys
import unicodedata
from collections.abc import Sequence

from roann.lab import verbs
from roann.lab.config import ConfigError
from roann.lab.exits import CTRL_C, INTERRUPTED, OK, USAGE, LabError
from roann.lab.launch import settle
from roann.lab.progress import logging_to_stderr, printable


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns its exit code."""
    return settle(_code(argv))


def _code(argv: Sequence[str] | None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    verbose = "-v" in args or "--verbose" in args
    try:
        if any(unicodedata.category(c) == "Cc" for word in args for c in word):
            raise ConfigError("an argument holds a control character.")
        verb = verbs.read(args)
        with logging_to_stderr(logging.WARNING if verb.quiet else logging.INFO):
            from roann.lab.perform import perform

            return perform(verb)
    except SystemExit as end:  # of tyro: help is 0, usage is 2
        return OK if end.code is None else end.code if isinstance(end.code, int) else USAGE
    except KeyboardInterrupt:
        return CTRL_C
    except BrokenPipeError:  # the reader of stdout has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except Exception as error:
        code = None if verbose else _exit_code(error)
        if code is None:
            raise
        print(f"roann: {printable(_words(error))}", file=sys.stderr)
        return code


def _exit_code(error: Exception) -> int | None:
    """The exit code of a user's mistake or of the machine's limits; None for a bug in roann."""
    if isinstance(error, LabError):
        return error.code
    if isinstance(error, OSError):
        return INTERRUPTED if error.errno in (errno.ENOSPC, errno.EDQUOT) else USAGE
    return USAGE if _out_of_memory(error) else None


def _out_of_memory(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "allocate memory" in str(error)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        hint = "; free some space, then resume" if error.errno == errno.ENOSPC else ""
        return f"{where}{error.strerror}{hint}."
    if _out_of_memory(error):
        return "this config needs more memory than there is; make the model or the batch smaller."
    return str(error)
