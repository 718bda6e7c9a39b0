"""Every sequence system of the lab at about the same number of parameters and the same time.

A system comes with its published settings (`Preset`) for the task, or for another task if it has
none, and with a width at which it trains about as many numbers as a roaRNN of 128 neurons.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from roann.lab.models import MODELS, Preset, Row

# Widths on the adding problem and on copying memory: 17,000 and 19,000 parameters, within a tenth.
# A system that trains its readout alone (leaky-esn) cannot get there.
WIDTHS: dict[str, tuple[int, int]] = {
    "roa-rnn": (128, 128),
    "eye-rnn": (128, 128),
    "vanilla-rnn": (128, 128),
    "lstm": (64, 63),
    "gru": (71, 71),
    "dilated-rnn": (32, 32),
    "dilated-cnn": (30, 31),
    "urnn": (972, 395),
    "fc-urnn": (126, 121),
    "bn-lstm": (63, 59),
    "exprnn": (179, 179),
    "scornn": (180, 179),
    "lipschitz-rnn": (90, 90),
    "antisymmetric-rnn": (182, 171),
    "indrnn": (128, 57),
    "res-indrnn": (38, 40),
    "shuffling-rnn": (606, 411),
    "nru": (64, 64),
    "lmu": (88, 88),
    "cornn": (90, 90),
    "fastrnn": (128, 128),
    "leaky-esn": (512, 512),
    "nnrnn": (126, 128),
    "lem": (64, 60),
    "unicornn": (90, 90),
    "lru": (36, 38),
}
# Systems with more than one width.
_MORE: dict[str, dict[str, tuple[int, int]]] = {
    "dense-indrnn": {"growth": (4, 4)},
    "shuffling-rnn": {"width": (19, 26)},
    "nru": {"memory_size": (64, 64)},
    "lmu": {"order": (107, 107)},
    "lru": {"width": (36, 38)},
}
# Systems whose published network for permuted sequential MNIST is a deeper one.
_DEEPER = {"indrnn": 55}
# An epoch of permuted sequential MNIST takes these at most some three minutes on one core.
QUICK = (
    "roa-rnn", "eye-rnn", "vanilla-rnn", "lstm", "dilated-cnn", "lipschitz-rnn",
    "antisymmetric-rnn", "indrnn", "cornn", "fastrnn", "nnrnn",
)  # fmt: skip
_LR = 1e-3  # where nothing was published for an optimiser like Adam


def systems() -> list[str]:
    """The names of the competing systems."""
    return [name for name, row in MODELS.items() if row.kind == "sequence"]


def changes(name: str, task: str) -> dict[str, Any]:
    """What makes an experiment on a task one of this system: model, optimiser and learning rate.

    Args:
        name: of the system.
        task: "adding", "copying" or "psmnist".
    """
    preset = _preset(MODELS[name], task)
    place = 1 if task == "copying" else 0
    widths = {"hidden_size": WIDTHS[name]} if name in WIDTHS else {}
    sizes = {key: pair[place] for key, pair in (widths | _MORE.get(name, {})).items()}
    if task == "psmnist" and name in _DEEPER:
        sizes["hidden_size"] = _DEEPER[name]
    config = dataclasses.replace(preset.config, **sizes)
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    made = {f"model.{key}": value for key, value in values.items() if value is not None}
    made |= {"model.name": name, "train.optimizer": "adam", "train.lr": _rate(name, task, preset)}
    if "clip_norm" in preset.settings:
        made["train.clip_norm"] = float(preset.settings["clip_norm"])
    return made


def _preset(row: Row, task: str) -> Preset:
    """The published setting for this task, else the first one, else the defaults."""
    for preset in row.presets.values():
        if preset.task == task:
            return preset
    return next(iter(row.presets.values()), Preset(task, row.config()))


def _rate(name: str, task: str, preset: Preset) -> float:
    """The published rate. RMSProp's serves Adam, whose steps have the same size; Adagrad's not."""
    if name == "eye-rnn":  # a tenth of the roaRNN's, as the paper has it
        return _rate("roa-rnn", task, _preset(MODELS["roa-rnn"], task)) / 10
    alike = preset.settings.get("optimizer", "adam") in ("adam", "rmsprop")
    return float(preset.settings.get("lr", _LR)) if alike else _LR
