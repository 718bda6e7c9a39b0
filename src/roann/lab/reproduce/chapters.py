"""The chapters of `docs/reproduction.md`: tables, and sentences chosen by what the records say."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from roann.lab.paper_figures import LINEAR_SOFTMAX, PSMNIST_TABLE, RHO, TRIALS, trained_for
from roann.lab.reproduce.collapses import collapses, elsewhere, seeds_of_copying
from roann.lab.reproduce.collect import ELSEWHERE
from roann.lab.reproduce.judges import CLOSE, PSMNIST, SUMMED, Arm, pairs
from roann.lab.reproduce.moons import moon
from roann.lab.reproduce.reading import ALIKE, Reading, best_of, median_of
from roann.lab.reproduce.tables import ABSENT, Arms, arms_table, number, shown, sizes, table
from roann.lab.reproduce.verdicts import Book


def copying(arms: Arms, book: Book) -> list[str]:
    """Fig. 2, and why seeds are lost."""
    lines = [
        "Ten symbols, L blanks, a marker, and the symbols must be said again. The score is the "
        "accuracy on those ten steps: over all steps, a network that recalls nothing is right in "
        f"{100 * 410 / 420:.1f} % at L = 400. The paper draws the best of five seeds; here are "
        "all.",
        "",
        *arms_table(arms),
    ]
    ours = {name: arm for name, arm in arms.items() if re.fullmatch(r"copying-\d+", name)}
    other = {
        f"{name}, elsewhere": [
            Reading(replace(r.run, name=f"{r.run.name}, elsewhere")) for r in book[ELSEWHERE][name]
        ]
        for name in book.get(ELSEWHERE, {})
        if name in ours
    }
    lines += seeds_of_copying(ours) + collapses({**ours, **other})
    return lines + elsewhere(ours, book)


def adding(arms: Arms, book: Book) -> list[str]:
    """Fig. 3."""
    rows = []
    for name, arm in arms.items():
        steps = [r.first("mse", SUMMED, "lower") for r in arm]
        rows.append([f"`{name}`", *[ABSENT if s is None else f"{s:,}" for s in steps]])
    most = max((len(row) for row in rows), default=1)
    task = next(iter(arms.values()))[0].run.task
    sequences = task["batch_size"] * task["eval_batches"]
    noise = math.sqrt((1 / 15 - 1 / 36) / sequences)  # of the squared distance of two sums from 1
    rows = [row + [""] * (most - len(row)) for row in rows]
    return [
        "T random numbers go by, two of them marked; their sum is asked for at the end. To answer "
        f"1 always scores 1/6, on {sequences} sequences give or take {number(noise)} (standard "
        "deviation): the best of many evaluations of a run that learns nothing lies well below.",
        "",
        *arms_table(arms),
        f"Training steps to a mean squared error below {SUMMED}, seed by seed (evaluated every "
        "100 steps). Elsewhere LEM is the record on this task, with about 1,900 to 2,000 steps at "
        "T = 2,000, 5,000 and 10,000 (Rusch et al. 2022):",
        "",
        *table(("run", *(f"seed {k}" for k in range(most - 1))), rows),
        *_norms_of_adding(arms),
    ]


def _norms_of_adding(arms: Arms) -> list[str]:
    """‖W‖ at the end of the seeds that solve it, beside those that do not."""
    lines = []
    for name, arm in arms.items():
        groups: dict[bool, list[float]] = {True: [], False: []}
        for r in arm:
            norm = r.probes[-1].get("norm_W") if len(r.probes) > 1 else None
            if isinstance(norm, float):
                groups[r.first("mse", SUMMED, "lower") is not None].append(norm)
        if all(groups.values()) and "rho" in arm[0].run.model:
            here, there = (", ".join(map(number, sorted(groups[key]))) for key in (True, False))
            lines.append(
                f"`{name}`: ‖W‖ starts at {number(arm[0].norm_W_after(0))} and ends at {here} in "
                f"the seeds that solve it, at {there} in the others."
            )
            if min(groups[True]) > max(groups[False]):
                lines[-1] += (
                    " Our reading: with α = ρ / T as small as here W must grow far before the "
                    "network is more than linear, and in the others it has not grown far enough."
                )
            lines.append("")
    return lines


_TELLING = (1, 10, 11)  # the first epoch, the last before the learning rate drops, and the next


def psmnist(arms: Arms, book: Book) -> list[str]:
    """Table 1 and Fig. 5."""
    rows = []
    for name, arm in arms.items():
        published = _published(arm[0])
        for r in arm:
            selected = r.score("selected") if r.validated else None
            rows.append(
                [
                    f"`{name}` seed {r.run.seed}",
                    f"{r.epochs}",
                    *(shown("accuracy", r.after(epoch)) for epoch in _TELLING),
                    shown("accuracy", r.score("best")),
                    shown("accuracy", r.score("final")),
                    shown("accuracy", selected),
                    shown("accuracy", published),
                ]
            )
    head = (
        "run", "epochs", *(f"after {epoch}" for epoch in _TELLING), "best test", "last",
        "chosen by validation", "paper, best test",
    )  # fmt: skip
    lines = [
        "The 784 pixels of a digit, one at a time in a fixed random order. The paper takes the "
        "best test accuracy of 20 epochs, so it stands first; the last epoch and, where 10,000 "
        "training images were kept aside, the epoch chosen by them stand beside it. A linear "
        f"softmax on the pixels, without any memory, scores {100 * LINEAR_SOFTMAX:.2f} %. The "
        "learning rate drops to a tenth after epoch 10. The picture of a digit (Fig. 4) and "
        "accuracy by epoch (Fig. 5) are in the report.",
        "",
        *arms_table(arms),
        *table(head, rows),
    ]
    for arm in arms.values():
        for r in arm:
            whole = r.run.config["train"]["length"]
            if r.epochs < whole:
                lines += [
                    f"`{r.run.name}` was stopped after epoch {r.epochs} of {whole}; the "
                    "command that makes it goes on from what is kept in `results/unfinished/`.",
                    "",
                ]
    return lines + _overfitting(arms) + _permutation(arms) + _published_table(arms)


def _published_table(arms: Arms) -> list[str]:
    """The paper's table, our networks among its systems."""
    rows = [(accuracy, name, weights, "the paper") for name, weights, accuracy in PSMNIST_TABLE]
    for arm in arms.values():
        best = best_of(arm, "best")
        if _published(arm[0]) is not None and best is not None:
            epochs = max(r.epochs for r in arm)
            weights = f"{arm[0].run.facts['parameters']:,}"
            rows.append((best, "roaRNN", weights, f"here, in {epochs} epochs"))
    return [
        "The paper's table with ours in it, by best test accuracy:",
        "",
        *table(
            ("system", "weights", "best test", "by"),
            (
                [name, weights, shown("accuracy", best), by]
                for best, name, weights, by in sorted(rows)
            ),
        ),
    ]


