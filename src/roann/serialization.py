"""One file per model: weights, filters and settings in safetensors, never pickle.

Note [What a file may do]
-------------------------
A file may come from anywhere, so it is data and nothing else. It names a class of this package
from a fixed table, never an import path. The tensors are read first; settings that claim more
layers than there are tensors are refused before a layer is made; the model is made on the meta
device, and shapes, dtypes, filters and α are checked before a tensor is put into it. A filter and
a fixed α must be what their kind says (`Filter.verify`): finite, in range, orthogonal. Weights,
the logits of a learned α among them, may be any floats: a model that has diverged can be saved.
"""

from __future__ import annotations

import inspect
import json
import os
import tempfile
from itertools import chain, repeat
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from roann import _checks
from roann.filters import Filter
from roann.nn.cell import RoaLayer, RoaRNNCell
from roann.nn.continuous import upgraded
from roann.nn.flow import RoaFlow
from roann.nn.fnn import RoaFNN
from roann.nn.module import RoaModule
from roann.nn.ode import RoaEuler, RoaODE
from roann.nn.rnn import RoaRNN
from roann.nn.wrap import Roa

FORMAT = 1
CLASSES: dict[str, type[RoaModule]] = {
    c.__name__: c for c in (RoaRNN, RoaRNNCell, RoaFNN, RoaLayer, RoaODE, RoaEuler, RoaFlow)
}
DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in ("float32", "float64", "float16", "bfloat16")
}
EXTRA = "_extra_state"  # the key under which torch keeps what `get_extra_state` returns
FREE = ("init", "backend", "memory", "dropout")  # do not change what a trained layer computes
BEFORE = {"gain": 1.0, "max_norm": None}  # of files that do not name them
LONGEST = 300  # characters quoted from a file, or from an error about it
M = TypeVar("M", bound=nn.Module)


