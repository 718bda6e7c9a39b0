"""Checkpoints that survive crashes: committed by a rename, verified by a manifest, one writer.

A checkpoint is a folder `ckpt-<step>` with `tensors.safetensors`, `state.json` and
`manifest.json` (size and sha256 of the other two). It is written under a temporary name, synced,
and renamed: after a crash at any moment a folder of that name is whole or was damaged later, and
the manifest tells which. Nothing is ever unpickled.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from roann.lab.exits import LabError
from roann.lab.files import OWN, RunFileError, parse_object, read_plain, sync_folder, write_synced
from roann.lab.files import replace_file as replace_file
from roann.lab.optimizers import OPTIMIZERS

KEEP = 2
LOCK = ".lock"
_TENSORS, _STATE, _MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_MAX_MANIFEST = 10_000  # bytes
_COMMITTED = re.compile(r"ckpt-(0|[1-9][0-9]{0,17})")
_log = logging.getLogger(__name__)


class CheckpointError(RunFileError):
    """A checkpoint that is absent or does not verify."""


class BusyError(LabError):
    """Another process is writing to the run directory."""


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: its folder, what `pack` gave, and the JSON object saved with it."""

    path: Path
    tensors: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """The step in its name."""
        return step_of(self.path)


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory; the kernel lets go of it however the process ends."""
    with open(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | OWN, 0o644), "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(
                f"{folder}: another process is writing to this run; wait for it or stop it."
            ) from None
        yield


def save(folder: Path, step: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
    """Commit a checkpoint, then delete all but the newest `KEEP`; returns its folder.

    A step that is already there and verifies stays as it is: a run is a function of its config, so
    both are the same. An OSError (a full disk) leaves the older checkpoints and nothing else.
    """
    final = folder / f"ckpt-{step}"
    if os.path.lexists(final):
        try:
            return load(final).path
        except CheckpointError as error:
            set_aside(final, str(error), "it is written again")
    temporary = folder / f"{final.name}.tmp-{os.getpid()}"
    try:
        _remove(temporary)  # of a process of this number that died
        temporary.mkdir(parents=True)
        files = {_TENSORS: safetensors.torch.save(tensors), _STATE: json.dumps(state).encode()}
        manifest = {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        }
        for name, data in files.items():
            write_synced(temporary / name, data)
        write_synced(temporary / _MANIFEST, json.dumps(manifest).encode())
        sync_folder(temporary)
        temporary.rename(final)
        sync_folder(folder)
    except OSError:
        _remove(temporary)
        raise
    _prune(folder)
    return final


def load(path: Path) -> Checkpoint:
    """Read one checkpoint; `CheckpointError` says what does not verify."""
    try:
        if path.is_symlink():
            raise ValueError("it is a link")
        manifest = parse_object(read_plain(path / _MANIFEST, _MAX_MANIFEST))
        if set(manifest) != {_TENSORS, _STATE}:
            raise ValueError(f"{_MANIFEST} does not name its two files")
        data = {name: read_plain(path / name) for name in manifest}
        for name, entry in manifest.items():
            if len(data[name]) != entry["size"]:
                raise ValueError(f"{name} has {len(data[name])} bytes, not {entry['size']}")
            if hashlib.sha256(data[name]).hexdigest() != entry["sha256"]:
                raise ValueError(f"{name} does not have the sha256 in {_MANIFEST}")
        state = parse_object(data[_STATE])
        return Checkpoint(path, safetensors.torch.load(data[_TENSORS]), state)
    except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
        raise CheckpointError(f"{path}: this checkpoint does not verify: {error}.") from error


def newest(folder: Path, touch: bool = True) -> Checkpoint | None:
    """The newest checkpoint that verifies, or None.

    Those that do not verify are set aside on the way, or left alone by a reader (`touch` false).
    """
    for path in committed(folder):
        try:
            return load(path)
        except CheckpointError as error:
            if touch:
                set_aside(path, str(error))
            else:
                _log.warning("%s An older one is used.", error)
    return None


def named(folder: Path, step: int) -> Checkpoint:
    """The checkpoint of a step the user named; `CheckpointError` if it is absent or damaged."""
    path = folder / f"ckpt-{step}"
    if not path.is_dir():
        there = ", ".join(str(step_of(p)) for p in committed(folder)) or "none"
        raise CheckpointError(f"{folder}: no checkpoint of step {step}; there are: {there}.")
    return load(path)


def mend(place: Path, copy: Path) -> bool:
    """See that the newest checkpoint of `place` and its copy verify; one is made from the other.

    Returns whether `place` has one that verifies now. Only the sole writer may call it.
    """
    steps = [step_of(path) for folder in (place, copy) for path in committed(folder)]
    good, bad = None, {}
    for path in [folder / f"ckpt-{max(steps)}" for folder in (place, copy) if steps]:
        try:
            good = load(path)
        except CheckpointError as error:
            bad[path] = str(error)
    for path, why in bad.items():
        if os.path.lexists(path):
            then = "no copy of it verifies" if good is None else f"{good.path} replaces it"
            set_aside(path, why, then)
        if good is not None:
            save(path.parent, good.step, good.tensors, good.state)
    return good is not None


def set_aside(path: Path, why: str, then: str = "an older one is used") -> None:
    """Rename a checkpoint so that no one loads it, keep its bytes, and say so."""
    number = 0
    while os.path.lexists(aside := path.with_name(f"aside-{number}-{path.name}")):
        number += 1
    path.rename(aside)
    _log.warning("%s It is kept as %s; %s.", why, aside.name, then)


def clean(folder: Path) -> None:
    """Remove what writers that died left half-written. Only the sole writer may call it."""
    for path in folder.glob("ckpt-*.tmp-*"):
        _remove(path)


def committed(folder: Path) -> list[Path]:
    """Every committed checkpoint, newest first, verified or not."""
    found = [p for p in folder.glob("ckpt-*") if _COMMITTED.fullmatch(p.name)]
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(path.name.removeprefix("ckpt-"))


def _prune(folder: Path) -> None:
    for path in committed(folder)[KEEP:]:
        # Renamed first, so that a crash within the deletion leaves no half of a checkpoint.
        doomed = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        path.rename(doomed)
        _remove(doomed)


def _remove(path: Path) -> None:
    """Delete a folder, or a link or file in its place, as far as possible."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def pack(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Every tensor of a run: parameters, buffers, the optimiser's state, torch's generator.

    Batches need nothing: they are functions of (seed, step). The generator serves models that draw
    while they train (dropout).
    """
    state = model.state_dict().items()  # the configuration has the settings of our layers
    tensors = {f"model.{name}": t for name, t in state if isinstance(t, Tensor)}
    for index, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{index}.{name}"] = value
    tensors["generator"] = torch.get_rng_state()
    # Copies, because safetensors does not save two names of the same memory.
    return {
        name: t.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, t in tensors.items()
    }


def restore(found: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    """Put a checkpoint back; `CheckpointError` if it does not fit the model."""
    try:
        unpack(found.tensors, model, optimizer)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        why = " ".join(str(error).split())
        raise CheckpointError(
            f"{found.path} was made by another version of the program: {why:.300}"
        ) from None


def unpack(
    tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer | None
) -> None:
    """Put the tensors of `pack` back; a ValueError, KeyError or RuntimeError if they do not fit."""
    model.load_state_dict(_under("model.", tensors))
    if optimizer is None:
        return
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in _under("optimizer.", tensors).items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = value
    _check_moments(state, optimizer)
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    torch.set_rng_state(tensors["generator"])


def _check_moments(state: dict[int, dict[str, Tensor]], optimizer: torch.optim.Optimizer) -> None:
    """Check what torch itself does not check before the next update."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    names = {row.make: row.moments for row in OPTIMIZERS.values()}[type(optimizer)]
    for index, entries in state.items():
        if not 0 <= index < len(parameters) or entries.keys() != names:
            raise ValueError(f"optimizer.{index} is not a state of {type(optimizer).__name__}")
        for name, value in entries.items():
            shape = torch.Size() if name == "step" else parameters[index].shape
            if value.shape != shape:
                found, expected = tuple(value.shape), tuple(shape)
                raise ValueError(f"optimizer.{index}.{name} has shape {found}, not {expected}")


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in tensors.items() if k.startswith(prefix)}
