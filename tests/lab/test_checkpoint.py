"""Checkpoints: committed whole or not at all, verified to the bit, never lost in silence."""

import hashlib
import json
import os
import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from roann.lab import checkpoint
from roann.lab.checkpoint import BusyError, CheckpointError

FILES = ("tensors.safetensors", "state.json", "manifest.json")


def tensors(seed: int = 0) -> dict[str, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    return {
        "half": torch.randn(3, generator=rng).half(),
        "double": torch.randn(2, 5, generator=rng, dtype=torch.float64),
        "complex": torch.randn(4, generator=rng, dtype=torch.complex64),
        "scalar": torch.tensor(float("nan")),
        "index": torch.arange(7),
        "empty": torch.empty(0, 3),
    }


def test_what_is_saved_is_what_is_loaded(tmp_path):
    state = {"step": 5, "seconds": 0.1 + 0.2, "text": "ü"}
    path = checkpoint.save(tmp_path, 5, tensors(), state)
    assert path == tmp_path / "ckpt-5"
    assert sorted(p.name for p in path.iterdir()) == sorted(FILES)
    found = checkpoint.load(path)
    assert (found.step, found.state) == (5, state)
    assert found.tensors.keys() == tensors().keys()
    for name, tensor in tensors().items():
        assert found.tensors[name].dtype == tensor.dtype
        assert torch.equal(found.tensors[name].nan_to_num(), tensor.nan_to_num())


def test_the_newest_two_are_kept(tmp_path):
    for step in (3, 20, 100):
        checkpoint.save(tmp_path, step, tensors(), {})
    assert [p.name for p in checkpoint.committed(tmp_path)] == ["ckpt-100", "ckpt-20"]
    assert sorted(os.listdir(tmp_path)) == ["ckpt-100", "ckpt-20"]
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 100


def test_any_flipped_bit_is_seen(tmp_path):
    path = checkpoint.save(tmp_path, 1, tensors(), {"step": 1})
    rng = random.Random(0)
    for name in FILES:
        good = (path / name).read_bytes()
        for _ in range(60):
            bad = bytearray(good)
            place = rng.randrange(len(bad))
            bad[place] ^= 1 << rng.randrange(8)
            (path / name).write_bytes(bad)
            with pytest.raises(CheckpointError, match="does not verify"):
                checkpoint.load(path)
        (path / name).write_bytes(good)
    assert checkpoint.load(path).step == 1


@pytest.mark.parametrize("name", FILES)
def test_any_lost_byte_is_seen(tmp_path, name):
    path = checkpoint.save(tmp_path, 1, tensors(), {"step": 1})
    good = (path / name).read_bytes()
    for length in (0, 1, len(good) // 2, len(good) - 1):
        (path / name).write_bytes(good[:length])
        with pytest.raises(CheckpointError):
            checkpoint.load(path)
    (path / name).unlink()
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


def test_a_manifest_that_agrees_does_not_make_a_pickle_welcome(tmp_path):
    """A forged checkpoint whose sums are right is still only ever read as safetensors and JSON."""
    path = checkpoint.save(tmp_path, 1, tensors(), {})
    torch.save({"a": 1}, path / FILES[0])
    data = (path / FILES[0]).read_bytes()
    manifest = json.loads((path / FILES[2]).read_text())
    manifest[FILES[0]] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (path / FILES[2]).write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


@pytest.mark.parametrize("manifest", ["[]", "{}", "3", '{"tensors.safetensors": {}}', "null"])
def test_a_forged_manifest_is_refused(tmp_path, manifest):
    path = checkpoint.save(tmp_path, 1, tensors(), {})
    (path / "manifest.json").write_text(manifest)
    with pytest.raises(CheckpointError):
        checkpoint.load(path)


def test_a_bad_one_is_set_aside_loudly_and_the_one_before_serves(tmp_path, caplog):
    checkpoint.save(tmp_path, 1, tensors(1), {"step": 1})
    bad = checkpoint.save(tmp_path, 2, tensors(2), {"step": 2})
    data = bytearray((bad / FILES[0]).read_bytes())
    data[-1] ^= 1
    (bad / FILES[0]).write_bytes(data)
    found = checkpoint.newest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert "sha256" in caplog.text
    assert not bad.exists()
    assert (tmp_path / "aside-0-ckpt-2" / FILES[0]).read_bytes() == data
    # Another bad one of that step does not replace it.
    again = checkpoint.save(tmp_path, 2, tensors(2), {"step": 2})
    (again / FILES[1]).unlink()
    assert checkpoint.newest(tmp_path).step == 1
    assert (tmp_path / "aside-1-ckpt-2").is_dir()
    assert (tmp_path / "aside-0-ckpt-2" / FILES[0]).read_bytes() == data


def test_a_reader_leaves_a_bad_one_where_it_is(tmp_path):
    bad = checkpoint.save(tmp_path, 2, tensors(), {})
    (bad / FILES[0]).unlink()
    assert checkpoint.newest(tmp_path, touch=False) is None
    assert bad.exists()


def test_a_named_one_that_is_absent_or_bad_is_an_error(tmp_path):
    bad = checkpoint.save(tmp_path, 2, tensors(), {})
    with pytest.raises(CheckpointError, match="no checkpoint of step 7; there are: 2"):
        checkpoint.named(tmp_path, 7)
    (bad / FILES[0]).unlink()
    with pytest.raises(CheckpointError, match="does not verify"):
        checkpoint.named(tmp_path, 2)
    assert bad.exists()


def test_what_a_dead_writer_left_is_never_loaded_and_is_swept_away(tmp_path):
    checkpoint.save(tmp_path, 1, tensors(), {})
    half = tmp_path / "ckpt-9.tmp-4321"
    half.mkdir()
    save_file(tensors(), half / FILES[0])
    assert checkpoint.newest(tmp_path).step == 1
    checkpoint.clean(tmp_path)
    assert os.listdir(tmp_path) == ["ckpt-1"]


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The system refuses to write files larger than this."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_write_leaves_the_older_ones_and_nothing_else(tmp_path):
    large = {"x": torch.zeros(10_000)}
    for step in (1, 2):
        checkpoint.save(tmp_path, step, large, {"step": step})
    (tmp_path / "file").write_bytes(b"old")
    with files_up_to(20_000):
        with pytest.raises(OSError, match="File too large"):
            checkpoint.save(tmp_path, 3, large, {"step": 3})
        with pytest.raises(OSError, match="File too large"):
            checkpoint.replace_file(tmp_path / "file", b"0" * 30_000)
    assert sorted(os.listdir(tmp_path)) == ["ckpt-1", "ckpt-2", "file"]
    assert (tmp_path / "file").read_bytes() == b"old"
    assert checkpoint.newest(tmp_path).step == 2


def test_one_writer(tmp_path):
    with checkpoint.sole_writer(tmp_path):
        second = checkpoint.sole_writer(tmp_path)
        with pytest.raises(BusyError, match="another process"):
            second.__enter__()
    with checkpoint.sole_writer(tmp_path):
        assert (tmp_path / ".lock").exists()


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    return model


@pytest.mark.parametrize(
    "optimizer",
    [
        torch.optim.Adam,
        torch.optim.SGD,
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        torch.optim.RMSprop,
        torch.optim.Adagrad,
    ],
    ids=["adam", "sgd", "nag", "rmsprop", "adagrad"],
)
def test_the_world_comes_back_bit_by_bit(tmp_path, optimizer):
    """Model (with weights tied), optimiser and generator: both go on in the same way."""
    torch.manual_seed(0)
    model = tied()
    step = optimizer(model.parameters())

    def advance(model, step):
        for _ in range(3):
            step.zero_grad()
            model(torch.randn(5, 3)).square().sum().backward()
            step.step()

    advance(model, step)
    checkpoint.save(tmp_path, 3, checkpoint.pack(model, step), {})
    advance(model, step)
    twin = tied()
    again = optimizer(twin.parameters())
    checkpoint.unpack(checkpoint.load(tmp_path / "ckpt-3").tensors, twin, again)
    advance(twin, again)
    ours, theirs = checkpoint.pack(model, step), checkpoint.pack(twin, again)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
