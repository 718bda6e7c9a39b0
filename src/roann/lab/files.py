"""Files of a run directory: written whole, read within limits, links never followed."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from roann.lab.exits import DATA, LabError

MAX_JSON = 10_000_000  # bytes of a JSON file
OWN = os.O_NOFOLLOW | os.O_CLOEXEC  # how a file of a run directory is opened for writing


class RunFileError(LabError):
    """A file of a run directory that is not what it should be."""

    code = DATA


def check_own(files: Iterable[Path], folders: Iterable[Path]) -> None:
    """Check that the files a run writes to are absent, or plain files or folders and not links.

    Writing through a link would change a file somewhere else.
    """
    for paths, kind, is_kind in ((files, "file", stat.S_ISREG), (folders, "folder", stat.S_ISDIR)):
        for path in paths:
            try:
                found = path.lstat()
            except FileNotFoundError:
                continue
            hard = stat.S_ISREG(found.st_mode) and found.st_nlink > 1
            linked = hard or stat.S_ISLNK(found.st_mode)
            if linked or not is_kind(found.st_mode):
                what = "a link" if linked else f"not a plain {kind}"
                raise RunFileError(
                    f"{path} is {what}; a run writes to its own files only: "
                    f"replace it by a {kind}, or remove it."
                )


def read_plain(path: Path, most: int | None = None) -> bytes:
    """The bytes of a plain file; a device, a pipe or one of more than `most` bytes is an error."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path.name} is not a plain file")
        data = file.read() if most is None else file.read(most + 1)
    if most is not None and len(data) > most:
        raise ValueError(f"{path.name} has more than {most} bytes")
    return data


def parse_object(data: bytes) -> dict[str, Any]:
    """The JSON object in these bytes; anything else is a ValueError."""
    try:
        value = json.loads(data, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("not JSON (nested too deeply)") from None
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    if not isinstance(value, dict):
        raise ValueError(f"must hold a JSON object, got a {type(value).__name__}")
    return value


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object of a file; anything else is a ValueError."""
    return parse_object(read_plain(path, MAX_JSON))


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OWN, 0o644)
    with open(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all; an error names it."""
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)  # of a process of this number that died
        write_synced(temporary, data)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):  # the first error counts
            temporary.unlink(missing_ok=True)
        error.filename, error.filename2 = str(path), None
        raise


def sync_folder(path: Path) -> None:
    """Wait until the disk has the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
