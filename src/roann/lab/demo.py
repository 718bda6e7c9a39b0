"""Three networks on one memory task: a table, a figure and a report."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from roann.lab import records, run
from roann.lab.config import Experiment, parse
from roann.lab.figures.curves import curve_of, draw_curves
from roann.lab.figures.spectra import draw_gradients, flow_of
from roann.lab.figures.style import drawn, panels, save
from roann.lab.progress import watcher
from roann.lab.report import write_report
from roann.lab.stop import Stop

LAG, THREADS, SECONDS = 1000, 1, 20.0
TITLE = "Remembering: roaRNN, RNN and LSTM side by side"
HEAD = ("network", "parameters", "recall", "loss", "singular values before training", "training")
MODELS: dict[str, dict[str, float]] = {
    "roa": {"lr": 0.03},  # the layer's defaults
    "vanilla-rnn": {"lr": 1e-4},  # the paper's
    "lstm": {"lr": 5e-3},  # the paper's
}


def experiment(name: str, steps: int) -> Experiment:
    """The demonstration's training of one model."""
    every = max(1, steps // 20)
    train = {"length": steps, "eval_every": every, "probe_at": [0], "threads": THREADS}
    return parse(
        {
            "task": {"name": "copying", "lag": LAG, "batch_size": 64},
            "model": {"name": name, "hidden_size": 128},
            "train": train | MODELS[name] | {"max_seconds": SECONDS, "clock": "processor"},
        }
    )


def demo(out: Path, steps: int, quiet: bool) -> None:
    """Train the three networks, print a table, draw a figure and write a report into `out`."""
    print(
        f"Copying memory: remember 10 symbols over {LAG:,} blank steps. Three networks of 128 "
        f"neurons, {SECONDS:.0f} seconds of processor time each.",
        flush=True,
    )
    results, folders = {}, {}
    stop = Stop()
    with stop.listening():
        for name in MODELS:
            folders[name] = out / name
            run.prepare(folders[name], experiment(name, steps))
            results[name] = run.execute(folders[name], stop, watcher(quiet))
    found = {name: records.read(folder / run.METRICS) for name, folder in folders.items()}
    print("\n" + table(results, found))
    trivial = results["roa"]["trivial"]["recall_accuracy"]
    picture = save(_overview(found, trivial), out / "demo.png")
    page = write_report(folders.values(), out / "report.html", title=TITLE)
    print(f"\nPicture: {picture}\nReport:  {page}")


def _probe(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """The probe before training."""
    return next((line for line in lines if line["kind"] == "probe"), {})


def table(results: dict[str, dict[str, Any]], found: dict[str, list[dict[str, Any]]]) -> str:
    """What each network learned and how gradients flow in it, aligned."""
    rows: list[tuple[str, ...]] = [HEAD]
    for name, result in results.items():
        sigma = _probe(found[name]).get("sigma") or [math.nan]
        size, seconds = f"{result['parameters']:,}", f"{result['seconds']:.0f} s"
        spectrum = f"{_power(sigma[-1])} to {_power(sigma[0])}"
        rows.append((name, size, *_scores(result["final"]["eval"]), spectrum, seconds))
    rows.append(("(guessing)", "", *_scores(results["roa"]["trivial"]), "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _scores(values: dict[str, float]) -> tuple[str, str]:
    return f"{100 * values['recall_accuracy']:.1f} %", f"{values['cross_entropy']:.4f}"


def _power(log_value: float | None) -> str:
    """e^log_value as a power of ten, also where it is too small for a float."""
    if log_value is None:
        return "0"
    if abs(log_value) < math.log(1000):
        return f"{math.exp(log_value):.2g}"
    return f"1e{log_value / math.log(10):.0f}"


@drawn
def _overview(found: dict[str, list[dict[str, Any]]], trivial: float) -> Figure:
    """Learning curves on the left, gradient norms along time on the right."""
    titles = ("Recall accuracy during training", "Gradient along time, before training")
    figure, (left, right) = panels(titles, width=4.6, height=3.4)
    curves = {name: [curve_of(lines, "recall_accuracy")] for name, lines in found.items()}
    draw_curves(
        left, curves, ylabel="recall accuracy", better="higher", trivial=trivial, percent=True
    )
    flows = {name: flow_of(_probe(lines)) for name, lines in found.items()}
    draw_gradients(right, {name: flow for name, flow in flows.items() if flow is not None})
    return figure
