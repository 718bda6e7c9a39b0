"""Sections and exhibits to one HTML file that needs nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup, escape

from roann import __version__
from roann.lab.checkpoint import replace_file
from roann.lab.figures import inline_svg, number_text
from roann.lab.progress import counted, printable
from roann.lab.report.arm import Arm
from roann.lab.report.exhibits import Exhibit, exhibits_of, score_name, score_text
from roann.lab.report.outcome import Outcome
from roann.lab.report.runs import ReportError, Run, load_runs
from roann.lab.report.summary import Section, sections_of


def write_report(
    places: Iterable[Path],
    out: Path,
    *,
    title: str = "Random orthogonal additive networks",
    extra: Sequence[Exhibit] = (),
) -> Path:
    """Write one self-contained HTML page about runs; the same runs give the same bytes.

    Args:
        places: run directories, or directories that hold some at any depth.
        out: the file to write; replaced whole or not at all.
        title: of the page.
        extra: further figures, shown after the tasks.

    Returns:
        `out`.
    """
    if out.is_dir():
        raise ReportError(f"{out} is a directory; name the file to write, such as report.html.")
    page = render(load_runs(places), title=title, extra=extra)
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_file(out, page.encode())
    return out


def render(runs: Sequence[Run], *, title: str, extra: Sequence[Exhibit] = ()) -> str:
    """The page as text."""
    sections = sections_of(runs)
    ids = {id(run): f"run-{place}" for place, run in enumerate(runs, 1)}
    numbers = count(1)
    environment = jinja2.Environment(
        autoescape=True,
        finalize=_inert,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters["powers"] = _powers
    template = environment.from_string(_asset("report.html.j2"))
    return template.render(
        title=title,
        version=__version__,
        style=Markup(_asset("report.css")),
        ring=Markup(_ring()),
        lead=_lead(runs, sections),
        cards=_cards(runs, sections),
        sections=[
            _section(section, place, numbers, ids) for place, section in enumerate(sections, 1)
        ],
        extra=_gallery(extra, numbers),
        environments=_environments(runs),
        total=counted(len(runs), "run"),
    )


def _asset(name: str) -> str:
    return resources.files("roann.lab.report").joinpath(name).read_text(encoding="utf-8")


def _inert(value: object) -> object:
    """Clean a value for the page: no control characters, no bidirectional overrides."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_POWER = re.compile(r"10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_DIGITS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "−0123456789")


def _powers(text: str) -> Markup:
    """Powers of ten with real superscripts, which every font has."""
    safe = str(escape(printable(text)))
    return Markup(_POWER.sub(lambda m: f"10<sup>{m[1].translate(_DIGITS)}</sup>", safe))


def _lead(runs: Sequence[Run], sections: Sequence[Section]) -> str:
    diverged = sum(run.status == "diverged" for run in runs)
    unfinished = sum(run.status == "unfinished" for run in runs)
    parts = [counted(len(runs), "run") + f" on {counted(len(sections), 'task')}"]
    if diverged:
        parts.append(f"{diverged} diverged, which is a result and is shown")
    if unfinished:
        parts.append(f"{unfinished} still unfinished")
    parts.append(f"{duration(sum(run.seconds for run in runs))} of training in all")
    return "; ".join(parts) + "."


def _cards(runs: Sequence[Run], sections: Sequence[Section]) -> list[dict[str, Any]]:
    cards = []
    for section in sections:
        goal = section.goal
        scored = [(arm, arm.best) for arm in section.arms]
        ours = [(arm, best) for arm, best in scored if best is not None]
        if not ours:
            continue
        lead = [pair for pair in ours if pair[0].label.startswith("roa-")] or ours
        pick = max if goal.better == "higher" else min
        arm, best = pick(lead, key=lambda pair: pair[1])
        notes = [score_name(goal.score), f"best of {arm.label}"]
        if goal.score in goal.trivial:
            notes.append(f"trivial {score_text(goal.score, goal.trivial[goal.score])}")
        cards.append(
            {
                "label": section.title,
                "value": score_text(goal.score, best),
                "notes": notes,
            }
        )
    cards.append(
        {
            "label": "Wall time",
            "value": duration(sum(run.seconds for run in runs)),
            "notes": [counted(len(runs), "run"), "training only"],
        }
    )
    return cards


def _section(
    section: Section, place: int, numbers: Iterator[int], ids: dict[int, str]
) -> dict[str, Any]:
    outcomes = [(arm, outcome) for arm in section.arms for outcome in arm.outcomes]
    return {
        "id": f"task-{place}",
        "title": section.title,
        "score": score_name(section.goal.score),
        "trivial": score_text(section.goal.score, section.goal.trivial.get(section.goal.score)),
        "lead": "" if section.row is None else section.row.blurb,
        "rows": [_row(arm, section) for arm in section.arms],
        "exhibits": _gallery(exhibits_of(section), numbers),
        "selected": any(outcome.selected is not None for _, outcome in outcomes),
        "runs": [_run(run, ids[id(run)]) for run in section.runs],
        "seeds": [
            _seed_row(arm, outcome, section, ids[id(outcome.run)]) for arm, outcome in outcomes
        ],
    }


