"""Read `.ts` files: the format of the UCR and UEA archives of time series."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MISSING = ("?", "nan", "")


@dataclass(frozen=True)
class TsFile:
    """What a `.ts` file holds.

    Attributes:
        name: the name of the problem.
        X: one array (T_i, C) for each series, NaN where a value is missing.
        y: (n,): classes as strings, or numbers for a regression; None if the file has no targets.
        classes: the classes that the header names; empty for a regression.
    """

    name: str
    X: list[Floats]
    y: NDArray[Any] | None
    classes: tuple[str, ...]


@dataclass
class _Header:
    """The lines that begin with @."""

    name: str = ""
    target: str | None = None  # "class", "number" or None
    classes: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)

    def read(self, line: str) -> None:
        """Note what a line says; a ValueError says what is wrong with it."""
        words = line.split()
        tag, values = words[0].lower(), words[1:]
        said = values[0].lower() if values else ""
        if tag == "@problemname":
            self.name = " ".join(values)
        elif tag == "@timestamps" and said == "true":
            raise ValueError("time stamps are not read; expected @timeStamps false")
        elif tag == "@classlabel" and said == "true":
            self.target, self.classes = "class", tuple(values[1:])
        elif tag == "@targetlabel" and said == "true":
            self.target = "number"
        elif tag in ("@dimensions", "@serieslength"):
            self.sizes[tag] = _whole(tag, said)


def read_ts(path: str | os.PathLike[str]) -> TsFile:
    """Read a `.ts` file: series of equal or unequal length, one or many channels, gaps, targets.

    A file that is not one raises a ValueError that names the line.

    Example:
        >>> import tempfile
        >>> text = "@problemName P\\n@classLabel true a b\\n@data\\n1,2,3:a\\n4,?:b\\n"
        >>> with tempfile.NamedTemporaryFile("w", suffix=".ts") as file:
        ...     written = file.write(text)
        ...     file.flush()
        ...     found = read_ts(file.name)
        >>> [x.shape for x in found.X], found.y.tolist()
        ([(3, 1), (2, 1)], ['a', 'b'])
    """
    file = Path(path)
    header, data = _Header(), False
    X: list[Floats] = []
    targets: list[str | float | None] = []
    with file.open(encoding="utf-8", errors="replace") as lines:
        for number, text in enumerate(lines, 1):
            line = text.strip()
            if not line or line.startswith("#"):
                continue
            try:
                if data:
                    values, target = _series(line, header)
                    _fits(values, X, header)
                    X.append(values)
                    targets.append(target)
                elif line.startswith("@"):
                    data = line.lower() == "@data"
                    header.read(line)
                else:
                    raise ValueError(f"expected a line with @ before @data, got {line[:30]!r}")
            except ValueError as error:
                raise ValueError(f"{file}, line {number}: {error}.") from None
    if not X:
        raise ValueError(f"{file}: there is no series after @data." if data else
                         f"{file}: there is no line @data; is it a .ts file?")  # fmt: skip
    y = None if header.target is None else np.array(targets)
    return TsFile(header.name or file.stem, X, y, header.classes)


def _series(line: str, header: _Header) -> tuple[Floats, str | float | None]:
    """One series (T, C) and its target."""
    parts = line.split(":")
    target: str | float | None = None
    if header.target is not None:
        if len(parts) < 2:
            raise ValueError("expected a target after the last colon")
        target = parts.pop().strip()
        if header.target == "number":
            target = _number(target)
        elif header.classes and target not in header.classes:
            raise ValueError(f"expected a class of @classLabel, got {target[:30]!r}")
    channels = [[_number(word) for word in part.split(",")] for part in parts]
    lengths = {len(channel) for channel in channels}
    if len(lengths) > 1:
        raise ValueError(f"expected channels of one length, got {sorted(lengths)}")
    values = np.array(channels, dtype=np.float64).T
    if np.isinf(values).any():
        raise ValueError("expected finite numbers or ?, got infinity")
    return values, target


def _fits(values: Floats, X: list[Floats], header: _Header) -> None:
    wanted = header.sizes.get("@dimensions", X[0].shape[1] if X else values.shape[1])
    if values.shape[1] != wanted:
        raise ValueError(f"expected {wanted} channels, got {values.shape[1]}")


def _number(word: str) -> float:
    word = word.strip()
    if word.lower() in MISSING:
        return float("nan")
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"expected a number or ?, got {word[:30]!r}") from None


def _whole(tag: str, word: str) -> int:
    if not word.isdecimal():
        raise ValueError(f"expected a whole number after {tag}, got {word[:30]!r}")
    return int(word)
