"""Cases about size: growth of time, peak memory, a million steps, the cost of the lab's loop."""

from __future__ import annotations

from dataclasses import asdict, replace

from benchmarks import memory, peers
from benchmarks.plan import LONG, PSMNIST, Plan, measured
from benchmarks.record import Row
from benchmarks.timing import Contender


def growth(plan: Plan) -> list[Row]:
    """Time per step as sequences grow; their lengths take turns, too."""
    base, everyone = plan.sequences(PSMNIST), []
    for T in (4, 8, 16) if plan.quick else (196, 784, 3136, 6272):
        case = replace(base, T=T)
        run = peers.recurrent(case.roa(), case.input(), case.cotangent(), "train")
        everyone.append(Contender(f"T = {T}", run, steps=T))
    sizes = {name: n for name, n in base.sizes().items() if name != "T"}
    return measured(plan, "growth-T", "train", everyone, sizes, 1, everyone[0].name)


def lab(plan: Plan) -> list[Row]:
    """What the lab's training loop adds to the bare training step."""
    try:
        from benchmarks import lab_loop
    except ImportError as error:
        plan.skipped["lab"] = f"{error.name} is not installed (roann[lab] brings it)"
        return []
    case, updates = plan.sequences(PSMNIST), plan.few(10, 2)
    with lab_loop.contenders(case, updates, images=plan.few(60_000, 8)) as everyone:
        sizes = case.sizes() | {"updates": updates}
        return measured(plan, "lab", "train", everyone, sizes, updates, lab_loop.BARE)


def peak(plan: Plan) -> list[Row]:
    """Peak extra memory of a training step, by mode, each in a fresh process."""
    base = plan.sequences(PSMNIST)
    everyone = ("store", "reversible") if plan.quick else (*memory.MODES, "nn.RNN", "naive loop")
    made: list[Row] = []
    for T in (base.T,) if plan.quick else (base.T, 10 * base.T):
        case = replace(base, T=T)
        for contender in everyone:
            spec = memory.Spec(contender, plan.threads, asdict(case))
            made += _fresh(plan, f"memory-{T}", contender, spec, case.sizes(), T)
    return made


def long(plan: Plan) -> list[Row]:
    """A million steps, and a million layers, in constant memory."""
    case, layers = replace(LONG, T=plan.few(LONG.T, 100)), plan.few(1_000_000, 100)
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
    row = Row(case, "train", name, found.seconds, steps, [found.seconds])
    return [replace(row, extra_bytes=found.extra, sizes=sizes, notes=found.notes)]
