"""What is measured: a table of cases, each a function from a plan to rows of the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from benchmarks import depth, flops, memory, peers, profile
from benchmarks.peers import WORKS, Sequences
from benchmarks.record import Row
from benchmarks.timing import MOST_ROUNDS, SAMPLE_SECONDS, Contender, race
from roann import RoaRNNCell


@dataclass(frozen=True)
class Plan:
    """How to measure.

    Attributes:
        rounds: n of "best of n", at least: short races have more.
        threads: of everyone.
        quick: small sizes, to see that everything works.
        skipped: filled with what could not be measured, and why.
    """

    rounds: int
    threads: int
    quick: bool = False
    skipped: dict[str, str] = field(default_factory=dict)

    @property
    def sample_seconds(self) -> float:
        """How long a sample should last at least."""
        return 1e-3 if self.quick else SAMPLE_SECONDS

    def few(self, full: int, quick: int) -> int:
        """A size: `full`, or `quick` in a quick run."""
        return quick if self.quick else full

    def sequences(self, case: Sequences) -> Sequences:
        """The case itself, or a small one like it."""
        return replace(case, T=12, B=4, N=16) if self.quick else case


# The paper's settings (Section IV).
PSMNIST = Sequences(T=784, B=100, N=178, I=1, rho=0.5, horizon=784)
COPYING = Sequences(T=2020, B=128, N=190, I=10, rho=3.0, horizon=2010, reads_all=True)
ADDING = Sequences(T=1000, B=50, N=128, I=2, rho=0.005, horizon=1000)
LONG = Sequences(T=1_000_000, B=1, N=128, I=1, rho=0.5, horizon=1_000_000)


def measured(
    plan: Plan,
    case: str,
    work: str,
    contenders: Sequence[Contender],
    sizes: dict[str, int],
    steps: int,
    versus: str | None,
) -> list[Row]:
    """The rows of one race."""
    found = race(
        contenders,
        plan.rounds,
        sample_seconds=plan.sample_seconds,
        most_rounds=plan.few(MOST_ROUNDS, 0),
    )
    rows = []
    for c in contenders:
        samples, calls, difference = found[c.name]
        if c.name == "limit":
            assert c.flops is not None
            samples = [peers.in_limit(s, c.flops) for s in samples]
        row = Row(case, work, c.name, min(samples), c.steps or steps, samples, calls, versus)
        row = replace(row, flops=c.flops, input_flops=c.input_flops)
        rows.append(replace(row, difference=difference, sizes=sizes))
    return rows


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
    """One step of one sequence, as whoever writes a loop would call it."""
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


def growth(plan: Plan) -> list[Row]:
    """Time per step as one size grows; the points of an axis take turns, too."""
    base = plan.sequences(PSMNIST)
    points = {
        "T": (4, 8, 16) if plan.quick else (196, 784, 3136, 6272),
        "B": (1, 2, 4) if plan.quick else (1, 10, 100, 400),
        "N": (8, 16, 24) if plan.quick else (64, 128, 256, 512),
    }
    made: list[Row] = []
    for axis, values in points.items():
        everyone = []
        for n in values:
            case = base.with_size(axis, n)
            run = peers.call(case.roa(), case.input(), case.cotangent(), "train")
            everyone.append(Contender(f"{axis} = {n}", run, steps=case.T))
        sizes = {k: v for k, v in base.sizes().items() if k != axis}
        first = everyone[0].name
        made += measured(plan, f"growth-{axis}", "train", everyone, sizes, 1, first)
    layers = (8, 16, 32) if plan.quick else (1_000, 10_000, 50_000, 200_000)
    B = plan.few(100, 4)
    everyone = [
        Contender(f"depth = {n}", depth.whole(n, B, "train", "qr"), steps=n) for n in layers
    ]
    sizes = {"B": B, "N": 2}
    return made + measured(
        plan, "growth-depth", "train", everyone, sizes, 1, f"depth = {layers[0]}"
    )


def lab(plan: Plan) -> list[Row]:
    """What the lab's training loop adds to the bare training step."""
    try:
        from benchmarks import lab_loop
    except ImportError as error:
        plan.skipped["lab"] = f"{error.name} is not installed (roann[lab] brings it)"
        return []
    case = plan.sequences(PSMNIST)
    updates = plan.few(10, 2)
    with lab_loop.contenders(case, updates, images=plan.few(60_000, 8)) as everyone:
        sizes = case.sizes() | {"updates": updates}
        return measured(plan, "lab", "train", everyone, sizes, updates, lab_loop.BARE)


def peak(plan: Plan) -> list[Row]:
    """Peak extra memory of a training step, by mode, each in a fresh process."""
    base = plan.sequences(PSMNIST)
    made: list[Row] = []
    everyone = ("store", "reversible") if plan.quick else (*memory.MODES, "nn.RNN", "naive loop")
    for T in (base.T,) if plan.quick else (base.T, 10 * base.T):
        case = replace(base, T=T)
        for contender in everyone:
            spec = memory.Spec(contender, plan.threads, asdict(case))
            made += _fresh(plan, f"memory-{T}", contender, spec, case.sizes(), T)
    return made


def long(plan: Plan) -> list[Row]:
    """A million steps, and a million layers, in constant memory."""
    case = replace(LONG, T=plan.few(LONG.T, 100))
    layers = plan.few(1_000_000, 100)
    spec = memory.Spec("reversible", plan.threads, asdict(case))
    made = _fresh(plan, "long-time", "RoaRNN reversible", spec, case.sizes(), case.T)
    spec = memory.Spec("reversible", plan.threads, depth=layers)
    sizes = {"depth": layers, "B": 1, "N": 2}
    return made + _fresh(plan, "long-depth", "RoaFNN reversible", spec, sizes, layers)


def _fresh(
    plan: Plan, case: str, name: str, spec: memory.Spec, sizes: dict[str, int], steps: int
) -> list[Row]:
    if not memory.resident():
        plan.skipped["memory"] = "this system has no /proc/self/status"
        return []
    found = memory.measure(spec)
    return [
        Row(
            case, "train", name, found.seconds, steps, [found.seconds],
            extra_bytes=found.extra, sizes=sizes, notes=found.notes,
        )
    ]  # fmt: skip


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
    "growth": growth,
    "lab": lab,
    "memory": peak,
    "long": long,
}
