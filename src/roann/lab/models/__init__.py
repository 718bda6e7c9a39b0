"""The compared systems: one table, one row per system.

To add a system: one file here, with its settings, its `SequenceSystem` (or depth `Model`) and its
builder, and one row below. Its tests come with the row.
"""

from __future__ import annotations

from roann._checks import choice, fail
from roann.lab.models.base import Demand, Model, Preset, Row, SequenceModel, SequenceSystem
from roann.lab.models.fnn import FNN_PRESETS, FnnConfig, fnn
from roann.lab.models.heads import linear_head
from roann.lab.models.roa import (
    EYE_RNN_PRESETS,
    ROA_FNN_PRESETS,
    ROA_RNN_PRESETS,
    EyeRnnConfig,
    RoaFnnConfig,
    RoaRnnConfig,
    eye_rnn,
    roa_fnn,
    roa_rnn,
)
from roann.lab.models.torch_rnns import (
    GRU_PRESETS,
    LSTM_PRESETS,
    VANILLA_RNN_PRESETS,
    GruConfig,
    LstmConfig,
    VanillaRnnConfig,
    gru,
    lstm,
    vanilla_rnn,
)
from roann.lab.streams import generator

__all__ = ["MODELS", "Model", "Preset", "Row", "SequenceModel", "SequenceSystem", "build_model"]

MODELS: dict[str, Row] = {
    "roa-rnn": Row("sequence", RoaRnnConfig, roa_rnn, RoaRnnConfig(5), ROA_RNN_PRESETS),
    "eye-rnn": Row("sequence", EyeRnnConfig, eye_rnn, EyeRnnConfig(5), EYE_RNN_PRESETS),
    "vanilla-rnn": Row(
        "sequence", VanillaRnnConfig, vanilla_rnn, VanillaRnnConfig(5), VANILLA_RNN_PRESETS
    ),
    "lstm": Row("sequence", LstmConfig, lstm, LstmConfig(4), LSTM_PRESETS),
    "gru": Row("sequence", GruConfig, gru, GruConfig(4), GRU_PRESETS),
    "roa-fnn": Row("depth", RoaFnnConfig, roa_fnn, RoaFnnConfig(6, 3), ROA_FNN_PRESETS),
    "fnn": Row("depth", FnnConfig, fnn, FnnConfig(4, 3), FNN_PRESETS),
}


def build_model(name: str, config: object, demand: Demand, seed: int) -> Model:
    """The named model for a task, a function of the seed alone.

    Every part draws from its own stream ("weights", "filter", "head"), so two systems that differ
    in one part share the others: roa-rnn and eye-rnn of one seed have the same W, W_i, b, W_o, b_o.

    Args:
        name: a name in `MODELS`.
        config: settings of that row's class.
        demand: the task.
        seed: of the run.
    """
    row = MODELS[choice("model", name, MODELS)]
    if type(config) is not row.config:
        fail("config", f"a {row.config.__name__} for model {name!r}", type(config).__name__)
    if (row.kind == "depth") != (demand.readout == "none"):
        wanted = "feed-forward" if demand.readout == "none" else "sequence"
        fits = [other for other in MODELS if (MODELS[other].kind == "depth") == (wanted[0] == "f")]
        fail("model", f"a {wanted} model for this task", repr(name), f"take {', '.join(fits)}")
    made = row.build(config, demand, lambda stream: generator(seed, "model", stream))
    if isinstance(made, Model):
        return made
    assert demand.readout != "none"  # checked above, by the kind of the row
    rng = generator(seed, "model", "head")
    head = linear_head(made.output_size, demand.output_size, made.head_init, rng)
    return SequenceModel(made, head, demand.readout)
