"""The compared systems: one table, one row per system.

To add a system: its settings, its `SequenceSystem` (or depth `Model`) and its `Row` in a file here,
and one line below. Its tests come with the line.
"""

from __future__ import annotations

from roann._checks import choice, fail
from roann.lab.models import (
    antisymmetric,
    bn_lstm,
    cornn,
    depth,
    dilated,
    fastrnn,
    fnn,
    indrnn,
    leaky_esn,
    lem,
    lipschitz,
    lmu,
    lru,
    nnrnn,
    nru,
    orthogonal,
    roa,
    shuffling,
    torch_rnns,
    unicornn,
    unitary,
)
from roann.lab.models.base import Demand, Model, Preset, Row, SequenceModel, SequenceSystem
from roann.lab.models.heads import linear_head
from roann.lab.streams import generator

__all__ = ["MODELS", "Model", "Preset", "Row", "SequenceModel", "SequenceSystem", "build_model"]

MODELS: dict[str, Row] = {
    "roa-rnn": roa.ROA_RNN,
    "eye-rnn": roa.EYE_RNN,
    "vanilla-rnn": torch_rnns.VANILLA_RNN,
    "lstm": torch_rnns.LSTM,
    "gru": torch_rnns.GRU,
    "dilated-rnn": dilated.RNN,
    "dilated-cnn": dilated.CNN,
    "urnn": unitary.URNN,
    "fc-urnn": unitary.FC_URNN,
    "bn-lstm": bn_lstm.ROW,
    "exprnn": orthogonal.EXPRNN,
    "scornn": orthogonal.SCORNN,
    "lipschitz-rnn": lipschitz.ROW,
    "antisymmetric-rnn": antisymmetric.ROW,
    "indrnn": indrnn.PLAIN,
    "res-indrnn": indrnn.RESIDUAL,
    "dense-indrnn": indrnn.DENSE,
    "shuffling-rnn": shuffling.ROW,
    "nru": nru.ROW,
    "lmu": lmu.ROW,
    "cornn": cornn.ROW,
    "fastrnn": fastrnn.ROW,
    "leaky-esn": leaky_esn.ROW,
    "nnrnn": nnrnn.ROW,
    "lem": lem.ROW,
    "unicornn": unicornn.ROW,
    "lru": lru.ROW,
    "roa-fnn": roa.ROA_FNN,
    "fnn": fnn.FNN,
    "highway": depth.HIGHWAY,
    "residual-mlp": depth.RESIDUAL_MLP,
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
