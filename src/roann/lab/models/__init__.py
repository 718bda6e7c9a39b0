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
    deep,
    dilated,
    exprnn,
    fastrnn,
    fnn,
    gru,
    highway,
    indrnn,
    leaky_esn,
    lem,
    lipschitz,
    lmu,
    lru,
    lstm,
    nnrnn,
    nru,
    residual_mlp,
    roa,
    scornn,
    shuffling,
    unicornn,
    unitary,
    vanilla_rnn,
)
from roann.lab.models.base import Demand, Model, Row, SequenceModel, SequenceSystem
from roann.lab.models.heads import make_head
from roann.lab.streams import generator

__all__ = ["MODELS", "Model", "Row", "SequenceModel", "SequenceSystem", "build_model"]

MODELS: dict[str, Row] = {
    "roa": roa.ROA,
    "roa-rnn": roa.ROA_RNN,
    "eye-rnn": roa.EYE_RNN,
    "vanilla-rnn": vanilla_rnn.VANILLA_RNN,
    "lstm": lstm.LSTM,
    "gru": gru.GRU,
    "dilated-rnn": dilated.RNN,
    "dilated-cnn": dilated.CNN,
    "urnn": unitary.URNN,
    "fc-urnn": unitary.FC_URNN,
    "bn-lstm": bn_lstm.BN_LSTM,
    "exprnn": exprnn.EXPRNN,
    "scornn": scornn.SCORNN,
    "lipschitz-rnn": lipschitz.LIPSCHITZ,
    "antisymmetric-rnn": antisymmetric.ANTISYMMETRIC,
    "indrnn": indrnn.PLAIN,
    "res-indrnn": indrnn.RESIDUAL,
    "dense-indrnn": indrnn.DENSE,
    "shuffling-rnn": shuffling.SHUFFLING,
    "nru": nru.NRU,
    "lmu": lmu.LMU,
    "cornn": cornn.CORNN,
    "fastrnn": fastrnn.FASTRNN,
    "leaky-esn": leaky_esn.LEAKY_ESN,
    "nnrnn": nnrnn.NNRNN,
    "lem": lem.LEM,
    "unicornn": unicornn.UNICORNN,
    "lru": lru.LRU,
    "roa-fnn": roa.ROA_FNN,
    "fnn": fnn.FNN,
    "highway": highway.HIGHWAY,
    "residual-mlp": residual_mlp.RESIDUAL_MLP,
    "deep": deep.DEEP,
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
    if made.head_reads > 1 and demand.readout == "all":
        fail("reads", "1 for a task with an answer at every step", made.head_reads)
    if demand.horizon is not None and made.head_reads > max(1, demand.horizon):
        fail("reads", f"at most {demand.horizon}, the steps of the task", made.head_reads)
    width = made.output_size * made.head_reads
    head = make_head(width, made.head_hidden, demand.output_size, made.head_init, rng)
    return SequenceModel(made, head, demand.readout)