def _permutation(arms: Arms) -> list[str]:
    """What a permutation costs, if it does."""
    qr, cheap = arms.get("psmnist-178"), arms.get("psmnist-178-permutation")
    if not qr or not cheap:
        return []
    mine, theirs = best_of(cheap, "best"), median_of(qr, "best")
    if mine is None or theirs is None or mine >= theirs - CLOSE:
        return []
    return [
        f"A permutation in place of O is {100 * (theirs - mine):.1f} points below the median of "
        f"the dense one ({len(cheap)} seed). It costs less. Some of its eigenvalues coincide, and "
        "on what they share W acts in full (see the measured theorems below): a possible reason, "
        "not a proven one.",
        "",
    ]


def _overfitting(arms: Arms) -> list[str]:
    """Where a full training stays below the paper's accuracy, what the training batches score."""
    lines = []
    for name, arm in arms.items():
        published, best = _published(arm[0]), best_of(arm, "best")
        if published is None or best is None or arm[0].run.status != "finished":
            continue
        if best >= published - CLOSE:
            continue
        fits = [line["accuracy"] for r in arm for line in r.run.records[-40:] if _trained(line)]
        lines.append(
            f"`{name}` stays {100 * (published - best):.2f} points below the paper, with "
            f"{len(arm)} of its {TRIALS} trials. Its last training batches score "
            f"{shown('accuracy', statistics.fmean(fits) if fits else None)}"
            + (
                ": what is missing is generalisation, not training."
                if fits and statistics.fmean(fits) > best + 0.01
                else "."
            )
        )
    return [*lines, ""] if lines else []


