"""Runs that had learnt and lost it again: how many, when, and what the probes saw before."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from roann.lab.reproduce.collect import ELSEWHERE
from roann.lab.reproduce.judges import RECALLED
from roann.lab.reproduce.reading import HALF, LOST, Fall, Reading, spread
from roann.lab.reproduce.tables import ABSENT, Arms, number, shown, table

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
            last = probes[-1] if len(probes) > 1 else {}
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
                    interval(spread(probes[0]) if probes else None),
                    f"{interval(spread(last))} (step {last['step']:,})" if last else ABSENT,
                    "lost" if r.lost else r.run.status,
                ]
            )
    if not rows:
        return []
    head = (
        "run", f"step to {100 * RECALLED:.0f} % recall", "best", "end", "‖W‖ at the start",
        "after 1 step", f"within {EARLY}", "largest", "ln σ at the start", "ln σ, last probe", "",
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


def elsewhere(arms: Arms, book: Mapping[str, Arms]) -> list[str]:
    """What became of the same seeds on another processor, where sums are rounded otherwise."""
    lines = []
    for name, other in book.get(ELSEWHERE, {}).items():
        here = arms.get(name)
        if here is None:
            continue
        words = (
            f"`{name}`, the same seeds on two processors. {_processor(here)}: {_ends(here)}. "
            f"{_processor(other)}: {_ends(other)}."
        )
        if _ends(here) != _ends(other):
            words += (
                " Weights, sequences and settings are the same, and a training repeats to the bit "
                "on one processor; on another, and with another version of the kernel, sums are "
                "rounded otherwise, and over hundreds of updates that is enough. So a collapse is "
                "a risk of the setting, not the fate of a seed, and between arms of five seeds a "
                "difference as large as this may be luck."
            )
        lines += [words, ""]
    return lines


def _processor(arm: Sequence[Reading]) -> str:
    env = arm[0].run.env
    return f"{env.get('cpu')}, {env.get('native_kernel')} (commit {env.get('commit')})"


def _ends(arm: Sequence[Reading]) -> str:
    """Which seeds learn, collapse and are lost."""
    groups = {
        f"past {100 * RECALLED:.0f} %": [
            r for r in arm if r.first("recall_accuracy", RECALLED, "higher") is not None
        ],
        "collapsed": [r for r in arm if r.falls],
        "lost at the end": [r for r in arm if r.lost],
    }
    return "; ".join(
        f"{word} {', '.join(str(r.run.seed) for r in found) or 'none'}"
        for word, found in groups.items()
    )


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
    then = f"ends at {shown(r.primary, r.score('final'))}"
    if r.run.status == "diverged":
        then = str(r.run.result.get("cause", ""))
    return [
        f"`{r.run.name}`",
        f"{shown(r.primary, values[fall.held])} at {fall.held:,}",
        f"{fall.gone:,}" + ("" if fall.diverged else f" ({shown(r.primary, values[fall.gone])})"),
        (f"comes back to {shown(r.primary, max(later))}; " if later else "") + then,
        f"{probe['step']:,}" if probe else ABSENT,
        number(probe.get("norm_W")),
        interval(spread(probe)),
        interval((bound.get("lower"), bound.get("upper"))) if bound else ABSENT,
    ]


def _early(arm: Sequence[Reading]) -> str:
    """‖W‖ after the first updates, in seeds that collapse and in the others."""
    fell, others = (
        sorted(norm for r in arm if bool(r.falls) == fallen and (norm := r.norm_W(EARLY)))
        for fallen in (True, False)
    )
    if not fell or not others:
        return ""
    start = statistics.median(r.norm_W_after(0) or 0 for r in arm)
    words = (
        f" ‖W‖ starts at {number(start)} and within {EARLY} updates is {_span(fell)} in them and "
        f"{_span(others)} in the others: "
    )
    if fell[0] > others[-1]:
        return words + "larger."
    return words + ("smaller." if fell[-1] < others[0] else "no difference.")


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
            rows.append(
                [
                    f"`{r.run.name}` {frame['step']:,}",
                    number(frame["loss"]),
                    number(frame["grad_norm"]),
                    number(_update(r, frame)),
                    number(frame.get("norm_W")),
                    interval(spread(frame)),
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
    norms, losses, gradients, spectra, updates = [], [], [], [], []
    for r, frames in seen:
        worst = max(range(len(frames)), key=lambda k: float(frames[k]["loss"]))
        leap = next(k for k in range(len(frames)) if _leapt(frames, k) or k == worst)
        first, before, at, last = frames[0], frames[max(leap - 1, 0)], frames[leap], frames[worst]
        if not leap or not all(
            f.get(k) for f in (first, at, last) for k in ("norm_W", "sigma_max")
        ):
            continue
        norms.append(abs(at["norm_W"] / first["norm_W"] - 1))
        gradients.append(before["grad_norm"] / first["grad_norm"])
        losses.append(before["loss"] / first["loss"])
        spectra.append((first["sigma_max"], last["sigma_max"]))
        moves = [u for f in frames[:worst] if (u := _update(r, f)) is not None]
        if moves:
            updates.append((moves[0], max(moves)))
    if not norms:
        return []
    growth = statistics.median(gradients)
    words = (
        "The loss leaps where it is ten times that of the steps before. From the first of these "
        f"steps to the leap ‖W‖ changes by {100 * max(norms):.2g} % at most; by the step before it "
        f"the gradient is {number(growth)} times the first, the loss "
        f"{number(statistics.median(losses))} times (medians). From the first of these steps to "
        f"the worst the largest ln σ goes from {number(statistics.median(a for a, _ in spectra))} "
        f"to {number(statistics.median(b for _, b in spectra))} (medians)."
    )
    if max(norms) < STEADY:
        words += " So it is not ‖W‖ that runs away before the leap, and the interval, which knows "
        words += "only ‖W‖, gives no warning."
    if updates:
        usual, most = (statistics.median(pair[k] for pair in updates) for k in (0, 1))
        words += (
            f" An update moves a weight by {number(usual)} learning rates in the first and by up "
            f"to {number(most)} before the worst (medians of the {len(updates)} of "
            f"{len(norms)} runs that kept it)."
        )
        if growth > 2 and most > 2 * usual:
            words += (
                " Our reading: in a steep place the gradient grows within a few updates beyond "
                "what Adam's second moments remember, and with it the steps, in many weights at "
                "once, which open the spectrum. A learning rate that is never lowered makes this a "
                "matter of time."
            )
    return [words, ""]


def _leapt(frames: Sequence[Mapping[str, Any]], k: int) -> bool:
    return k > 0 and frames[k]["loss"] > 10 * statistics.median(f["loss"] for f in frames[:k])
