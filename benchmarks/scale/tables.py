"""A record as Markdown, for a terminal and for `docs/scale.md`."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.scale.estimate import (
    GRID,
    PAPER_CASE,
    UPDATES,
    grid,
    marginal,
    update,
)
from benchmarks.scale.steps import ONE, SILENT, STRONG, WAYS, WEAK, WEAK_SILENT
from benchmarks.tables import ratio_text, seconds_text
from paper.pages import Table, markdown

MACHINES = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_PERIOD = 60.0  # seconds between checkpoints of a run, by default
_SILENT = {STRONG: SILENT, WEAK: WEAK_SILENT}


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """By name what stands between the markers of the page; equal for equal records."""
    made = {
        "scale-machine": _machine(record),
        "scale-steps": _steps(record),
        "scale-sweeps": _sweeps(record),
        "scale-kill": _kill(record),
        "scale-paper": _paper(record),
        "scale-grid": _grid(record),
    }
    return {name: markdown(table, right=True) for name, table in made.items()}


def text(record: dict[str, Any]) -> str:
    """All tables, and what was not measured."""
    parts = [f"### {name}\n\n{table}" for name, table in blocks(record).items()]
    parts += [f"- not measured: {what}: {why}\n" for what, why in record["skipped"].items()]
    return "\n".join(parts)


def _machine(record: dict[str, Any]) -> Table:
    found, settings = record["environment"], record["settings"]
    rows = {
        "processor": f"{found['cpu']}, {found['cores']} cores",
        "torch": found["torch"],
        "roann": f"{found['roann']}, commit {found.get('commit', 'unknown')}",
        "load before the run": str(found["load_before"]),
        "updates of each kind": str(settings["updates"] * settings["passes"]),
        "sizes": "small, from a quick run: the numbers mean nothing" if settings["quick"]
        else "full",
    }  # fmt: skip
    rows |= {"note": settings["note"]} if "note" in settings else {}
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
    """Of the larger sweep; overhead from the difference to the smaller one."""
    body = []
    for engine, (_, large) in record["sweeps"].items():
        beside, driver = marginal(record, engine)
        hour = 3600 * large["runs"] / large["seconds"]
        mean = large["trained"] / large["runs"]
        body.append(
            [engine, str(large["runs"]), f"{mean:.2f} s", f"{hour:,.0f}", f"{beside:.2f} s",
             f"{1e3 * driver:.0f} ms"]
        )  # fmt: skip
    head = ["engine", "runs", "training of one", "runs per hour", "overhead per run"]
    return [*head, "of it in the driver"], body


def _kill(record: dict[str, Any]) -> Table:
    found = record["kill"]
    if not found:
        return ["", "seconds"], [["not measured", "–"]]
    restart = found["restart"]
    rows = {
        "from the kill to the checkpoint read again": restart,
        "training repeated, here": found["lost"],
        "training repeated with checkpoints every 60 s, on average": DEFAULT_PERIOD / 2,
        "cost of a kill with checkpoints every 60 s, on average": restart + DEFAULT_PERIOD / 2,
    }
    return ["", "seconds"], [[name, f"{value:.1f}"] for name, value in rows.items()]


def _paper(record: dict[str, Any]) -> Table:
    """Strong scaling at the paper's batch, and weak scaling at that batch per machine."""
    model = update(record)
    body = []
    for machines in sorted({*MACHINES, model.best(), model.worth()}):
        seconds = model.seconds(machines)
        parts = model.parts(machines)
        sending = (parts["latency"] + parts["bytes"]) / seconds
        weak = model.seconds(machines, machines * model.batch)
        speed = model.seconds(1) / seconds
        body.append(
            [_named(machines, model.best(), model.worth()), seconds_text(seconds),
             f"{UPDATES * seconds / 3600:.2g} h", ratio_text(speed),
             f"{100 * speed / machines:.0f} %", f"{100 * parts['fixed'] / seconds:.0f} %",
             f"{100 * sending:.0f} %", f"{100 * model.seconds(1) / weak:.0f} %"]
        )  # fmt: skip
    head = ["machines", "per update", "20 epochs", "times faster", "efficiency"]
    return [*head, "sequential", "sending", "efficiency, 100 examples each"], body


def _named(machines: int, best: int, worth: int) -> str:
    notes = ["shortest update"] * (machines == best) + ["last above 50 %"] * (machines == worth)
    return f"{machines} ({', '.join(notes)})" if notes else f"{machines}"


def _grid(record: dict[str, Any]) -> Table:
    """10,000 runs of the paper's psMNIST, N = 512, one core each."""
    seconds = UPDATES * _median(record["steps"][PAPER_CASE][ONE])
    body = []
    for engine in record["sweeps"]:
        model = grid(record, engine, seconds)
        last = -(-GRID // model.cores)
        for machines in (1, 64, last):
            days = model.hours(machines) / 24
            plural = "" if machines == 1 else "s"
            named = f"{machines:,} machine{plural}, overhead of {engine}"
            body.append([named, f"{days:,.1f} days"])
        served = model.served()
        limit = "no limit was seen" if served > 1e6 else f"{served:,.0f} machines"
        body.append([f"the driver of {engine} can serve", limit])
    return ["", ""], body


def _median(found: dict[str, Any]) -> float:
    return float(statistics.median(found["samples"]))
