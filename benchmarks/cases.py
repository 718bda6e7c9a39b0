"""What is measured: a table of cases, each a function from a plan to rows of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks import depth, memory, peers, scale, streaming
from benchmarks.flops import FILTERS
from benchmarks.peers import Sequences, recurrent
from benchmarks.plan import ADDING, COPYING, PSMNIST, Plan, measured
from benchmarks.record import Row
from benchmarks.timing import WORKS, Contender, call
from roann import RoaRNNCell


def sequences(name: str, case: Sequences, plan: Plan) -> list[Row]:
    """The case of one task: everyone, forward and training."""
    here = plan.sequences(case)
    made: list[Row] = []
    for work in WORKS:
        everyone = peers.contenders(here, work)
        made += measured(plan, name, work, everyone, here.sizes(), here.T, "nn.RNN")
    return made


def fnn(plan: Plan) -> list[Row]:
    """A deep network as one scan, against one module per layer."""
    layers, B = plan.few(50_000, 20), plan.few(100, 4)
    sizes = {"depth": layers, "B": B, "N": 2}
    made: list[Row] = []
    for work, everyone in depth.contenders(layers, B).items():
        made += measured(plan, "fnn", work, everyone, sizes, layers, depth.PER_LAYER)
    return made


def packed(plan: Plan) -> list[Row]:
    """Sequences of uniformly spread lengths, packed, against batches in which none ends early."""
    case = plan.sequences(PSMNIST)
    lengths = torch.linspace(case.T, 1, case.B).long()
    u, g, real = case.input(), case.cotangent(), int(lengths.sum())
    short = pack_padded_sequence(u, lengths)
    everyone = []
    layers = {"roann": case.roa(), "nn.RNN": nn.RNN(case.I, case.N, nonlinearity="relu")}
    for name, layer in layers.items():
        # Every step of the padded one is real: the strictest that "padded" can mean.
        for word, inputs, steps in (("packed", short, real), ("padded", u, case.T * case.B)):
            run = recurrent(layer, inputs, g, "train")
            everyone.append(Contender(f"{name} {word}", run, steps=steps))
    sizes = case.sizes() | {"real_steps": real}
    rows = measured(plan, "packed", "train", everyone, sizes, real, None)
    return [replace(row, versus=row.contender.replace("packed", "padded")) for row in rows]


def cell(plan: Plan) -> list[Row]:
    """One step of one sequence, as called in a loop."""
    I, N = PSMNIST.I, plan.few(PSMNIST.N, 16)
    rng = torch.Generator().manual_seed(0)
    u, x, g = (torch.rand(1, n, generator=rng) for n in (I, N, N))
    cells: dict[str, nn.Module] = {
        f"RoaRNNCell {filter}": RoaRNNCell(I, N, alpha=0.5 / 784, filter=filter, generator=rng)
        for filter in FILTERS
    }
    cells["nn.RNNCell"] = nn.RNNCell(I, N, nonlinearity="relu")
    made: list[Row] = []
    for work in ("forward", "forward with graph", "train"):
        everyone = [Contender(name, call(cell, (u, x), g, work)) for name, cell in cells.items()]
        made += measured(plan, "cell", work, everyone, {"B": 1, "N": N, "I": I}, 1, "nn.RNNCell")
    return made


def modes(plan: Plan) -> list[Row]:
    """What the memory modes cost in time."""
    case = plan.sequences(PSMNIST)
    u, g = case.input(), case.cotangent()
    everyone = []
    for mode in memory.MODES:
        run = recurrent(case.roa(memory=mode), u, g, "train", last_only=True)
        everyone.append(Contender(mode, run, twin=None if mode == "store" else "store"))
    return measured(plan, "modes", "train", everyone, case.sizes(), case.T, "store")


TASKS = {f"psmnist-{N}": replace(PSMNIST, N=N) for N in (178, 256, 512)}
TASKS |= {"copying": COPYING, "adding": ADDING}
CASES: dict[str, Callable[[Plan], list[Row]]] = {
    **{name: partial(sequences, name, case) for name, case in TASKS.items()},
    "fnn": fnn,
    "packed": packed,
    "cell": cell,
    "streaming": streaming.streaming,
    "modes": modes,
    "growth": scale.growth,
    "lab": scale.lab,
    "memory": scale.peak,
    "long": scale.long,
}