def _row(arm: Arm, section: Section) -> dict[str, Any]:
    goal = section.goal
    notes = [f"{arm.diverged} diverged"] * bool(arm.diverged)
    notes += [f"{arm.collapsed} collapsed"] * bool(arm.collapsed)
    notes += [f"{arm.left_out} shorter left out"] * bool(arm.left_out)
    weights = arm.runs[0].facts.get("parameters")
    return {
        "label": arm.label,
        "weights": f"{weights:,}" if isinstance(weights, int) else "–",
        "seeds": ", ".join([str(len(arm.runs)), *notes]),
        "best": score_text(goal.score, arm.best),
        "median_best": score_text(goal.score, arm.median("best")),
        "median_last": score_text(goal.score, arm.median("last")),
        "each": [_ending(outcome, goal.score) for outcome in arm.outcomes],
        "time": duration(arm.seconds),
    }


def _ending(outcome: Outcome, score: str) -> str:
    if outcome.run.status == "diverged":
        return f"diverged at {outcome.run.steps:,}"
    text = score_text(score, outcome.last)
    return f"{text} (so far)" if outcome.run.status == "unfinished" else text


def _seed_row(arm: Arm, outcome: Outcome, section: Section, anchor: str) -> dict[str, str]:
    run, score = outcome.run, section.goal.score
    known = run.status in {"finished", "diverged", "unfinished"}
    return {
        "label": arm.label,
        "seed": str(run.seed),
        "status": run.status,
        "kind": run.status if known else "unfinished",
        "steps": f"{run.steps:,}",
        "best": score_text(score, outcome.best),
        "at": "–" if outcome.best_step is None else f"{outcome.best_step:,}",
        "last": score_text(score, outcome.last),
        "selected": score_text(score, outcome.selected),
        "time": duration(run.seconds),
        "name": run.name,
        "id": anchor,
    }


def _gallery(exhibits: Sequence[Exhibit], numbers: Iterator[int]) -> list[dict[str, Any]]:
    """Figures in two columns, then the wide ones; one left over gets its caption beside it."""
    ordered = sorted(exhibits, key=lambda exhibit: exhibit.wide)
    narrow = sum(not exhibit.wide for exhibit in exhibits)
    gallery = []
    for place, exhibit in enumerate(ordered, 1):
        number = next(numbers)
        words = f"{exhibit.title}. {exhibit.caption}"
        gallery.append(
            {
                "title": exhibit.title,
                "caption": exhibit.caption,
                "kind": "wide"
                if exhibit.wide
                else "lone"
                if place == narrow and narrow % 2
                else "",
                "number": number,
                "svg": Markup(inline_svg(exhibit.figure, f"f{number}", words)),
            }
        )
    return gallery


def _environments(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Each distinct environment once, with how many runs had it."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(json.dumps(run.env, sort_keys=True), []).append(run)
    return [
        {
            "runs": "all runs" if len(groups) == 1 else counted(len(group), "run"),
            "facts": [
                (str(key), value if isinstance(value, str) else json.dumps(value))
                for key, value in group[0].env.items()
            ],
        }
        for group in groups.values()
        if group[0].env
    ]


def _run(run: Run, anchor: str) -> dict[str, str]:
    note = f"{run.status}, {counted(run.steps, 'step')}, {duration(run.seconds)}"
    return {
        "id": anchor,
        "name": run.name,
        "note": note,
        "cause": str(run.result.get("cause") or ""),
        "text": run.text,
    }


def duration(seconds: float) -> str:
    """A readable length of time.

    Its spaces do not break.

    Example:
        >>> [duration(s).replace("\\xa0", " ") for s in (4.21, 200, 7500)]
        ['4.21 s', '3 min 20 s', '2 h 05 min']
    """
    if seconds < 59.5:
        text = f"{number_text(seconds)} s"
    elif seconds < 3599.5:
        text = "{} min {:02} s".format(*divmod(round(seconds), 60))
    else:
        text = "{} h {:02} min".format(*divmod(round(seconds / 60), 60))
    return text.replace(" ", "\xa0")


def _ring(size: int = 72, alpha: float = 0.06) -> str:
    """An ornament that is true: eigenvalues of a step's Jacobian α W + (1 − α) O, W ~ N(0, 1/N)."""
    rng = np.random.default_rng(7)
    O, _ = np.linalg.qr(rng.uniform(-1, 1, (size, size)))
    W = rng.normal(size=(size, size)) * 2 / np.sqrt(size)
    values = np.linalg.eigvals(alpha * W + (1 - alpha) * O)
    dots = "".join(
        f'<circle cx="{100 + 84 * z.real:.1f}" cy="{100 - 84 * z.imag:.1f}" r="2.6"/>'
        for z in sorted(values, key=lambda z: (np.angle(z), abs(z)))
    )
    return (
        '<svg class="ring" viewBox="0 0 200 200" aria-hidden="true">'
        '<circle cx="100" cy="100" r="84" fill="none" stroke="var(--line)" stroke-width="1.2"/>'
        '<path d="M100 4V196M4 100H196" stroke="var(--line)" stroke-width="0.7"/>'
        f'<g fill="var(--vermillion)" fill-opacity="0.85">{dots}</g></svg>'
    )