def save(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Write a model to one safetensors file, atomically.

    A layer of this package is written with all its settings, and `load` rebuilds it. For any other
    model the file holds its `state_dict` and the settings of the layers of this package in it; to
    load it, build the model and pass it to `load` as `into`.

    Example:
        >>> import tempfile, os
        >>> net = RoaFNN([2, 2, 1], rho=0.1, generator=torch.Generator().manual_seed(0))
        >>> file = os.path.join(tempfile.mkdtemp(), "net.safetensors")
        >>> save(net, file)
        >>> x = torch.randn(3, 2)
        >>> float((load(file)(x) - net(x)).detach().abs().max())
        0.0
    """
    if not isinstance(model, nn.Module):
        _checks.fail("model", "an nn.Module", type(model).__name__, error=TypeError)
    for layer in model.modules():
        if isinstance(layer, Filter):
            layer.verify()  # `load` would refuse it
    state = model.state_dict()
    about: dict[str, Any] = {"class": type(model).__name__}
    if isinstance(model, RoaModule) and type(model) in CLASSES.values():
        dtype = str(next(model.parameters()).dtype).removeprefix("torch.")
        about |= {"settings": model.settings(), "dtype": dtype}
    else:
        about["layers"] = _layers(model)
    about["extra"] = {k: v for k, v in state.items() if not isinstance(v, Tensor)}
    metadata = {"format": "roann", "version": str(FORMAT), "model": _json(about)}
    # Copies: a tensor shared by several layers is written once for each name.
    tensors = {
        k: v.detach().cpu().clone(memory_format=torch.contiguous_format)
        for k, v in state.items()
        if isinstance(v, Tensor)
    }
    write_atomically(Path(path), to_bytes(tensors, metadata))


@overload
def load(
    path: str | os.PathLike[str], *, device: torch.device | str | None = None
) -> RoaRNN | RoaRNNCell | RoaFNN | RoaLayer | RoaODE | RoaEuler | RoaFlow: ...


@overload
def load(
    path: str | os.PathLike[str], *, into: M, device: torch.device | str | None = None
) -> M: ...


def load(
    path: str | os.PathLike[str],
    *,
    into: nn.Module | None = None,
    device: torch.device | str | None = None,
) -> nn.Module:
    """A model as `save` wrote it.

    A layer of this package is rebuilt. Any other model you build yourself and pass as `into`: it is
    filled, keeps its dtypes, and is returned. Its layers of this package must have the settings
    that were saved: sizes, α, φ, filter. It may be on the meta device.

    Files from elsewhere are safe to load: nothing in them is run or imported, and filters and α are
    checked. Weights may be any numbers, NaN among them. A file is refused with a ValueError where
    it is truncated, foreign, of a newer version, of another model than `into`, or does not hold the
    tensors it claims to; where there is none, FileNotFoundError is raised.

    Args:
        path: the file.
        into: a model like the one that was saved, if that is not a layer of this package.
        device: where the model goes; if not given, the CPU, or where `into` is.

    Example:
        >>> import os, tempfile
        >>> file = os.path.join(tempfile.mkdtemp(), "model.safetensors")
        >>> save(RoaRNNCell(2, 3, horizon=10, filter="cycle"), file)
        >>> load(file).filter
        Cycle(3, 3)
        >>> def build():
        ...     return torch.nn.Sequential(RoaLayer(2, 4, horizon=9), torch.nn.Linear(4, 1))
        >>> net, x = build(), torch.randn(3, 2)
        >>> save(net, file)
        >>> float((load(file, into=build())(x) - net(x)).detach().abs().max())
        0.0
    """
    file = Path(path)
    if not file.is_file():
        _checks.fail(
            "path",
            "a file written by roann.save",
            f"{file} (no such file)",
            error=FileNotFoundError,
        )
    if into is not None and not isinstance(into, nn.Module):
        cure = "build the model first" if isinstance(into, type) else ""
        _checks.fail("into", "an nn.Module", _short(into), cure, TypeError)
    about, state = _read(file)
    if into is None:
        model: nn.Module = _ghost(file, about, state)
    else:
        model = into
        _agrees(file, about, into)
    _fill(file, model, state, cast=into is not None)
    return model.to(device)


def _layers(model: nn.Module) -> dict[str, Any]:
    """Class and settings of each layer of this package in a model, by its name there."""
    return {
        name: {"class": type(layer).__name__, **layer.settings()}
        for name, layer in model.named_modules()
        if isinstance(layer, RoaModule | Roa)
    }


def _json(about: dict[str, Any]) -> str:
    """The text, if extra state comes back from it unchanged."""
    try:
        text = json.dumps(about)
        same = json.loads(text)["extra"] == about["extra"]
    except (TypeError, ValueError, RecursionError):
        same = False
    if not same:
        cure = "tuples, sets, objects and keys that are not strings do not survive"
        names = ", ".join(about["extra"])
        _checks.fail("model", "extra state that JSON can hold", names, cure, TypeError)
    return text


def _read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the file says of its model, and the state; copied, as the file may change later."""
    try:
        with safe_open(file, "pt", device="cpu") as f:
            about = _about(file, f.metadata() or {})
            state = {k: f.get_tensor(k).clone() for k in f.keys()}  # noqa: SIM118  not a dict
    except (SafetensorError, RuntimeError) as e:
        what = f"{file} ({_short(e)})"
        _checks.fail("path", "a whole safetensors file", what, "it may be truncated")
    return about, {**state, **about["extra"]}


def _about(file: Path, metadata: dict[str, str]) -> dict[str, Any]:
    if metadata.get("format") != "roann":
        _checks.fail("path", "a file written by roann.save", f"{file}, which is something else's")
    version = metadata.get("version", "")
    if not version.isdecimal() or len(version) > 9 or int(version) > FORMAT:
        what = f"{file} of version {_short(version)}"
        _checks.fail(
            "path", f"a file of version {FORMAT} or older", what, "upgrade roann to read it"
        )
    try:
        about = json.loads(metadata.get("model", ""))
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict) or not _whole(about):
        _checks.fail("path", "a file that says what model it holds", f"{file}, which does not")
    return about


def _whole(about: dict[str, Any]) -> bool:
    """Whether it has the parts that `save` writes, of their types."""
    about.setdefault("extra", {})
    known = about["settings"] if "settings" in about else about.get("layers")
    if not isinstance(about["extra"], dict) or not isinstance(known, dict):
        return False
    layers = [] if "settings" in about else known.values()
    names = all(key.rpartition(".")[2] == EXTRA for key in about["extra"])
    return names and all(isinstance(layer, dict) for layer in layers)


def _ghost(file: Path, about: dict[str, Any], state: dict[str, Any]) -> RoaModule:
    """The model without its numbers: shapes only, to be filled by load_state_dict."""
    if "settings" not in about:
        what = f"nothing for {file}, which holds a {_short(about.get('class'))}"
        _checks.fail("into", "a model of your own to load into", what, "build it and pass it")
    kind, given = upgraded(about.get("class"), BEFORE | dict(about["settings"]))
    cls = CLASSES[_checks.choice("class in the file", _short(kind), CLASSES)]
    try:
        dtype = DTYPES[_checks.choice("dtype", about.get("dtype"), DTYPES)]
        tensors = [t for t in state.values() if isinstance(t, Tensor)]
        settings = _arguments(cls, given, tensors)
        return cls(**settings, device="meta", dtype=dtype)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as e:
        _checks.fail("path", f"settings of a {cls.__name__}", f"{file} ({_short(e)})")


