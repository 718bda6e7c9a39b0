"""What is measured: a table of cases, each a function that yields rows of the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks import contenders, memory, streaming
from benchmarks.contenders import TORCH, Sequences, recurrent
from benchmarks.record import Row, SkippedError
from benchmarks.timing import Contender, call, race
from roann import PAPER, RoaRNNCell

# The paper's settings (Section IV).
PSMNIST = Sequences(T=784, B=100, N=178, I=1, rho=0.5, horizon=784)
COPYING = Sequences(T=2020, B=128, N=190, I=10, rho=3.0, horizon=2010, reads_all=True)
ADDING = Sequences(T=1000, B=50, N=128, I=2, rho=0.005, horizon=1000)
LONG = Sequences(T=1_000_000, B=1, N=128, I=1, rho=0.5, horizon=1_000_000)
ROUNDS, MOST_ROUNDS = 3, 25
QUICK_ROUNDS, QUICK_SAMPLE = 2, 1e-3


def raced(
    quick: bool,
    case: str,
    work: str,
    everyone: Sequence[Contender],
    sizes: dict[str, int],
    steps: int,
    versus: str | None,
) -> Iterator[Row]:
    """The rows of one race."""
    pace = (QUICK_ROUNDS, 0, QUICK_SAMPLE) if quick else (ROUNDS, MOST_ROUNDS)
    found = race(everyone, *pace)
    for c in everyone:
        timed = found[c.name]
        samples = [c.scale * seconds for seconds in timed.samples]
        row = Row(case, work, c.name, min(samples), c.steps or steps, samples, timed.calls, versus)
        yield replace(row, flops=c.flops, difference=timed.difference, sizes=sizes)


def small(case: Sequences, quick: bool) -> Sequences:
    """The case itself, or in a quick run a small one like it."""
    return replace(case, T=12, B=4, N=16) if quick else case


def sequences(name: str, case: Sequences, quick: bool) -> Iterator[Row]:
    """The case of one task: everyone, forward and training."""
    here = small(case, quick)
    for work in ("forward", "train"):
        everyone = contenders.over_time(here, work)
        yield from raced(quick, name, work, everyone, here.sizes(), here.T, "nn.RNN")


def fnn(quick: bool) -> Iterator[Row]:
    """A deep network as one scan, against one module per layer."""
    depth, B = (20, 4) if quick else (50_000, 100)
    sizes = {"depth": depth, "B": B, "N": 2}
    for work, everyone in contenders.over_depth(depth, B).items():
        yield from raced(quick, "fnn", work, everyone, sizes, depth, contenders.PER_LAYER)


def packed(quick: bool) -> Iterator[Row]:
    """Sequences of uniformly spread lengths, packed, against batches in which none ends early."""
    case = small(PSMNIST, quick)
    lengths = torch.linspace(case.T, 1, case.B).long()
    u, g, real = case.input(), case.cotangent(), int(lengths.sum())
    short = pack_padded_sequence(u, lengths)
    everyone = []
    layers = {"roann": case.roa("broad"), "nn.RNN": TORCH["nn.RNN"][0](case.I, case.N)}
    for name, layer in layers.items():
        # Every step of the padded one is real: the strictest that "padded" can mean.
        for word, inputs, steps in (("packed", short, real), ("padded", u, case.T * case.B)):
            run = recurrent(layer, inputs, g, "train")
            everyone.append(Contender(f"{name} {word}", run, steps=steps))
    sizes = case.sizes() | {"real_steps": real}
    for row in raced(quick, "packed", "train", everyone, sizes, real, None):
        yield replace(row, versus=row.contender.replace("packed", "padded"))


def cell(quick: bool) -> Iterator[Row]:
    """One step of one sequence, as called in a loop."""
    I, N = PSMNIST.I, 16 if quick else PSMNIST.N
    rng = torch.Generator().manual_seed(0)
    u, x, g = (torch.rand(1, n, generator=rng) for n in (I, N, N))
    cells: dict[str, nn.Module] = {
        f"RoaRNNCell {name}": RoaRNNCell(I, N, alpha=0.5 / 784, generator=rng, **settings)
        for name, settings in {"broad": {}, "the paper's": PAPER}.items()
    }
    cells["nn.RNNCell"] = nn.RNNCell(I, N, nonlinearity="relu")
    for work in ("forward", "forward with graph", "train"):
        everyone = [Contender(name, call(cell, (u, x), g, work)) for name, cell in cells.items()]
        yield from raced(quick, "cell", work, everyone, {"B": 1, "N": N, "I": I}, 1, "nn.RNNCell")


def modes(quick: bool) -> Iterator[Row]:
    """What the memory modes cost in time."""
    case, everyone = small(PSMNIST, quick), []
    u, g = case.input(), case.cotangent()
    for mode in memory.MODES:
        run = recurrent(case.roa(memory=mode), u, g, "train", last_only=True)
        everyone.append(Contender(mode, run, twin=None if mode == "store" else "store"))
    yield from raced(quick, "modes", "train", everyone, case.sizes(), case.T, "store")


def growth(quick: bool) -> Iterator[Row]:
    """Time per step as sequences grow; their lengths take turns, too."""
    base, everyone = small(PSMNIST, quick), []
    for T in (4, 8, 16) if quick else (196, 784, 3136, 6272):
        case = replace(base, T=T)
        run = recurrent(case.roa(), case.input(), case.cotangent(), "train")
        everyone.append(Contender(f"T = {T}", run, steps=T))
    sizes = {name: n for name, n in base.sizes().items() if name != "T"}
    yield from raced(quick, "growth-T", "train", everyone, sizes, 1, everyone[0].name)


def lab(quick: bool) -> Iterator[Row]:
    """What the lab's training loop adds to the bare training step."""
    try:
        from benchmarks import lab_loop
    except ImportError as error:
        raise SkippedError(f"{error.name} is not installed (roann[lab] brings it)") from None
    case, updates, images = small(PSMNIST, quick), *((2, 8) if quick else (10, 60_000))
    sizes = case.sizes() | {"updates": updates}
    with lab_loop.contenders(case, updates, images) as everyone:
        yield from raced(quick, "lab", "train", everyone, sizes, updates, lab_loop.BARE)