def _trained(line: Mapping[str, Any]) -> bool:
    return line["kind"] == "train" and isinstance(line.get("accuracy"), float)


def _published(r: Reading) -> float | None:
    """The paper's accuracy for this network, trained on all images."""
    model = r.run.model
    same = model.get("filter") == "qr" and not r.validated
    return PSMNIST.get(model["hidden_size"]) if same else None


def ablation(arms: Arms, book: Book) -> list[str]:
    """Fig. 6."""
    lines = [
        "ρ = 1, and seeds in pairs: all arms of a seed have the same W, W_i, b and readout, only O "
        "differs. The identity has a tenth of the learning rate, and adding is done with tanh, as "
        "in the paper, which does not print the lengths of its sequences.",
        "",
    ]
    for task in ("copying", "adding", "psmnist"):
        mine = {name: arm for name, arm in arms.items() if name.startswith(f"ablation-{task}-")}
        if not mine:
            continue
        eye = mine.get(f"ablation-{task}-identity")
        rows = []
        for name, arm in mine.items():
            score = arm[0].primary
            values = sorted(v for r in arm if (v := r.score("best")) is not None)
            won = ABSENT
            if eye is not None and arm is not eye:
                won = "{} of {}".format(*pairs(arm, eye))
            rows.append(
                [
                    name.removeprefix(f"ablation-{task}-"),
                    shown(score, median_of(arm, "best")),
                    f"{shown(score, values[0])} … {shown(score, values[-1])}" if values else ABSENT,
                    shown(score, median_of(arm, "final")),
                    f"{sum(r.lost for r in arm)} of {len(arm)}",
                    won,
                ]
            )
        head = ("O", "median of best", "spread", "median at the end", "lost", "beats the identity")
        first = next(iter(mine.values()))[0]
        lines += [f"### {task}, {sizes(first)}", "", *table(head, rows)]
        lines += _lost_pairs(mine, f"ablation-{task}-")
    return lines


def _lost_pairs(mine: Arms, stem: str) -> list[str]:
    """Where the random O is no better than the identity: what every filter has with that seed."""
    qr, eye = mine.get(f"{stem}qr", []), mine.get(f"{stem}identity", [])
    lines = []
    for r in qr:
        if pairs([r], eye) == (0, 1):
            scores = [
                f"{name.removeprefix(stem)} {shown(r.primary, other.score('best'))}"
                for name, arm in mine.items()
                for other in arm
                if other.run.seed == r.run.seed
            ]
            lines += [f"The pair of seed {r.run.seed} is lost: {', '.join(scores)}.", ""]
    return lines


def rho(arms: Arms, book: Book) -> list[str]:
    """The ρ grid."""
    grids: dict[str, dict[float, Arm]] = {}
    for name, arm in arms.items():
        grids.setdefault(name.partition("-rho-")[0], {})[float(arm[0].run.model["rho"])] = arm
    lines = []
    for grid in grids.values():
        first = next(iter(grid.values()))[0]
        task = str(first.run.task["name"])
        scored = {r: v for r, arm in grid.items() if (v := median_of(arm, "final")) is not None}
        rows = [
            [
                f"{value:.4g}",
                shown(first.primary, best_of(arm, "best")),
                shown(first.primary, median_of(arm, "final")),
                f"{sum(r.lost for r in arm)} of {len(arm)}",
            ]
            for value, arm in sorted(grid.items())
        ]
        lines += [f"### {task}, {sizes(first)}", ""]
        lines += table(("ρ", "best", "median at the end", "lost"), rows)
        if scored:
            lines += [_best_rho(grid, scored, RHO[task]), ""]
    return lines


