"""Records to pages: the report, `docs/reproduction.md` and the table in `README.md`.

Nothing here looks at a run directory, a clock or the machine: the same records give the same bytes.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roann.lab.checkpoint import replace_file
from roann.lab.report import Run, render
from roann.lab.reproduce.bounds import FILE as STUDY
from roann.lab.reproduce.chapters import CHAPTERS, departures
from roann.lab.reproduce.collect import ELSEWHERE, read_records
from roann.lab.reproduce.digit import FILE as DIGIT
from roann.lab.reproduce.digit import digit_exhibits
from roann.lab.reproduce.exhibits import bounds_exhibits, read_study
from roann.lab.reproduce.judges import CLOSE
from roann.lab.reproduce.plan import FIGURES, Scale
from roann.lab.reproduce.reading import arms_of
from roann.lab.reproduce.studies import OURS, bounds
from roann.lab.reproduce.tables import wall
from roann.lab.reproduce.verdicts import WORDS, Book, Verdict, verdicts

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
_TITLES: dict[Scale, str] = {
    "full": "The paper, run again",
    "quick": "A quick look: shorter sequences, shorter trainings, one seed; not the paper's",
}
_TITLE_OF = {name: figure.title for name, figure in FIGURES.items()}
_TITLE_OF[ELSEWHERE] = "what another processor made of Fig. 2"
_log = logging.getLogger(__name__)


def read_results(results: Path) -> dict[str, list[Run]]:
    """The records of every figure that has some, in the order of the plan."""
    found = {name: read_records(results / name) for name in FIGURES}
    return {name: _ordered(runs, name) for name, runs in found.items() if runs}


def _with_elsewhere(results: Path) -> dict[str, list[Run]]:
    """All that pages tell of: the figures' records, and those of another processor."""
    other = read_records(results / ELSEWHERE)
    return read_results(results) | ({ELSEWHERE: other} if other else {})


def _ordered(runs: list[Run], figure: str) -> list[Run]:
    """Runs in the order of the plan's arms; the longest name that fits is a run's arm."""
    titles = [arm.title for arm in FIGURES[figure].arms]

    def place(run: Run) -> tuple[int, int, str]:
        fits = [title for title in titles if run.name.startswith(f"{title}-")]
        arm = max(fits, key=len, default="")
        return titles.index(arm) if arm else len(titles), run.seed, run.name

    return sorted(runs, key=place)


def write_report(results: Path, scale: Scale) -> Path | None:
    """Write `report.html` beside the records; None if there are no records."""
    runs = [_placed(run, name) for name, runs in read_results(results).items() for run in runs]
    extra = digit_exhibits(results / "fig4" / DIGIT)
    extra += bounds_exhibits(read_study(results / "bounds" / STUDY))
    if not runs and not extra:
        return None
    return _written(results / "report.html", render(runs, title=_TITLES[scale], extra=extra))


def _placed(run: Run, figure: str) -> Run:
    """The run with its figure in its task, so that figures on one task stay apart in the report."""
    config = {name: dict(table) for name, table in run.config.items()}
    config["task"]["in"] = FIGURES[figure].title
    return replace(run, config=config)


def write_pages(results: Path, page: Path, readme: Path) -> list[Path]:
    """Write the page of the reproduction, and the table between the marks in the README.

    Args:
        results: the records.
        page: `docs/reproduction.md`.
        readme: `README.md`; without the marks it is left alone, with a warning.

    Returns:
        What was written.
    """
    runs = _with_elsewhere(results)
    book = {name: arms_of(records) for name, records in runs.items()}
    study = read_study(results / "bounds" / STUDY)
    judged = verdicts(book, study)
    page.parent.mkdir(parents=True, exist_ok=True)
    made = [_written(page, reproduction(runs, book, study, judged))]
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        _log.warning("%s has no %s … %s; its table is not written.", readme, BEGIN, END)
        return made
    body = "\n".join(["", "", *_verdict_table(judged), *_cost(runs, study)])
    return [*made, _written(readme, before + begin + body + end + after)]


