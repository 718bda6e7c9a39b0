"""Free Spoken Digits on disk: found, fetched, verified and read.

3,000 recordings of the digits 0 to 9 by six speakers, 8 kHz, `{digit}_{speaker}_{number}.wav`
(Z. Jackson and others, github.com/Jakobovski/free-spoken-digit-dataset, CC BY-SA 4.0). Recordings
numbered 0 to 4 are the test set.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from roann.lab.data import NETWORK_SECONDS, DataError, place, store
from roann.lab.files import read_plain
from roann.lab.sound import Sound, read_wav

# sha256 of all files of a speaker, one after another, by digit and number.
SPEAKERS: Mapping[str, str] = {
    "george": "314b34bbd5dcd2bc4baf35fdaf7820cf401f43b60cce0c7d6298ef261c5948fd",
    "jackson": "a225c20182fa25f5412994c2da1b8280d176a053042b96af2df7754644475490",
    "lucas": "d8e5192a0476dfa86fc6cdc7aa71ccd727f9f9934a351584fac79b6ffa654ffb",
    "nicolas": "fb041904d00a3ca9e8da3fd8b2a7162488e1c72151165a49cadac7627104bf30",
    "theo": "292f14c019dbba2a9508ba1ee26f5b5a25061e3a7a0ad444e25856b9a87c160e",
    "yweweler": "d9f468e7f1c5159d4c91fb4b5bf248087609b219f73d628e14fd78581a43932e",
}
PER_DIGIT = 50  # recordings of a digit by a speaker
TEST = 5  # the first of them
ARCHIVE = "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/refs/tags/v1.0.10.zip"
PACKED = "recordings.zip"
_NAME = re.compile(r"(?:.*/)?(([0-9])_([a-z]+)_([0-9]{1,2})\.wav)")
_MOST_ARCHIVE, _MOST_FILE = 100_000_000, 200_000  # bytes
BY_HAND = (
    "download the archive of github.com/Jakobovski/free-spoken-digit-dataset and name it with "
    "--source"
)


class Recording(NamedTuple):
    """One spoken digit."""

    digit: int
    speaker: str
    number: int
    sound: Sound

    @property
    def test(self) -> bool:
        """Whether it belongs to the test set."""
        return self.number < TEST


def find_fsdd(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The archive or folder to read, in `data_dir`, else ``$ROANN_DATA``, else the cache."""
    here = place(data_dir, "fsdd")
    found = _inside(here)
    if found is None:
        raise DataError(
            f"Free Spoken Digits are not in {here}: run `roann data fsdd`, or {BY_HAND}."
        )
    return found


def load_fsdd(data_dir: str | os.PathLike[str] | None = None) -> list[Recording]:
    """All recordings, verified, by speaker, digit and number."""
    files = _verified(find_fsdd(data_dir))
    return [_recording(name, data) for name, data in files.items()]


def fetch_fsdd(
    dest: str | os.PathLike[str] | None = None, source: str | os.PathLike[str] = "auto"
) -> Path:
    """Get the recordings to where `find_fsdd` looks, verified; returns the directory.

    Args:
        dest: the directory, made if absent; by default ``$ROANN_DATA``, else the cache.
        source: "auto" (the archive of the repository on GitHub), or an archive or folder that
            holds the recordings.
    """
    directory = place(dest, "fsdd")
    if directory.is_file():
        raise DataError(f"{directory} is a file; name a directory with --data-dir.")
    if (found := _inside(directory)) is not None and _sound(found):
        return directory
    files = _verified(*_source(source))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(f"recordings/{name}"), data, zipfile.ZIP_DEFLATED)
    store(directory / PACKED, packed.getvalue())
    return directory


def _inside(place: Path) -> Path | None:
    """An archive or folder with recordings: the place itself, or one in it."""
    if place.is_file():
        return place
    for path in (place / PACKED, place / "fsdd" / PACKED):
        if path.is_file():
            return path
    for path in (place / "recordings", place / "fsdd" / "recordings", place):
        if any(path.glob("[0-9]_*_[0-9]*.wav")):
            return path
    return None


def _source(source: str | os.PathLike[str]) -> tuple[Path | bytes, str]:
    if source == "auto":
        try:
            with urllib.request.urlopen(ARCHIVE, timeout=NETWORK_SECONDS) as reply:
                packed: bytes = reply.read(_MOST_ARCHIVE)
        except (HTTPException, OSError) as error:
            raise DataError(
                f"Free Spoken Digits could not be fetched ({error}). Offline? Then {BY_HAND}."
            ) from None
        return packed, ARCHIVE
    found = _inside(Path(source)) if Path(source).exists() else None
    if found is None:
        raise DataError(
            "source: expected auto, or an archive or folder with the recordings, "
            f"got {os.fspath(source)!r}."
        )
    return found, str(found)


def _verified(source: Path | bytes, where: str = "") -> dict[str, bytes]:
    """The files by name, in the order of speaker, digit and number, verified by sha256."""
    where = where or str(source)
    try:
        found = dict(_members(source))
    except (OSError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise DataError(f"{where} cannot be read: {error}.") from None
    files: dict[str, bytes] = {}
    for speaker, wanted in SPEAKERS.items():
        names = [f"{digit}_{speaker}_{i}.wav" for digit in range(10) for i in range(PER_DIGIT)]
        missing = [name for name in names if name not in found]
        if missing:
            raise DataError(
                f"{missing[0]} is not in {where} ({len(missing)} recordings of {speaker} missing): "
                "run `roann data fsdd`."
            )
        files |= {name: found[name] for name in names}
        digest = hashlib.sha256(b"".join(found[name] for name in names)).hexdigest()
        if digest != wanted:
            raise DataError(
                f"recordings of {speaker} in {where} are damaged or others: expected sha256 "
                f"{wanted[:12]}…, got {digest[:12]}…; delete them and run `roann data fsdd`."
            )
    return files


def _members(source: Path | bytes) -> Iterator[tuple[str, bytes]]:
    """Recordings in an archive or folder; nothing is ever extracted to disk."""
    if isinstance(source, Path) and source.is_dir():
        for path in source.glob("*.wav"):
            if (match := _NAME.fullmatch(path.name)) is not None:
                yield match[1], read_plain(path, _MOST_FILE)
        return
    with zipfile.ZipFile(source if isinstance(source, Path) else io.BytesIO(source)) as archive:
        for info in archive.infolist():
            if (match := _NAME.fullmatch(info.filename)) is not None:
                if info.file_size > _MOST_FILE:
                    raise ValueError(f"{info.filename} has more than {_MOST_FILE} bytes")
                yield match[1], archive.read(info)


def _sound(source: Path) -> bool:
    try:
        _verified(source)
    except DataError:
        return False
    return True


def _recording(name: str, data: bytes) -> Recording:
    match = _NAME.fullmatch(name)
    assert match is not None
    try:
        return Recording(int(match[2]), match[3], int(match[4]), read_wav(data))
    except ValueError as error:
        raise DataError(f"{name}: {error}.") from None
