"""The chapter on what was tried where the paper's setting is unstable."""

from __future__ import annotations

from typing import NamedTuple

from roann.lab.reproduce.collapses import collapses, seeds_of_copying
from roann.lab.reproduce.collect import ELSEWHERE
from roann.lab.reproduce.judges import RECALLED, SUMMED, Arm
from roann.lab.reproduce.reading import Reading
from roann.lab.reproduce.tables import ABSENT, Arms, arms_table, shown, table
from roann.lab.reproduce.verdicts import Book

_IN_A_ROW = 3  # evaluations that meet the goal, and the training may stop
_BASES = ("copying-400", "copying-2000", "copying-10000", "adding-1000")


def stability(arms: Arms, book: Book) -> list[str]:
    """What was tried to make the paper's setting stable, over the same seeds."""
    figures = book.get("fig2", {}), book.get("fig3", {})
    base = {name: arm for runs in figures for name, arm in runs.items() if name in _BASES}
    lines = [
        "The chapters above keep the paper's setting, also where it is unstable. This one changes "
        "it: a linear warm-up of the learning rate over its first steps, a smaller learning rate, "
        "a bound on the norm of the gradient, a smaller ρ. The seeds are the same; the unchanged "
        "runs stand first.",
        "",
        *arms_table({**base, **arms}),
    ]
    for name, arm in arms.items():
        family = next((b for b in base if name.startswith(f"{b}-")), None)
        if family is not None:
            seeds = {r.run.seed for r in arm}
            length = arm[0].run.config["train"]["length"]
            same = [r.until(length) for r in base[family] if r.run.seed in seeds]
            lines.append(_beside(name, arm, same))
    lines += _luck(base, book)
    copying = {name: arm for name, arm in arms.items() if arm[0].primary == "recall_accuracy"}
    lines += ["", *_kept({**base, **arms}), *seeds_of_copying(copying), *collapses(copying)]
    return lines


def _luck(base: Arms, book: Book) -> list[str]:
    """How much the counts of an unchanged setting differ by rounding alone."""
    lines = []
    for name, other in book.get(ELSEWHERE, {}).items():
        here, there = (sum(bool(r.falls) for r in arm) for arm in (base.get(name, []), other))
        if name in base and here != there:
            lines += [
                "",
                f"How much of this is luck? Unchanged, `{name}` collapses in {here} of "
                f"{len(base[name])} seeds here, and in {there} of the same {len(other)} on another "
                "processor, where sums are rounded otherwise (Fig. 2 above).",
            ]
    return lines


class _Count(NamedTuple):
    """What became of the seeds of an arm."""

    collapse: int
    lost: int
    met: list[int]

    @classmethod
    def of(cls, arm: Arm) -> _Count:
        """Of an arm."""
        steps = [r.first(r.primary, _goal(r), r.better) for r in arm]
        met = sorted(step for step in steps if step is not None)
        return cls(sum(bool(r.falls) for r in arm), sum(r.lost for r in arm), met)


def _beside(name: str, arm: Arm, base: Arm) -> str:
    """What a change did, over the same seeds: collapsed, lost at the end, and met the goal."""
    now, was = _Count.of(arm), _Count.of(base)
    words = []
    for count, of in ((now, len(arm)), (was, len(base))):
        at = f" (first at steps {', '.join(f'{step:,}' for step in count.met)})" * bool(count.met)
        words.append(
            f"{count.collapse} of {of} seeds collapse, {count.lost} end lost, {len(count.met)} "
            f"meet the goal at some time{at}"
        )
    leaps = [r.run.seed for r in arm if any(line["kind"] == "leap" for line in r.run.records)]
    if leaps and not now.collapse:
        words[0] += f", while the loss leapt in seeds {', '.join(map(str, leaps))} and came back"
    verdict = _verdict(now, was)
    if any(r.run.status == "unfinished" for r in (*arm, *base)):
        verdict = "Not judged while runs are unfinished."
    return f"- `{name}`: {words[0]}; without the change {words[1]}. {verdict}"


def _verdict(now: _Count, was: _Count) -> str:
    gains = {
        "collapses": was.collapse - now.collapse,
        "losses": was.lost - now.lost,
        "goals met": len(now.met) - len(was.met),
    }
    better, worse = ([name for name, gain in gains.items() if sign * gain > 0] for sign in (1, -1))
    if better and worse:
        return f"It helps in {' and '.join(better)}, and harms in {' and '.join(worse)}."
    word = "it helps" if better else "it harms" if worse else "it makes no difference"
    return f"By these counts {word}."


def _goal(r: Reading) -> float:
    return SUMMED if r.primary == "mse" else RECALLED


def _met(r: Reading, value: float | None) -> bool:
    if value is None:
        return False
    return value <= _goal(r) if r.better == "lower" else value >= _goal(r)


def _kept(arms: Arms) -> list[str]:
    """What the best checkpoint and a rule to stop save: both are read off the runs there are."""
    rows = []
    for name, arm in arms.items():
        stops = [(r, r.first(r.primary, _goal(r), r.better, _IN_A_ROW)) for r in arm]
        stopped = [(r, step) for r, step in stops if step is not None]
        rows.append(
            [
                f"`{name}`",
                f"{sum(_met(r, r.score('final')) for r in arm)} of {len(arm)}",
                f"{sum(_met(r, r.score('best')) for r in arm)} of {len(arm)}",
                f"{len(stopped)} of {len(arm)}",
                ", ".join(f"{step:,}" for _, step in stopped) or ABSENT,
                ", ".join(shown(r.primary, dict(r.curve(r.primary))[s]) for r, s in stopped)
                or ABSENT,
                f"{sum(r.lost for r, _ in stopped)}",
            ]
        )
    head = (
        "run", "goal met at the end", "by the best checkpoint", "stopped", "at step", "score then",
        "of these, lost without the rule",
    )  # fmt: skip
    return [
        "Two more remedies need no other training. A run keeps the checkpoint of its best "
        f"evaluation beside the last. And it can be stopped when {_IN_A_ROW} evaluations in a row "
        f"have met the goal ({100 * RECALLED:.0f} % recall, or a mean squared error of {SUMMED}): "
        "on one machine trainings repeat to the bit, so a run that is stopped is the beginning of "
        "one that is not.",
        "",
        *table(head, rows),
    ]
