"""Runs that had learnt and lost it again: how many, when, and what the probes saw before."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from roann.lab.reproduce.reading import HALF, LOST, Fall, Reading, spread
from roann.lab.reproduce.tables import ABSENT, number, shown, table
from roann.lab.reproduce.verdicts import RECALLED, Arm

Arms = Mapping[str, Arm]
EARLY = 50
"""Updates within which Adam's first, coherent steps show in ‖W‖."""
STEADY = 0.1
"""A ‖W‖ that moves by less than this part of itself is called steady."""


def interval(ends: tuple[float | None, float | None] | None) -> str:
    """Two ends."""
    return ABSENT if ends is None else f"{number(ends[0])} … {number(ends[1])}"


def seeds_of_copying(arms: Arms) -> list[str]:
    """Every seed: when it had learnt, where it ended, and what ‖W‖ and the spectrum did."""
    rows = []
    for name, arm in arms.items():
        for r in arm:
            probes = r.probes
            ends = [spread(probe) for probe in (probes[:1] + probes[-1:])] or [None]
            reached = r.first("recall_accuracy", RECALLED, "higher")
            rows.append(
                [
                    f"`{name}` seed {r.run.seed}",
                    ABSENT if reached is None else f"{reached:,}",
                    shown("accuracy", r.score("best")),
                    shown("accuracy", r.score("final")),
                    number(r.norm_W_after(0)),
                    number(r.norm_W_after(1)),
                    number(r.norm_W(EARLY)),
                    number(r.norm_W()),
                    interval(ends[0]),
                    interval(ends[-1]),
                    "lost" if r.lost else r.run.status,
                ]
            )
    if not rows:
        return []
    head = (
        "run", f"step to {100 * RECALLED:.0f} % recall", "best", "end", "‖W‖ at the start",
        "after 1 step", f"within {EARLY}", "largest", "ln σ at the start", "ln σ at the end", "",
    )  # fmt: skip
    return ["Every seed of the roaRNN, with what its probes saw:", "", *table(head, rows)]


def collapses(arms: Arms) -> list[str]:
    """Which seeds collapse, when, and what was seen before."""
    if not arms:
        return []
    lines = [
        f"A seed *collapses* where an evaluation above {100 * HALF:.0f} % of the way from guessing "
        f"to perfect is followed by one below {100 * LOST:.0f} %, or by numbers that are not "
        "finite.",
        "",
    ]
    fallen: list[tuple[Reading, Fall]] = []
    for name, arm in arms.items():
        falls = [(r, fall) for r in arm for fall in r.falls]
        seeds = {r.run.seed for r, _ in falls}
        lines.append(f"- `{name}`: {len(seeds)} of {len(arm)} seeds collapse.{_early(arm)}")
        fallen += falls
    lines.append("")
    if fallen:
        lines += [
            "The last probe before each, and the finite interval of the theorem there (logarithms; "
            "without a lower end ρ‖W‖ is too large for any):",
            "",
            *table(_HEAD, (_row(r, fall) for r, fall in fallen)),
        ]
    seen = [(r, fall, frames) for r, fall in fallen if (frames := _frames(r, fall))]
    return lines + _around(seen)


_HEAD = (
    "run", "last good evaluation", "gone by step", "and then", "probe at step", "‖W‖", "ln σ",
    "interval",
)  # fmt: skip


def _row(r: Reading, fall: Fall) -> list[str]:
    values = dict(r.curve(r.primary))
    before = [probe for probe in r.probes if probe["step"] <= fall.held]
    probe = before[-1] if before else {}
    bound = probe.get("bound") or {}
    later = [v for step, v in values.items() if step > fall.gone and r.progress(v) > HALF]
    then = str(r.run.result.get("cause", "")) if fall.diverged else "stays there"
    return [
        f"`{r.run.name}`",
        f"{shown(r.primary, values[fall.held])} at {fall.held:,}",
        f"{fall.gone:,}" + ("" if fall.diverged else f" ({shown(r.primary, values[fall.gone])})"),
        f"comes back to {shown(r.primary, max(later))}" if later else then,
        f"{probe['step']:,}" if probe else ABSENT,
        number(probe.get("norm_W")),
        interval(spread(probe)),
        interval((bound.get("lower"), bound.get("upper"))) if bound else ABSENT,
    ]


def _early(arm: Sequence[Reading]) -> str:
    """Whether the growth of ‖W‖ in the first updates sets collapsing seeds apart."""
    every = [r for r in arm if r.norm_W(EARLY) is not None]
    fell, others = (
        sorted(r.norm_W(EARLY) or 0 for r in every if bool(r.falls) == fallen)
        for fallen in (True, False)
    )
    if not fell or not others:
        return ""
    start = statistics.median(r.norm_W(0) or 0 for r in every)
    apart = fell[0] > others[-1]
    return (
        f" ‖W‖ starts at {number(start)} and within {EARLY} updates is "
        f"{_span(fell)} in them and {_span(others)} in the others: its early growth "
        + ("sets them apart." if apart else "does not set them apart.")
    )


