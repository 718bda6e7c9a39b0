"""Exit codes of the command `roann`, and the error that carries one."""

from __future__ import annotations

OK, FAILED, USAGE, DIVERGED, DATA, INTERRUPTED, CTRL_C = 0, 1, 2, 3, 4, 75, 130


class LabError(Exception):
    """What the user can do something about: its message is printed, not a traceback.

    Attributes:
        code: the exit code of the command.
    """

    code: int = USAGE
