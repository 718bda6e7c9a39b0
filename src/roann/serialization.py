"""One file per model: weights, filters and settings in safetensors, never pickle."""

from __future__ import annotations

import json
import os
import tempfile
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import nn

from roann import _checks
from roann.nn import RoaEuler, RoaFlow, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell
from roann.nn.continuous import upgraded
from roann.nn.module import RoaModule

FORMAT = 1
CLASSES: dict[str, type[RoaModule]] = {
    c.__name__: c for c in (RoaRNN, RoaRNNCell, RoaFNN, RoaLayer, RoaODE, RoaEuler, RoaFlow)
}


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a layer, with its filters and settings, to one safetensors file, atomically.

    Example:
        >>> import tempfile, os
        >>> net = RoaFNN([2, 2, 1], rho=0.1, generator=torch.Generator().manual_seed(0))
        >>> file = os.path.join(tempfile.mkdtemp(), "net.safetensors")
        >>> save(net, file)
        >>> x = torch.randn(3, 2)
        >>> float((load(file)(x) - net(x)).detach().abs().max())
        0.0
    """
    kind = type(model).__name__
    if not isinstance(model, RoaModule) or CLASSES.get(kind) is not type(model):
        _checks.fail(
            "model",
            "a " + ", ".join(CLASSES),
            kind,
            "save other modules with safetensors' save_model and their state_dict",
            TypeError,
        )
    about = {"class": kind, "settings": model.settings(), "dtype": _dtype(model)}
    metadata = {"format": "roann", "version": str(FORMAT), "model": json.dumps(about)}
    tensors = {k: v.detach().contiguous().cpu() for k, v in _tensors(model).items()}
    _write(Path(path), to_bytes(tensors, metadata))


def load(
    path: str | os.PathLike[str], *, device: torch.device | str | None = None
) -> RoaRNN | RoaRNNCell | RoaFNN | RoaLayer | RoaODE | RoaEuler | RoaFlow:
    """A layer as `save` wrote it, on `device` (the CPU if not given).

    Raises FileNotFoundError where there is no file, ValueError where it is truncated, foreign, of
    a newer version, or does not hold the tensors it claims to.

    Example:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), "cell.safetensors")
        >>> save(RoaRNNCell(2, 3, horizon=10, filter="cycle"), file)
        >>> load(file).filter
        Cycle(3, 3)
    """
    file = Path(path)
    if not file.is_file():
        _checks.fail(
            "path",
            "a file written by roann.save",
            f"{file} (no such file)",
            error=FileNotFoundError,
        )
    try:
        with safe_open(file, "pt", device="cpu") as f:
            metadata = f.metadata() or {}
            about = _about(file, metadata)
            tensors = {k: f.get_tensor(k) for k in f.keys()}  # noqa: SIM118  not a dict
    except SafetensorError as e:
        _checks.fail("path", "a whole safetensors file", f"{file} ({e})", "it may be truncated")
    model = _ghost(file, about)
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as e:
        _checks.fail(
            "path",
            f"the tensors of a {type(model).__name__}",
            f"{file} ({' '.join(str(e).split())})",
        )
    model.to(device)
    return model  # type: ignore[return-value]


def _tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """The state_dict; a filter shared by several layers is written once for each name."""
    state = model.state_dict().items()
    return {k: v.clone() for k, v in state if isinstance(v, torch.Tensor)}


def _dtype(model: nn.Module) -> str:
    return str(next(model.parameters()).dtype).removeprefix("torch.")


def _about(file: Path, metadata: dict[str, str]) -> dict[str, Any]:
    if metadata.get("format") != "roann":
        _checks.fail("path", "a file written by roann.save", f"{file}, which is something else's")
    if not metadata.get("version", "").isdecimal() or int(metadata["version"]) > FORMAT:
        what = f"{file} of version {metadata.get('version')}"
        _checks.fail(
            "path", f"a file of version {FORMAT} or older", what, "upgrade roann to read it"
        )
    try:
        about = json.loads(metadata.get("model", ""))
    except ValueError:
        about = None
    if not isinstance(about, dict) or not isinstance(about.get("settings"), dict):
        _checks.fail("path", "a file that says what model it holds", f"{file}, which does not")
    return about


def _ghost(file: Path, about: dict[str, Any]) -> RoaModule:
    """The model without its numbers: shapes only, to be filled by load_state_dict."""
    kind, settings = upgraded(about.get("class"), dict(about["settings"]))
    cls = CLASSES[_checks.choice("class in the file", kind, CLASSES)]
    dtype = getattr(torch, str(about.get("dtype")), None)
    try:
        if isinstance(settings.get("sizes"), dict):
            runs = settings["sizes"]["run_lengths"]
            settings["sizes"] = list(chain.from_iterable(repeat(w, n) for w, n in runs))
        if isinstance(settings["alpha"], list):
            settings["alpha"] = torch.tensor(settings["alpha"], dtype=torch.float64)
        if not isinstance(dtype, torch.dtype):
            raise ValueError(f"dtype {about.get('dtype')!r}")
        return cls(**settings, device="meta", dtype=dtype)
    except (KeyError, TypeError, ValueError) as e:
        _checks.fail("path", f"settings of a {cls.__name__}", f"{file} ({e})")


def _write(path: Path, data: bytes) -> None:
    """All of the data under `path`, or nothing: written beside it, synced, then renamed."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name + ".", suffix=".tmp")
    except OSError as error:
        error.filename = str(path)  # what the user named
        raise
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
