"""What is measured: a table of cases, each a function from a plan to rows of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from benchmarks import depth, flops, memory, peers, profile, scale
from benchmarks.peers import WORKS, Sequences
from benchmarks.plan import ADDING, COPYING, PSMNIST, Plan, measured
from benchmarks.record import Row
from benchmarks.timing import Contender, race
from roann import RoaRNNCell


def sequence_case(name: str, case: Sequences) -> Callable[[Plan], list[Row]]:
    """The case of one task: everyone, forward and training."""

    def rows(plan: Plan) -> list[Row]:
        here = plan.sequences(case)
        made: list[Row] = []
        for work in WORKS:
            everyone = peers.contenders(here, work, plan.skipped)
            made += measured(plan, name, work, everyone, here.sizes(), here.T, "nn.RNN")
        return made

    return rows


def profiled(plan: Plan) -> list[Row]:
    """Where the time of a training step goes, and how far each part is from the limit."""
    made: list[Row] = []
    for N in (178, 256, 512):
        case = plan.sequences(replace(PSMNIST, N=N))
        u, g = case.input(), case.cotangent()
        for filter, of in (("qr", flops.ROA_DENSE), ("permutation", flops.ROA_STRUCTURED)):
            counts = profile.products(of)
            one = case.count(flops.Products(1, 0, 0), "forward")
            limit = peers.limit(one)
            run = peers.call(case.roa(filter), u, g, "train")
            samples: dict[str, list[float]] = {}
            for _ in range(1 + plan.rounds):
                run()
                for name, seconds in profile.parts(run).items():
                    samples.setdefault(name, []).append(seconds)
                took = race([limit], 1, sample_seconds=plan.sample_seconds)["limit"].samples[0]
                samples.setdefault("limit", []).append(peers.in_limit(took, one))
            for name, times in samples.items():
                count = one if name == "limit" else one * counts.get(name, 0)
                row = Row(f"profile-{N}", filter, name, min(times[1:]), case.T, times[1:])
                made.append(replace(row, flops=count or None, sizes=case.sizes()))
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
    u, g = case.input(), case.cotangent()
    short: PackedSequence = pack_padded_sequence(u, lengths)
    real = int(lengths.sum())
    layers = {"roann": case.roa(), "nn.RNN": nn.RNN(case.I, case.N, nonlinearity="relu")}
    everyone = []
    for name, layer in layers.items():
        padded = peers.call(layer, u, g, "train")
        everyone += [
            Contender(f"{name} packed", peers.call(layer, short, g, "train"), steps=real),
            # Every step of this one is real: the strictest that "padded" can mean.
            Contender(f"{name} padded", padded, steps=case.T * case.B),
        ]
    sizes = case.sizes() | {"real_steps": real}
    rows = measured(plan, "packed", "train", everyone, sizes, real, None)
    return [replace(row, versus=row.contender.replace("packed", "padded")) for row in rows]


def cell(plan: Plan) -> list[Row]:
    """One step of one sequence, as called in a loop."""
    I, N = PSMNIST.I, plan.few(PSMNIST.N, 16)
    rng = torch.Generator().manual_seed(0)
    u, x = torch.rand(1, I, generator=rng), torch.rand(1, N, generator=rng)
    cells: dict[str, nn.Module] = {
        f"RoaRNNCell {filter}": RoaRNNCell(I, N, alpha=0.5 / 784, filter=filter, generator=rng)
        for filter in ("qr", "permutation")
    }
    cells["nn.RNNCell"] = nn.RNNCell(I, N, nonlinearity="relu")

    g = torch.rand(1, N, generator=rng)

    def caller(cell: nn.Module, work: str) -> Callable[[], object]:
        parameters = list(cell.parameters())

        def forward() -> object:
            with torch.set_grad_enabled(work != "forward"):
                return cell(u, x)

        def train() -> None:
            for p in parameters:
                p.grad = None
            torch.autograd.backward(cell(u, x), g)

        return train if work == "train" else forward

    made: list[Row] = []
    for work in ("forward", "forward with graph", "train"):
        everyone = [Contender(name, caller(cell, work)) for name, cell in cells.items()]
        made += measured(plan, "cell", work, everyone, {"B": 1, "N": N, "I": I}, 1, "nn.RNNCell")
    return made


def modes(plan: Plan) -> list[Row]:
    """What the memory modes cost in time."""
    case = plan.sequences(PSMNIST)
    u, g = case.input(), case.cotangent()
    everyone = [
        Contender(mode, peers.call(case.roa(memory=mode), u, g, "train", last_only=True),
                  twin=None if mode == "store" else "store")
        for mode in memory.MODES
    ]  # fmt: skip
    return measured(plan, "modes", "train", everyone, case.sizes(), case.T, "store")


CASES: dict[str, Callable[[Plan], list[Row]]] = {
    **{
        f"psmnist-{N}": sequence_case(f"psmnist-{N}", replace(PSMNIST, N=N))
        for N in (178, 256, 512)
    },
    "copying": sequence_case("copying", COPYING),
    "adding": sequence_case("adding", ADDING),
    "profile": profiled,
    "fnn": fnn,
    "packed": packed,
    "cell": cell,
    "modes": modes,
    "growth": scale.growth,
    "lab": scale.lab,
    "memory": scale.peak,
    "long": scale.long,
}
