"""A record as Markdown, for a terminal and for `docs/scale.md`."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.scale.estimate import UPDATES, Update, grid, marginal, shortest, update, worthwhile
from benchmarks.scale.runs import ENGINES
from benchmarks.scale.steps import ONE, SILENT, STRONG, WAYS, WEAK, WEAK_SILENT
from benchmarks.tables import ratio_text, seconds_text
from paper.pages import Table, markdown

MANY = 64
MACHINES = (1, 2, 4, 8, 16, 32, MANY)
DEFAULT_PERIOD = 60.0  # seconds between checkpoints of a run, by default
_SILENT = {STRONG: SILENT, WEAK: WEAK_SILENT}


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """By name what stands between the markers of the page; equal for equal records."""
    made = {
        "scale-machine": _machine(record),
        "scale-steps": _steps(record),
        "scale-sweeps": _sweeps(record),
        "scale-kill": _kill(record),
        "scale-answers": _answers(record),
        "scale-paper": _paper(record),
    }
    return {name: markdown(table, right=True) for name, table in made.items()}


def text(record: dict[str, Any]) -> str:
    """All tables, and what was not measured."""
    parts = [f"### {name}\n\n{table}" for name, table in blocks(record).items()]
    parts += [f"- not measured: {what}: {why}\n" for what, why in record["skipped"].items()]
    return "\n".join(parts)


def is_busy(environment: dict[str, Any]) -> bool:
    """Whether other programs ran before the measurement began."""
    return (environment["load_before"] or 0.0) > 0.5 * environment["cores"]


def _machine(record: dict[str, Any]) -> Table:
    found, settings = record["environment"], record["settings"]
    rows = {
        "processor": f"{found['cpu']}, {found['cores']} cores",
        "torch": found["torch"],
        "roann": f"{found['roann']}, commit {found.get('commit', 'unknown')}",
        "load before the run": f"{found['load_before']}"
        + ": other programs ran, do not rely on these numbers" * is_busy(found),
        "updates of each kind": str(settings["updates"] * settings["passes"]),
        "sizes": "small, from a quick run: the numbers mean nothing" if settings["quick"]
        else "full",
    }  # fmt: skip
    return ["", ""], [[name, value] for name, value in rows.items()]


def _steps(record: dict[str, Any]) -> Table:
    """Medians; the share lost is what the same processes need less if they do not talk."""
    body = []
    for case, ways in record["steps"].items():
        alone = _median(ways[ONE])
        for way in (w for w in WAYS if w.talk):
            taken = ways[way.name]
            seconds, sent, lost = _median(taken), "–", "–"
            if way.name in _SILENT:
                silent = _median(ways[_SILENT[way.name]])
                lost = f"{100 * max(0.0, 1 - silent / seconds):.0f} %"
                sent = f"{taken['sent'] / 1e6:.3g} MB"
            faster = alone * way.batch / seconds
            body.append(
                [f"{case}: {way.name}", seconds_text(seconds), ratio_text(faster), sent, lost]
            )
    return ["", "per update", "times faster", "sent per process", "lost to sending"], body


def _sweeps(record: dict[str, Any]) -> Table:
    """From the difference of a larger and a smaller sweep: what both begin with is apart."""
    body = []
    for engine in ENGINES:
        cells = ["–"] * 5
        if engine in record["sweeps"]:
            small, large = record["sweeps"][engine]
            each = (large["seconds"] - small["seconds"]) / (large["runs"] - small["runs"])
            mean, start = large["trained"] / large["runs"], small["seconds"] - each * small["runs"]
            beside, driver = marginal(record, engine)
            cells = [f"{3600 / each:,.0f}", f"{mean:.2f} s", f"{beside:.2f} s"]
            cells += [f"{1e3 * driver:.0f} ms", f"{max(0.0, start):.1f} s"]
        body.append([engine, *cells])
    head = ["engine", "runs per hour", "training of one", "overhead per run"]
    return [*head, "of it in the driver", "start of the sweep"], body


def _kill(record: dict[str, Any]) -> Table:
    found = record["kill"]
    if not found:
        return ["", "seconds"], [["not measured", "–"]]
    rows = {
        "from the kill until the checkpoint is read again": found["restart"],
        "training repeated: from the checkpoint to the kill": found["repeated"],
        "how much later the next checkpoint came": found["cost"],
        "expected with a checkpoint every 60 s": found["restart"] + DEFAULT_PERIOD / 2,
    }
    return ["", "seconds"], [[name, f"{value:.1f}"] for name, value in rows.items()]


def _answers(record: dict[str, Any]) -> Table:
    """What many machines give for one training and for a grid of them, and where it ends."""
    one = update(record)
    columns = [_answer(one.seconds, one.batch, UPDATES / 3600, "h")]
    if "ray" in record["sweeps"]:
        many = grid(record, "ray")
        columns.append(_answer(many.seconds, many.most(), 1 / 86400, "days"))
        served = (
            "over a million machines" if many.served() > 1e6 else f"{many.served():,.0f} machines"
        )
    else:
        columns.append(["–"] * 4)
        served = "–"
    names = ["1 machine", f"{MANY} machines", "shortest time", "efficiency of 50 % up to"]
    body = [list(row) for row in zip(names, *columns, strict=True)]
    body.append(["kept busy by one driver", "–", served])
    return ["", "one training", "10,000 trainings"], body


def _answer(seconds: Callable[[int], float], most: int, scale: float, unit: str) -> list[str]:
    """The cells of a column; a time in the unit is `scale` times the model's."""

    def taken(machines: int) -> str:
        value = scale * seconds(machines)
        return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.2g} {unit}"

    faster = ratio_text(seconds(1) / seconds(MANY))
    best, useful = shortest(seconds, most), worthwhile(seconds, most)
    return [taken(1), f"{taken(MANY)}, {faster} times faster",
            f"{taken(best)}, {best:,} machines", f"{useful:,} machines"]  # fmt: skip


def _paper(record: dict[str, Any]) -> Table:
    """Strong scaling at the paper's batch, and weak scaling at that batch per machine."""
    model = update(record)
    ends = {shortest(model.seconds, model.batch), worthwhile(model.seconds, model.batch)}
    body = [_paper_row(model, machines) for machines in sorted({*MACHINES, *ends})]
    head = ["machines", "per update", "20 epochs", "times faster", "efficiency"]
    head += ["lost: sequential", "lost: uneven", "lost: sending"]
    return [*head, "efficiency, 100 examples each"], body


def _paper_row(model: Update, machines: int) -> list[str]:
    seconds, alone = model.seconds(machines), model.seconds(1)
    weak = model.seconds(machines, machines * model.batch)
    parts = [f"{100 * part / seconds:.0f} %" for part in model.parts(machines).values()]
    return [f"{machines}", seconds_text(seconds), f"{UPDATES * seconds / 3600:.2g} h",
            ratio_text(alone / seconds), *parts, f"{100 * alone / weak:.0f} %"]  # fmt: skip


def _median(found: dict[str, Any]) -> float:
    return float(statistics.median(found["samples"]))
