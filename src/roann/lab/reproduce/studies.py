"""The chapters that are not in the paper: ρ as a vector, the league, the bounds measured."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from roann.lab.reproduce.collapses import interval
from roann.lab.reproduce.exhibits import growth, logs, of_kind
from roann.lab.reproduce.judges import Arm
from roann.lab.reproduce.reading import ALIKE, LOST, Reading, best_of, median_of, spread
from roann.lab.reproduce.stability import stability
from roann.lab.reproduce.tables import ABSENT, Arms, number, shown, sizes, table, wall
from roann.lab.reproduce.verdicts import Book

Study = Sequence[Mapping[str, Any]]


_KINDS = {
    "scalar": "one ρ",
    "learned": "one ρ, learned",
    "learned-vector": "a ρ per neuron, learned",
    "multiscale": "spread ρ",
    "learned-multiscale": "spread ρ, learned",
}


def rho_kinds(arms: Arms, book: Book) -> list[str]:
    """ρ as a number or a vector, fixed or learned."""
    lines = [
        "One ρ for all neurons as in the paper, one per neuron, scales spread over two decades "
        "around it (and cut where they would remember less than two steps), and each of them "
        "learned. The seeds are the same in all arms, and so are their W, W_i, "
        "b and O. Lengths are such that no ρ was tuned for them, and runs start from a ρ that is "
        "small, middling or large. Cells: the best score of each seed. Better or worse is what "
        f"differs by more than {100 * ALIKE:g} % of the way from guessing to perfect; scores of "
        f"less than {100 * LOST:g} % of it are alike.",
        "",
    ]
    tasks: dict[str, dict[float, dict[str, Arm]]] = {}
    for name, arm in arms.items():
        found = re.fullmatch(r"rho-kinds-([a-z]+)-([a-z-]+?)(?:-rho-[\d.e-]+)?", name)
        assert found is not None
        starts = tasks.setdefault(found[1], {})
        starts.setdefault(float(arm[0].run.model["rho"]), {})[found[2]] = arm
    for task, starts in tasks.items():
        first = next(iter(next(iter(starts.values())).values()))[0]
        lines += [f"### {task}, {sizes(first)}", ""]
        rows = [
            [f"{rho:.4g}", *(_seeds(kinds.get(kind, [])) for kind in _KINDS)]
            for rho, kinds in sorted(starts.items())
        ]
        rows.append(["better than one ρ", *(_wins(starts.values(), kind) for kind in _KINDS)])
        rows.append(["lost at the end", *(_lost(starts.values(), kind) for kind in _KINDS)])
        lines += table(("ρ at the start", *_KINDS.values()), rows)
    return lines


def _seeds(arm: Arm) -> str:
    cells = []
    for r in arm:
        best = r.score("best")
        cells.append(r.run.status if best is None else shown(r.primary, best))
    return " · ".join(cells) or ABSENT


def _wins(starts: Iterable[Mapping[str, Arm]], kind: str) -> str:
    """How many runs are better and worse than that of the same seed and start with one fixed ρ."""
    if kind == "scalar":
        return ABSENT
    better = worse = pairs = 0
    for kinds in starts:
        plain = {r.run.seed: _worth(r) for r in kinds.get("scalar", [])}
        for r in kinds.get(kind, []):
            if r.run.seed in plain:
                pairs += 1
                gain = _worth(r) - plain[r.run.seed]
                better += gain > ALIKE
                worse += gain < -ALIKE
    return f"{better}, worse {worse}, of {pairs}" if pairs else ABSENT


def _lost(starts: Iterable[Mapping[str, Arm]], kind: str) -> str:
    runs = [r for kinds in starts for r in kinds.get(kind, [])]
    return f"{sum(r.lost for r in runs)} of {len(runs)}" if runs else ABSENT


def _worth(r: Reading) -> float:
    """How far the best score is on the way from guessing; whatever is called lost is alike."""
    best = r.score("best")
    return LOST if best is None else max(LOST, r.progress(best))


def league(arms: Arms, book: Book) -> list[str]:
    """Every system on every task of the league."""
    lines = [
        "Every sequence system of the lab, at about as many trained numbers as a roaRNN of 128 "
        "neurons (a leaky ESN trains its readout alone), for the same wall time on two cores, one "
        "run at a time; on psMNIST the quicker ones run for the same number of epochs, one seed "
        "each. What a model is made "
        "of, its learning rate and a bound on the gradient's norm are as published for the task, "
        "else as published for another task, else Adam at 0.001. All else is the same for all: "
        "batches, and Adam, which stands for RMSProp at the same rate. So systems are compared as "
        "one would first try them, not as their authors tuned them.",
        "",
        "The score is the best of all evaluations, of which slow systems have few; the time of a "
        "step is without them. A fast kernel and one that uses both cores help here, as they do "
        "in use. The last columns are "
        "the smallest and largest logarithms of the singular values of the Jacobian of the whole "
        "sequence, before and after training, of seed 0. −∞ is exactly zero: where units are "
        "inactive, or a delay line has run out, a part of the past is cut off, or all of it.",
        "",
    ]
    tasks: dict[str, list[tuple[str, Arm]]] = {}
    for name, arm in arms.items():
        task, system = re.match(r"(league-\w+-\d+)-(.*)", name).groups()  # type: ignore[union-attr]
        tasks.setdefault(task, []).append((system, arm))
    for task, competing in tasks.items():
        first = competing[0][1][0]
        sign = -1 if first.better == "higher" else 1
        worst = float("inf")
        competing.sort(key=lambda pair: _rank(pair[1], sign, worst))
        score = first.primary
        plan = first.run.config["train"]
        most = plan.get("max_seconds")
        budget = f"{plan['length']} epochs" if most is None else f"{number(most)} s"
        lines += [f"### {task.removeprefix('league-')}, {budget} each", ""]
        rows = [_league_row(system, arm, score) for system, arm in competing]
        head = (
            "system", "trained numbers", "steps", "evaluations", "ms per step", "median of best",
            "best", "lost", "ln σ before", "ln σ after",
        )  # fmt: skip
        lines += table(head, rows)
    return lines


def _rank(arm: Arm, sign: int, worst: float) -> float:
    value = median_of(arm, "best")
    return worst if value is None else sign * value


def _league_row(system: str, arm: Arm, score: str) -> list[str]:
    ends = [spread(probe) for probe in arm[0].probes]
    speeds = [1e3 * r.step_seconds for r in arm if r.step_seconds is not None]
    open_ = any(r.run.status == "unfinished" for r in arm)
    return [
        f"{system} (under way)" if open_ else system,
        f"{arm[0].run.facts['effective_parameters']:,}",
        f"{statistics.median(r.run.steps for r in arm):,.0f}",
        f"{statistics.median(len(r.curve(score)) for r in arm):,.0f}",
        number(statistics.median(speeds)) if speeds else ABSENT,
        shown(score, median_of(arm, "best")),
        shown(score, best_of(arm, "best")),
        f"{sum(r.lost for r in arm)} of {len(arm)}",
        interval(ends[0] if ends else None),
        interval(ends[-1] if len(ends) > 1 else None),
    ]


def bounds(study: Study) -> list[str]:
    """The theorems beside what is measured."""
    spectra = of_kind(study, "spectrum")
    if not spectra:
        return []
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for line in spectra:
        groups.setdefault((line["network"], line["setting"]), []).append(line)
    lines = [
        "No training here. Logarithms of the singular values of the Jacobian of L maps, at a W "
        "drawn small enough that the interval of the theorems says something (ρ = 1), and at the "
        "paper's initialisation and ρ, where it does not. An interval without a lower end, where "
        "ρ‖W‖ is too large for so few maps, holds what is below its upper end; one is called "
        "vacuous if it allows a gradient both to vanish and to explode in float32. A plain network "
        "has no interval of its own: it is held against those of the roa network of its width and "
        "seed. Figures are in the report.",
        "",
        *table(
            (
                "network", "N", "W", "L", "spectra in the finite interval", "no lower end",
                "in the paper's", "vacuous", "ln σ, shortest", "ln σ, longest",
            ),
            (_bounds_row(*key, group) for key, group in groups.items()),
        ),
        *_plain(spectra),
    ]  # fmt: skip
    lines += _worst(study) + _first_order(study)
    seconds = sum(line.get("seconds", 0.0) for line in study)
    return [*lines, f"Cost of this study: {wall(seconds)} on one core.", ""]


def _bounds_row(network: str, setting: str, group: list[Mapping[str, Any]]) -> list[str]:
    bounded = [line for line in group if "finite" in line]
    ordered = sorted(group, key=lambda line: (line["maps"], line["seed"]))
    counts = (
        sum(line["finite"]["inside"] for line in bounded),
        sum(line["finite"]["lower"] is None for line in bounded),
        sum(line["paper"]["inside"] for line in bounded),
        sum(line["vacuous"] for line in bounded),
    )
    return [
        network,
        f"{ordered[0]['width']}",
        "small" if setting == "tight" else "the paper's",
        f"{ordered[0]['maps']:,} … {ordered[-1]['maps']:,}",
        *(f"{count} of {len(bounded)}" if bounded else ABSENT for count in counts),
        *(interval((min(logs(line)), max(logs(line)))) for line in (ordered[0], ordered[-1])),
    ]


def _plain(spectra: Study) -> list[str]:
    """How many spectra of plain networks leave the interval of a roa network like them."""
    intervals = {
        (line["over"], line["setting"], line["maps"], line["seed"]): line["finite"]
        for line in spectra
        if line["network"] in ("roaFNN", "roaRNN")
    }
    words = []
    for network in dict.fromkeys(line["network"] for line in spectra if "finite" not in line):
        for setting, name in (("tight", "a small W"), ("paper", "the paper's W")):
            left: dict[int, list[bool]] = {}
            for line in spectra:
                ends = intervals.get((line["over"], setting, line["maps"], line["seed"]))
                if line["network"] == network and ends is not None:
                    low = -math.inf if ends["lower"] is None else ends["lower"]
                    inside = low <= min(logs(line)) and max(logs(line)) <= ends["upper"]
                    left.setdefault(line["maps"], []).append(not inside)
            out, of = sum(map(sum, left.values())), sum(map(len, left.values()))
            stays = [f"{maps:,}" for maps, flags in sorted(left.items()) if not all(flags)]
            if of:
                words.append(
                    f"A {network} leaves the interval of {name} in {out} of {of} cases"
                    + (f" (not always at L = {', '.join(stays)})." if stays else ".")
                )
    return [" ".join(words), ""] if words else []


def _worst(study: Study) -> list[str]:
    below = [line for line in of_kind(study, "worst-case") if line["sigma"][-1] < line["paper"]]
    if not below:
        return []
    return [
        "The paper's lower end holds only in the limit L → ∞. With φ = id and W = −O, inside its "
        "hypotheses, every singular value lies below it at every L measured, and on the finite "
        "one:",
        "",
        *table(
            ("L", "ln σ", "finite lower end", "the paper's lower end"),
            (
                [
                    f"{line['maps']:,}",
                    *(
                        f"{value:.6g}".replace("-", "−")
                        for value in (line["sigma"][-1], line["finite"], line["paper"])
                    ),
                ]
                for line in below
            ),
        ),
    ]


def _first_order(study: Study) -> list[str]:
    found = of_kind(study, "first-order")
    if not found:
        return []
    widest = max(line["width"] for line in found)
    rows = []
    for name in dict.fromkeys(line["filter"] for line in found):
        mine = [line for line in found if line["filter"] == name and line["width"] == widest]
        rows.append(
            [
                name,
                number(statistics.median(line["moved"] for line in mine)),
                number(statistics.median(line["diagonal"] for line in mine)),
                number(statistics.median(line["norm_W"] for line in mine)),
                number(growth(found, name)),
            ]
        )
    return [
        "Why a random orthogonal O does better than the identity: with eigenvalues spread over the "
        "circle, W acts to first order only through its diagonal in the eigenbasis of O, numbers "
        "of size 1; with O = I it acts with its eigenvalues, of size √N. Measured: the largest "
        "distance of an eigenvalue of (1 − α) O + α W from the circle, over α, beside what the "
        f"diagonal predicts, at N = {widest} (medians over seeds), and the exponent p of its "
        "growth N^p over all widths. A permutation has cycles, so some of its eigenvalues "
        "coincide, and W acts in full on what they share: it lies between.",
        "",
        *table(("O", "measured", "the diagonal says", "‖W‖", "exponent p"), rows),
    ]


OURS: dict[str, tuple[str, Callable[[Arms, Book], list[str]]]] = {
    "stable": ("Not in the paper: what was tried to make it stable", stability),
    "rho-kinds": ("Not in the paper: ρ as a vector, and learned", rho_kinds),
    "league": ("Not in the paper: the league", league),
}
"""By study of ours, its heading and what writes it."""