def _span(values: Sequence[float]) -> str:
    return interval((values[0], values[-1])) if len(values) > 1 else number(values[0])


def _frames(r: Reading, fall: Fall) -> list[dict[str, Any]]:
    """What the black box saw of a fall: the first unbroken row of steps that reaches into it."""
    row: list[dict[str, Any]] = []
    for line in (line for line in r.run.records if line["kind"] == "leap"):
        if row and line["step"] != row[-1]["step"] + 1:
            if fall.held < row[-1]["step"]:
                break
            row = []
        row.append(line)
    return row if row and row[0]["step"] <= fall.gone and fall.held < row[-1]["step"] else []


def _around(seen: Sequence[tuple[Reading, Fall, list[dict[str, Any]]]]) -> list[str]:
    if not seen:
        return []
    head = ("run and step", "loss", "gradient", "update", "‖W‖", "ln σ", "interval's upper end")
    lines = [
        "Step by step around each, the weights having been kept. *Update* is how far the step "
        "moves a weight, root mean square, in learning rates:",
        "",
    ]
    rows = []
    for r, _, frames in seen:
        for frame in frames:
            ends = frame.get("sigma_min"), frame.get("sigma_max")
            rows.append(
                [
                    f"`{r.run.name}` {frame['step']:,}",
                    number(frame["loss"]),
                    number(frame["grad_norm"]),
                    number(_update(r, frame)),
                    number(frame.get("norm_W")),
                    interval(ends),
                    number((frame.get("bound") or {}).get("upper")),
                ]
            )
    return [*lines, *table(head, rows), *_why([(r, frames) for r, _, frames in seen])]


def _update(r: Reading, frame: Mapping[str, Any]) -> float | None:
    """How far a step moved a weight, in learning rates."""
    moved = frame.get("moved")
    return None if moved is None else float(moved) / float(r.run.config["train"]["lr"])


def _why(seen: Sequence[tuple[Reading, list[dict[str, Any]]]]) -> list[str]:
    """What grew before the loss leapt, and what did not."""
    norms, gradients, spectra, updates = [], [], [], []
    for r, frames in seen:
        worst = max(range(len(frames)), key=lambda k: float(frames[k]["loss"]))
        leap = next(k for k in range(len(frames)) if _leapt(frames, k) or k == worst)
        first, before, at, last = frames[0], frames[max(leap - 1, 0)], frames[leap], frames[worst]
        if not leap or not all(
            f.get(k) for f in (first, at, last) for k in ("norm_W", "sigma_max")
        ):
            continue
        norms.append(abs(at["norm_W"] / first["norm_W"] - 1))
        gradients.append(before["grad_norm"] / min(f["grad_norm"] for f in frames[:leap]))
        spectra.append((first["sigma_max"], last["sigma_max"]))
        moves = [u for f in frames[:worst] if (u := _update(r, f)) is not None]
        if moves:
            updates.append((moves[0], max(moves)))
    if not norms:
        return []
    words = (
        "The loss leaps where it is ten times that of the steps before. From the first of these "
        f"steps to the leap ‖W‖ changes by {100 * max(norms):.2g} % at most; the gradient has "
        f"grown {number(statistics.median(gradients))}-fold by the step before (median). From the "
        "first of these steps to the worst the largest ln σ goes from "
        f"{number(statistics.median(a for a, _ in spectra))} to "
        f"{number(statistics.median(b for _, b in spectra))} (medians)."
    )
    if updates:
        words += (
            " An update moves a weight by "
            f"{number(statistics.median(a for a, _ in updates))} learning rates in the first and "
            f"by up to {number(statistics.median(b for _, b in updates))} before the worst "
            "(medians)."
        )
    if max(norms) < STEADY and statistics.median(gradients) > 2:
        words += (
            " So ‖W‖ does not run away, and the interval, vacuous all along, gives no warning. Our "
            "reading: in a steep place the gradient grows within a few updates beyond what Adam's "
            "second moments remember, so that its steps, small while the gradient was small, "
            "become of the size of the learning rate in many weights at once, and open the "
            "spectrum. A learning rate that is never lowered makes this a matter of time; the "
            "paper, too, finds that running for longer sometimes gives rise to instabilities."
        )
    return [words, ""]


def _leapt(frames: Sequence[Mapping[str, Any]], k: int) -> bool:
    return k > 0 and frames[k]["loss"] > 10 * statistics.median(f["loss"] for f in frames[:k])
