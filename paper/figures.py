"""The pictures of the findings, from the records alone: `python -m paper tables` draws them."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from typing import NamedTuple

import torch
from matplotlib.figure import Figure

from roann import RoaRNN
from roann.diagnostics import eigenvalues, step_jacobian
from roann.lab.figures import spectra
from roann.lab.figures.style import drawn, legend, log_axis, looks, panels
from roann.lab.report import Arm

_RATE = re.compile(r"(\w+)-(\d+)-lr-([\d.]+)")
_CAP = re.compile(r"(.+?)(?:-\d+)?-(?:cap-([\d.]+)|no-cap)")
SIZES = ("34k", "69k", "270k-as-the-others", "270k-lower-rate", "270k")  # of psMNIST
SPECTRA = ("still", "slow", "spread", "broad", "qr")


class Words(NamedTuple):
    """How the runs of a task are called in a picture."""

    title: str
    score: str = "mean squared error"
    unit: str = "steps"
    optimizer: str = "Adam"


WORDS = {
    "copying": Words("copying", "recall"),
    "adding": Words("adding"),
    "psmnist": Words("psMNIST", "accuracy"),
    "double-moon": Words("double moon"),
    "layers": Words("double moon", unit="layers", optimizer="SGD"),
}
Curves = dict[str, dict[int, dict[float, float]]]
"""Task → length → learning rate → best score of the worst seed."""


def by_rate(arms: Mapping[str, Arm]) -> Curves:
    """The curves of a study whose arms are called task-length-lr-rate."""
    found: Curves = {}
    for match, arm in ((_RATE.fullmatch(name), arm) for name, arm in arms.items()):
        best = _best(arm)
        if match is not None and best:
            worst = (min if arm.goal.better == "higher" else max)(best)
            found.setdefault(match[1], {}).setdefault(int(match[2]), {})[float(match[3])] = worst
    return found


def by_cap(arms: Mapping[str, Arm]) -> dict[str, dict[str, list[float]]]:
    """Task → cap, "none" for none → best score of every seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for match, arm in ((_CAP.fullmatch(name), arm) for name, arm in arms.items()):
        if match is not None and _best(arm):
            found.setdefault(match[1], {})[match[2] or "none"] = _best(arm)
    return found


def _best(arm: Arm) -> list[float]:
    return [o.best for o in arm.outcomes if o.best is not None]


@drawn
def rates(arms: Mapping[str, Arm]) -> Figure:
    """The best score of the worst seed against the learning rate, a line for each length."""
    tasks = by_rate(arms)
    figure, grid = panels([WORDS[task].title for task in tasks])
    for axes, (task, lengths) in zip(grid, tasks.items(), strict=True):
        words = WORDS[task]
        for look, (length, points) in zip(
            looks(map(str, lengths)).values(), lengths.items(), strict=True
        ):
            x, label = sorted(points), f"{length:,} {words.unit}"
            axes.plot(x, [points[rate] for rate in x], label=label, **look.line(len(x)))
        axes.set_xlabel(f"learning rate of {words.optimizer}")
        axes.set_ylabel(words.score)
        log_axis(axes, "x")
        if words.score.endswith("error"):
            log_axis(axes, "y")
        legend(axes)
    return figure


@drawn
def caps(arms: Mapping[str, Arm]) -> Figure:
    """The best score of every seed, and their median, against the cap on ‖W‖."""
    tasks = by_cap(arms)
    figure, grid = panels([WORDS[task].title for task in tasks], width=2.9)
    for axes, (task, found) in zip(grid, tasks.items(), strict=True):
        look = next(iter(looks([task]).values()))
        names = sorted(found, key=lambda cap: float("inf") if cap == "none" else float(cap))
        for place, name in enumerate(names):
            axes.plot([place] * len(found[name]), found[name], "o", color=look.color, alpha=0.45)
        axes.plot([statistics.median(found[name]) for name in names], color=look.color)
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("cap on ‖W‖")
        axes.set_ylabel(WORDS[task].score)
        if WORDS[task].score.endswith("error"):
            log_axis(axes, "y")
    return figure


@drawn
def epochs(arms: Mapping[str, Arm]) -> Figure:
    """Error rate on the validation images, and training loss, of networks on psMNIST."""
    runs = {size: arms[f"psmnist-{size}"].runs[0] for size in SIZES}
    figure, grid = panels(["validation", "training"], width=4.2)
    for size, look in looks(runs).items():
        run = runs[size]
        seen = [line for line in run.of_kind("eval") if line["set"] == "validation"]
        train, every = run.of_kind("train"), seen[0]["step"]
        label = f"{run.result['parameters'] / 1000:.0f}k, rate {run.config['train']['lr']:g}"
        label += f", ρ = {run.config['model']['rho']:g}"
        errors = [1 - line["accuracy"] for line in seen]
        grid[0].plot([line["epoch"] for line in seen], errors, label=label, **look.line(9))
        x = [line["step"] / every for line in train]
        grid[1].plot(x, [line["loss"] for line in train], **look.line(9))
    for axes, what in zip(grid, ("error rate", "loss, with smoothed labels"), strict=True):
        axes.set_xlabel("epoch")
        axes.set_ylabel(what)
        log_axis(axes, "y")
    legend(grid[0])
    return figure


def annuli(N: int = 96, horizon: int = 30) -> Figure:
    """Eigenvalues of a step's Jacobian with each spectrum, and with the paper's random filter."""
    found = {}
    for name in SPECTRA:
        rng = torch.Generator().manual_seed(0)
        rnn = RoaRNN(1, N, horizon=horizon, filter=name, generator=rng)
        jacobian = step_jacobian(rnn, torch.randn(N, generator=rng), torch.ones(1))
        found[name] = torch.view_as_real(eigenvalues(jacobian)).tolist()
    return spectra.eigenvalues(found)


def pictures(found: Mapping[str, Mapping[str, Arm]]) -> dict[str, Figure]:
    """Every picture by the name of its file, from the arms of all figures."""
    return {
        "recipe-rates.svg": rates({**found["recipe-rates"], **found["recipe-moon"]}),
        "recipe-cap.svg": caps(found["recipe-cap"]),
        "recipe-psmnist.svg": epochs(found["recipe"]),
        "annuli.svg": annuli(),
    }