def peak(quick: bool) -> Iterator[Row]:
    """Peak extra memory of a training step, by mode."""
    base = small(PSMNIST, quick)
    everyone = ("store", "reversible") if quick else (*memory.MODES, "nn.RNN", "naive loop")
    for T in (base.T,) if quick else (base.T, 10 * base.T):
        for name in everyone:
            yield memory.peak(f"memory-{T}", name, name, replace(base, T=T))


def long(quick: bool) -> Iterator[Row]:
    """A million steps, and a million layers, in constant memory."""
    n = 100 if quick else 1_000_000
    yield memory.peak("long-time", "RoaRNN reversible", "reversible", replace(LONG, T=n))
    yield memory.peak("long-depth", "RoaFNN reversible", "reversible", n)


def streams(quick: bool) -> Iterator[Row]:
    """A step and a chunk of a stream, by width, and the memory of a long one."""
    for of_one in streaming.races(quick):
        yield from raced(quick, *of_one)
    case = replace(LONG, T=100 if quick else LONG.T)
    yield memory.peak("stream-long", "StreamingRoa qr", memory.STREAM, case)


TASKS = {f"psmnist-{N}": replace(PSMNIST, N=N) for N in (178, 256, 512)}
TASKS |= {"copying": COPYING, "adding": ADDING}
CASES: dict[str, Callable[[bool], Iterator[Row]]] = {
    **{name: partial(sequences, name, case) for name, case in TASKS.items()},
    "fnn": fnn,
    "packed": packed,
    "cell": cell,
    "streaming": streams,
    "modes": modes,
    "growth": growth,
    "lab": lab,
    "memory": peak,
    "long": long,
}
