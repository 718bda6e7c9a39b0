"""The sets: series for training and for the test, read from the directory that the user names."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from roann.estimators import read_ts
from roann.lab import fsdd, sound

CLASSIFY, REGRESS, FORECAST = "classify", "regress", "forecast"


@dataclass(frozen=True)
class Set:
    """Series (T_i, C) with targets; of a forecast, one series and where its test begins.

    Attributes:
        epochs: how long networks are trained, roann's and others alike.
        files: the two `.ts` files, if there are any: what another library reads.
        steps, window, season: of a forecast: how far ahead, from how much past, and the period.
        width: neurons of each layer of fixed features, if not the default.
        pooling: what all networks read from their states, if not the default.
        horizon: that of roann's trained network, if not the longest series.
        layer: further arguments of its layer.
    """

    name: str
    kind: str
    X: list[NDArray[np.float64]]
    y: NDArray[Any] | None
    X_test: list[NDArray[np.float64]]
    y_test: NDArray[Any] | None
    epochs: int = 100
    batch_size: int = 16
    files: tuple[Path, Path] | None = None
    steps: int = 0
    window: int = 0
    season: int = 0
    width: int | None = None
    pooling: tuple[str, ...] | None = None
    horizon: float | None = None
    layer: dict[str, Any] | None = None


def archive(data: Path, name: str, kind: str, epochs: int = 100) -> Set:
    """A problem of the UCR or UEA archive: `ucr/NAME/NAME_TRAIN.ts` and `..._TEST.ts`."""
    folder = data / "ucr" / name
    folder = folder if folder.is_dir() else data / name
    files = (folder / f"{name}_TRAIN.ts", folder / f"{name}_TEST.ts")
    train, test = map(read_ts, files)
    return Set(name, kind, train.X, train.y, test.X, test.y, epochs, files=files)


def forecast(data: Path, name: str, test: int, steps: int, window: int, season: int) -> Set:
    """A column of numbers, the last of a CSV file; its last `test` values are the test."""
    # sunspots.csv, yearly from 1700 to 2008, is that of statsmodels, in the public domain.
    places = (data / "ucr", data, Path(__file__).parent)
    files = [place / f"{name}.csv" for place in places]
    path = next((file for file in files if file.is_file()), files[0])
    with path.open(encoding="utf-8", newline="") as file:
        values = np.array([float(row[-1]) for row in list(csv.reader(file))[1:]])
    return Set(
        name, FORECAST, [values[:-test, None]], None, [values[:, None]], None, 60, 16, None,
        steps, window, season,
    )  # fmt: skip


def spoken(
    data: Path, name: str, view: Callable[[sound.Sound], Any], epochs: int, width: int | None = None
) -> Set:
    """Spoken digits as series; the test is the recordings numbered 0 to 4."""
    found: dict[bool, tuple[list[Any], list[int]]] = {False: ([], []), True: ([], [])}
    for recording in fsdd.load_fsdd(data):
        X, y = found[recording.test]
        X.append(np.asarray(view(recording.sound), dtype=np.float64))
        y.append(recording.digit)
    X, y = found[False]
    X_test, y_test = found[True]
    return Set(
        name, CLASSIFY, X, np.array(y), X_test, np.array(y_test), epochs, batch_size=32, width=width
    )


SETS: dict[str, Callable[[Path], Set]] = {
    "GunPoint": lambda data: archive(data, "GunPoint", CLASSIFY),
    "ArrowHead": lambda data: archive(data, "ArrowHead", CLASSIFY),
    "BasicMotions": lambda data: archive(data, "BasicMotions", CLASSIFY),
    "ACSF1": lambda data: archive(data, "ACSF1", CLASSIFY, epochs=30),
    "JapaneseVowels": lambda data: archive(data, "JapaneseVowels", CLASSIFY, epochs=60),
    "CardanoSentiment": lambda data: archive(data, "CardanoSentiment", REGRESS, epochs=60),
    "Airline": lambda data: forecast(data, "Airline", 36, 12, 24, 12),
    "solar": lambda data: forecast(data, "solar", 96, 24, 48, 48),
    "sunspots": lambda data: forecast(data, "sunspots", 66, 11, 44, 11),
    # Of ten settings, among the best on the last values of the training part.
    "sunspots-last": lambda data: replace(
        forecast(data, "sunspots", 66, 11, 44, 11),
        name="sunspots-last",
        pooling=("last",),
        layer={"nonlinearity": "identity"},
    ),
    "digits-mel": lambda data: spoken(data, "digits-mel", sound.log_mel, 12),
    "digits-frames": lambda data: spoken(data, "digits-frames", sound.frames, 12),
    # The horizon: of 10, 40 and 229, the best on a quarter of the training recordings.
    "digits-frames-max": lambda data: replace(
        spoken(data, "digits-frames-max", sound.frames, 12),
        pooling=("last", "mean_abs", "max"),
        horizon=10,
    ),
    "digits-samples": lambda data: spoken(
        data, "digits-samples", lambda s: s.samples.unsqueeze(1), 12, width=64
    ),
}
"""What `--sets` names, each a function of the directory with the data."""