def reproduction(
    runs: Mapping[str, Sequence[Run]],
    book: Book,
    study: Sequence[Mapping[str, Any]],
    judged: Sequence[Verdict],
) -> str:
    """The text of `docs/reproduction.md`."""
    lines = [
        "# The paper, run again",
        "",
        "This page is written by `roann reproduce pages` from the records in `results/`: every "
        "number that was measured, and every sentence that depends on one. Published numbers "
        "stand beside them with their source. The figures are in `results/report.html`.",
        "",
        "A run is *lost* if it diverged, or ended with less than a tenth of the way from guessing "
        "to perfect. *Best* is over all evaluations of a run, as papers count. All seeds are "
        f"shown. {WORDS} A test accuracy within {100 * CLOSE:.1f} points of the paper's counts as "
        "reproduced.",
        "",
        *_cost(runs, study),
        "## Claim by claim",
        "",
        *_verdict_table(judged),
        "## Where it departs from the paper",
        "",
        *departures(book),
    ]
    for name, (heading, write) in {**CHAPTERS, **OURS}.items():
        if name in book:
            lines += [f"## {heading}", "", *write(book[name], book)]
    if study:
        lines += ["## The theorems, measured", "", *bounds(study)]
    return "\n".join([*lines, *_RECORDS, *_environments(runs)]).rstrip() + "\n"


_RECORDS = (
    "## The records",
    "",
    "Delete `results/`, and `make results` brings it back: days on two cores, and stopped at any "
    "time, the same command goes on.",
    "",
    "- `results/<figure>/<run>.jsonl`: one record per run. The first line says what was run (the "
    "resolved config, the seed), where (machine, versions, commit) and how it ended (status, "
    "cause, wall time, scores); the others are its evaluations, probes and a thinned training "
    "loss, in the words of a run directory's `metrics.jsonl`.",
    "- `results/elsewhere/`: records of the same runs on another processor, where there are some.",
    "- `results/unfinished/`: what another machine needs to go on with runs that have not ended.",
    "- `results/bounds/bounds.jsonl`: the bounds study, one line per measured spectrum.",
    "- `results/fig4/digit.json`: the digit of Fig. 4 and the order of its pixels.",
    "- `results/bench/`: a record of `roann bench` for each machine, and its figure.",
    "- `results/report.html`: every figure and table, one file that opens offline.",
    "",
    "`roann reproduce all` without `--scale full` is a look that takes minutes: the paper's "
    "figures, with one seed and shorter sequences and trainings. It writes to `runs/quick/` and "
    "touches nothing here.",
    "",
)


def _verdict_table(judged: Sequence[Verdict]) -> list[str]:
    lines = ["| | the paper | here | |", "|---|---|---|---|"]
    lines += [f"| {v.place} | {v.claim} | {v.ours} | {v.word} |" for v in judged]
    return [*lines, ""]


def _cost(runs: Mapping[str, Sequence[Run]], study: Sequence[Mapping[str, Any]]) -> list[str]:
    every = [run for group in runs.values() for run in group]
    seconds = sum(map(_core_seconds, every))
    seconds += sum(line.get("seconds", 0.0) for line in study)
    words = f"Cost: {len(every):,} runs, {wall(seconds)} of one core in all"
    order = [*CHAPTERS, *(name for name in runs if name not in CHAPTERS)]
    parts = [
        f"{_TITLE_OF[name]} {wall(sum(map(_core_seconds, runs[name])))}"
        for name in order
        if name in runs
    ]
    shared = (
        f", so {wall(seconds / 2)} on two, the probes of trainings included (those before and "
        "after the league's were not timed). Runs were made two at a time, at times beside other "
        "work and not all on one machine: these are sums, and more than an idle machine needs."
    )
    return [words + (f" ({'; '.join(parts)})" if parts else "") + shared, ""]


def _core_seconds(run: Run) -> float:
    return run.seconds * float(run.config["train"]["threads"])


def _environments(runs: Mapping[str, Sequence[Run]]) -> list[str]:
    """Where the runs were made, each environment once, and with which commits."""
    counted: dict[str, Counter[str]] = {}
    for group in runs.values():
        for run in group:
            env = dict(run.env)
            commit = env.pop("commit", "none known")
            counted.setdefault(json.dumps(env, sort_keys=True), Counter())[commit] += 1
    lines = ["## Where it was run", ""] if counted else []
    for key, commits in counted.items():
        noun = "run" if commits.total() == 1 else "runs"
        named = ", ".join(f"{commit} ({count})" for commit, count in commits.items())
        lines.append(f"- {commits.total()} {noun}: {_facts(json.loads(key))}; commits {named}")
    return lines + [
        f"- `{run.name}` went on from step {line['step']:,} with {_facts(line['to'])}"
        for group in runs.values()
        for run in group
        for line in run.records
        if line.get("event") == "moved"
    ]


def _facts(environment: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in environment.items())


def _written(path: Path, text: str) -> Path:
    """The file, replaced whole, or left alone if it says this already."""
    data = text.encode()
    if not path.exists() or path.read_bytes() != data:
        replace_file(path, data)
    return path