def _best_rho(grid: Mapping[float, Arm], scored: Mapping[float, float], paper: float) -> str:
    """Which ρ ends best, all that end as well, and what larger ones do."""
    first = next(iter(grid.values()))[0]
    far = {rho: first.progress(value) for rho, value in scored.items()}
    best = [rho for rho in sorted(far) if far[rho] > max(far.values()) - ALIKE]
    words = f"Best here, within {100 * ALIKE:g} % of the way: ρ = "
    words += ", ".join(f"{rho:.4g}" for rho in best)
    words += f"; the paper's figure has {paper:.4g}."
    above = [r for rho, arm in grid.items() if rho > best[-1] for r in arm]
    if above:
        words += f" At a larger ρ {sum(r.lost for r in above)} of {len(above)} runs are lost."
    steps = first.run.config["train"]["length"]
    return f"{words} The order is that after {steps:,} steps on a short task."


def _trained_so_far(r: Reading) -> int:
    plan = r.run.config["train"]
    if r.run.status == "diverged":
        return int(plan["length"])
    return r.epochs if plan["unit"] == "epoch" else r.run.steps


_DRAWN = {
    "fig2": ("copying-10000-rnn", "copying-10000-lstm"),
    "fig3": ("adding-5000-rnn", "adding-5000-lstm"),
}
"""Curves of the paper's figures that no arm of the plan makes."""


def departures(book: Book) -> list[str]:
    """Where a run is smaller than the paper's, and what else is not as there."""
    rows = []
    for figure in CHAPTERS:
        for name, arm in book.get(figure, {}).items() if figure != "rho" else ():
            first, plan = arm[0].run, arm[0].run.config["train"]
            if figure == "table1" and _published(arm[0]) is None:
                continue  # not in the paper
            paper = trained_for(first.task, first.model)
            if figure == "fig6" and plan["unit"] != "epoch":
                paper = None  # of these the paper prints no lengths
            done = min(_trained_so_far(r) for r in arm)
            short = paper is not None and done < paper
            if len(arm) < TRIALS or short:
                words = f"{done:,} of {paper:,} {plan['unit']}s" if short else "as there"
                if paper is None and figure != "fig1":
                    words = f"{done:,} {plan['unit']}s; the paper's number is not printed"
                rows.append([f"`{name}`", f"{len(arm)} of {TRIALS}", words])
        rows += [
            [f"`{name}`", f"0 of {TRIALS}", "not run"]
            for name in _DRAWN.get(figure, ())
            if name not in book.get(figure, {})
        ]
    lines = [
        "Fewer seeds or steps than in the paper, for the cost of it:",
        "",
        *table(("run", "seeds", "training"), rows),
        "Seeds are 0, 1, 2 and so on; the paper's were drawn.",
    ]
    sums = next((arm[0] for arm in book.get("fig3", {}).values()), None)
    if sums is not None:
        batch = sums.run.task["batch_size"]
        lines[-1] += (
            f" Adding is evaluated on {batch * sums.run.task['eval_batches']} sequences, the "
            f"paper's on one batch of {batch}."
        )
    return [*lines, ""]


CHAPTERS: dict[str, tuple[str, Callable[[Arms, Book], list[str]]]] = {
    "fig1": ("Fig. 1: the double moon", moon),
    "fig2": ("Fig. 2: copying memory", copying),
    "fig3": ("Fig. 3: the adding problem", adding),
    "table1": ("Table 1 and Figs. 4 and 5: permuted sequential MNIST", psmnist),
    "fig6": ("Fig. 6: identity or random orthogonal", ablation),
    "rho": ("The ρ grid", rho),
}
"""By figure of the paper, its heading and what writes it."""