def _arguments(
    cls: type[RoaModule], settings: dict[str, Any], tensors: list[Tensor]
) -> dict[str, Any]:
    """The constructor's arguments; refused where they claim more layers than there are tensors."""
    for name, p in inspect.signature(cls).parameters.items():
        if isinstance(p.default, bool) and not isinstance(settings.get(name, False), bool):
            _checks.fail(name, "true or false", _short(settings[name]))
    layers = _checks.size("num_layers", settings.get("num_layers", 1))
    if layers > len(tensors):
        _checks.fail("num_layers", f"at most {len(tensors)}, one for each tensor", layers)
    changed: dict[str, Any] = {}
    if "sizes" in settings:
        changed["sizes"] = _widths(settings["sizes"]["run_lengths"], tensors)
    if isinstance(settings["alpha"], list):
        changed["alpha"] = torch.tensor(settings["alpha"], dtype=torch.float64)
    if isinstance(settings["gain"], list):
        changed["gain"] = torch.tensor(settings["gain"], dtype=torch.float64)
    return settings | changed


def _widths(runs: list[Any], tensors: list[Tensor]) -> list[int]:
    """[[2, 3], [1, 1]] as [2, 2, 2, 1]. A change of width costs a tensor, a map at least a number.

    Checked first: a few bytes may claim any number of layers.
    """
    pairs = [(width, _checks.size("sizes", n)) for width, n in runs]
    maps, most = sum(n for _, n in pairs) - 1, sum(t.numel() for t in tensors)
    if len(pairs) > len(tensors) or maps > most:
        what = f"{maps} maps in {len(pairs)} runs"
        _checks.fail("sizes", f"maps that {most} numbers in {len(tensors)} tensors can be", what)
    return list(chain.from_iterable(repeat(width, n) for width, n in pairs))


def _agrees(file: Path, about: dict[str, Any], model: nn.Module) -> None:
    """Refuse a model whose layers of this package are not those that were saved."""
    alone = {"": {"class": about.get("class"), **about.get("settings", {})}}
    saved = alone if "settings" in about else about["layers"]
    own = json.loads(json.dumps(_layers(model)))
    for name in sorted(saved.keys() | own.keys()):
        if name not in saved or name not in own:
            how = "with" if name in own else "without"
            _checks.fail("into", f"the layers in {file}", f"a model {how} {_short(repr(name))}")
        there, here = BEFORE | saved[name], BEFORE | own[name]
        for key in sorted(there.keys() | here.keys(), key=lambda k: (k != "class", k)):
            a, b = there.get(key), here.get(key)
            held = key == "alpha" and (here.get("learn_rho") or type(a) is type(b) is list)
            held = held or b == "auto"  # until α has numbers
            if a != b and key not in FREE and not held:  # held: as a tensor in the state
                what = f"{key}={_short(a)}" + (f" in {name!r}" if name else "")
                cure = "build the model with the settings it was saved with"
                _checks.fail("into", f"{what}, as in {file}", _short(b), cure)


def _fill(file: Path, model: nn.Module, state: dict[str, Any], cast: bool) -> None:
    """load_state_dict, after a check of every dtype; `cast` to those of the model."""
    own = {k: t for k, t in model.state_dict().items() if isinstance(t, Tensor)}
    meta = any(t.is_meta for t in own.values())
    for key, like in own.items():
        t = state.get(key)
        if not isinstance(t, Tensor):
            continue
        floats = like.is_floating_point() and t.is_floating_point() and t.itemsize >= 2
        if t.dtype != like.dtype and not floats:
            _checks.fail("path", f"{key} of {like.dtype}", f"{file} with {t.dtype}")
        if meta and cast:  # where tensors are assigned, not copied
            state[key] = t.to(like.dtype)
    if meta:  # one Parameter for all names of one
        tied: dict[int, nn.Parameter] = {}
        for key, p in model.named_parameters(remove_duplicate=False):
            if isinstance(state.get(key), Tensor) and state[key].is_floating_point():
                state[key] = tied.setdefault(id(p), nn.Parameter(state[key], p.requires_grad))
    try:
        model.load_state_dict(state, assign=meta)
    except (RuntimeError, TypeError, ValueError, KeyError) as e:
        _checks.fail("path", f"the tensors of a {type(model).__name__}", f"{file} ({_short(e)})")


def _short(value: object) -> str:
    """A value or error in one line of printable characters."""
    try:
        line = " ".join(str(value)[: 10 * LONGEST].split())
    except RecursionError:
        line = f"a deeply nested {type(value).__name__}"
    text = "".join(c if c.isprintable() else "?" for c in line)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def write_atomically(path: Path, data: bytes) -> None:
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
