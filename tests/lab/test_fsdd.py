"""Free Spoken Digits: the search for them, damage, and every way to fetch them; sound as series."""

import hashlib
import io
import math
import os
import wave
import zipfile
from pathlib import Path

import pytest
import torch

from roann.lab import fsdd, sound
from roann.lab.data import DataError

REAL = Path(os.environ.get("ROANN_DATA") or Path(__file__).parents[3] / "shared" / "data")


def wav(samples, rate=8000, channels=1, width=2):
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(rate)
        out.writeframes(b"".join(int(s).to_bytes(width, "little", signed=True) for s in samples))
    return file.getvalue()


FILES = {
    f"{digit}_{speaker}_{i}.wav": wav([digit * 100 + i] * (5 + i))
    for speaker in ("ann", "bob")
    for digit in range(10)
    for i in range(2)
}


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """The production code with a table of two speakers in place of the six."""
    digests = {
        speaker: hashlib.sha256(
            b"".join(data for name, data in FILES.items() if speaker in name)
        ).hexdigest()
        for speaker in ("ann", "bob")
    }
    monkeypatch.setattr(fsdd, "SPEAKERS", digests)
    monkeypatch.setattr(fsdd, "PER_DIGIT", 2)
    monkeypatch.setattr(fsdd, "TEST", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("ROANN_DATA", raising=False)


def packed(path, files=FILES, prefix="free-spoken-digit-dataset-1.0.10/recordings/"):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("free-spoken-digit-dataset-1.0.10/README.md", "words")
        for name, data in files.items():
            archive.writestr(prefix + name, data)
    return path


def spread(folder, files=FILES):
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def test_an_archive_is_fetched_verified_and_read(tmp_path):
    source = packed(tmp_path / "v1.0.10.zip")
    dest = fsdd.fetch_fsdd(source=source)
    assert dest == tmp_path / "cache" / "roann" / "fsdd"
    found = fsdd.load_fsdd()
    assert len(found) == 40
    assert [(r.digit, r.speaker, r.number) for r in found[:3]] == [
        (0, "ann", 0), (0, "ann", 1), (1, "ann", 0)]  # fmt: skip
    assert [r.test for r in found[:2]] == [True, False]
    assert torch.equal(found[3].sound.samples, torch.full((6,), 101 / 2**15))
    source.unlink()
    assert fsdd.fetch_fsdd(source=source) == dest  # sound already: the source is not needed


@pytest.mark.parametrize("inside", ["", "recordings", "fsdd/recordings"])
def test_folders_are_read_where_they_are(tmp_path, monkeypatch, inside):
    spread(tmp_path / "data" / inside)
    assert len(fsdd.load_fsdd(tmp_path / "data")) == 40
    monkeypatch.setenv("ROANN_DATA", str(tmp_path / "data"))
    assert len(fsdd.load_fsdd()) == 40


def test_missing_recordings_say_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"roann data fsdd.*--source"):
        fsdd.load_fsdd()
    few = {name: data for name, data in FILES.items() if name != "3_bob_1.wav"}
    with pytest.raises(DataError, match=r"3_bob_1.wav is not in .* \(1 recordings of bob missing"):
        fsdd.load_fsdd(packed(tmp_path / "few.zip", few))


def test_damage_is_named(tmp_path):
    other = FILES | {"3_ann_1.wav": FILES["4_ann_1.wav"]}
    with pytest.raises(DataError, match=r"recordings of ann .* are damaged"):
        fsdd.fetch_fsdd(tmp_path / "dest", spread(tmp_path / "other", other))
    assert not (tmp_path / "dest").exists()
    (tmp_path / "no.zip").write_bytes(b"PK no archive")
    with pytest.raises(DataError, match=r"no\.zip cannot be read"):
        fsdd.load_fsdd(tmp_path / "no.zip")
    huge = FILES | {"3_ann_1.wav": bytes(300_000)}
    with pytest.raises(DataError, match="more than 200000 bytes"):
        fsdd.load_fsdd(packed(tmp_path / "huge.zip", huge))


def test_a_damaged_copy_is_replaced(tmp_path):
    dest = tmp_path / "dest"
    spread(dest, {"0_ann_0.wav": b"damaged"})
    fsdd.fetch_fsdd(dest, packed(tmp_path / "good.zip"))
    assert len(fsdd.load_fsdd(dest)) == 40


def test_bad_sources_and_places(tmp_path):
    with pytest.raises(DataError, match="source: expected auto, or an archive or folder"):
        fsdd.fetch_fsdd(tmp_path / "dest", "nowhere")
    file = packed(tmp_path / "a.zip")
    with pytest.raises(DataError, match="is a file"):
        fsdd.fetch_fsdd(file, file)


def test_the_archive_of_the_repository_is_asked_for(tmp_path, monkeypatch):
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        return io.BytesIO(packed(tmp_path / "served.zip").read_bytes())

    monkeypatch.setattr(fsdd.urllib.request, "urlopen", urlopen)
    fsdd.fetch_fsdd(tmp_path / "dest")
    assert asked == [fsdd.ARCHIVE]
    assert len(fsdd.load_fsdd(tmp_path / "dest")) == 40

    def fails(url, timeout):
        raise OSError("no network")

    monkeypatch.setattr(fsdd.urllib.request, "urlopen", fails)
    with pytest.raises(DataError, match=r"could not be fetched \(no network\)"):
        fsdd.fetch_fsdd(tmp_path / "new")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"RIFF", "not a WAV file"),
        (b"no sound at all", "not a WAV file"),
        (wav([1, 2, 3, 4], channels=2), "one channel of 16 bits, got 2 of 16"),
        (wav([1, 2], width=4), "one channel of 16 bits, got 1 of 32"),
        (wav([]), "at least one sample"),
    ],
)
def test_files_that_are_no_such_sound(data, said):
    with pytest.raises(ValueError, match=said):
        sound.read_wav(data)


def test_frames_hold_every_sample_once():
    found = sound.frames(sound.Sound(torch.arange(1.0, 171.0), 8000))
    assert found.shape == (3, 80)
    assert torch.equal(found.flatten()[:170], torch.arange(1.0, 171.0))
    assert not found.flatten()[170:].any()


@pytest.mark.parametrize("hertz", [300.0, 1000.0, 2500.0])
def test_a_tone_is_loudest_in_its_mel_band(hertz):
    tone = sound.Sound(torch.sin(2 * math.pi * hertz * torch.arange(4000) / 8000), 8000)
    found = sound.log_mel(tone)
    assert found.shape == (51, 40)
    top = 2595 * math.log10(1 + 4000 / 700)
    band = 2595 * math.log10(1 + hertz / 700) / top * 41 - 1
    assert abs(float(found[10:40].mean(0).argmax()) - band) <= 1
    assert float(sound.log_mel(sound.Sound(torch.zeros(400), 8000)).max()) == pytest.approx(
        math.log(sound.FLOOR)
    )


@pytest.mark.slow
def test_the_real_recordings(monkeypatch):
    monkeypatch.undo()
    if fsdd._inside(REAL) is None:
        pytest.skip("Free Spoken Digits are not here: set ROANN_DATA")
    found = fsdd.load_fsdd(REAL)
    assert len(found) == 3000
    assert sum(r.test for r in found) == 300
    lengths = sorted(len(r.sound.samples) for r in found)
    assert (lengths[0], lengths[-1]) == (1148, 18262)
