"""The generated tables of the pages, from the records alone: columns here, tables in TOML."""

from __future__ import annotations

import fnmatch
import math
import re
import statistics
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from paper import ROOT
from paper.judge import CLAIMS, Book, pairs, verdicts
from paper.measure import (
    evaluated,
    first,
    meets,
    norm_W,
    number,
    probes,
    shown,
    sigma,
    step_seconds,
    trained,
    training_seconds,
    wall,
    whole,
)
from paper.pages import Table
from paper.plan import FIGURES, SEEDS, entries
from roann.lab.paper_figures import LINEAR_SOFTMAX
from roann.lab.report import LOST, Arm, Collapse, Outcome

SPECS: dict[str, Any] = tomllib.loads((ROOT / "paper/tables.toml").read_text(encoding="utf-8"))
GOAL = {"double-moon": 0.05, "adding": 0.01, "copying": 0.99}  # by task, as in claims.toml
ALIKE = 0.01  # scores within this part of the way from guessing to perfect count as equal


def _goal(o: Outcome, in_a_row: int = 1) -> int | None:
    return first(o, o.goal.score, GOAL[o.run.task["name"]], in_a_row)


def _of(arm: Arm, flags: Iterable[object]) -> str:
    return f"{sum(map(bool, flags))} of {len(arm.outcomes)}"


def _met(arm: Arm, values: Iterable[float | None]) -> str:
    limit = GOAL[arm.runs[0].task["name"]]
    return _of(arm, (meets(arm.goal.score, value, limit) for value in values))


def _speed(arm: Arm) -> float | None:
    found = [1e3 * s for o in arm.outcomes if (s := step_seconds(o)) is not None]
    return statistics.median(found) if found else None


def _median(values: Iterable[float]) -> str:
    return f"{statistics.median(values):,.0f}"


def _ends(o: Outcome, place: int) -> str:
    seen = probes(o)
    return sigma(seen[place]) if len(seen) > (place == -1) else "–"


def _score(o: Outcome, value: float | None) -> str:
    return o.run.status if value is None and not o.curve() else shown(o.goal.score, value)


ARM: dict[str, Callable[[Arm], str]] = {
    "parameters": lambda a: f"{a.runs[0].facts['parameters']:,}",
    "trained numbers": lambda a: f"{a.runs[0].facts['effective_parameters']:,}",
    "seeds": lambda a: f"{len(a.runs)}",
    "best": lambda a: shown(a.goal.score, a.best),
    "best of each seed": lambda a: " · ".join(_score(o, o.best) for o in a.outcomes),
    "median of best": lambda a: shown(a.goal.score, a.median("best")),
    "median at the end": lambda a: shown(a.goal.score, a.median("last")),
    "lost": lambda a: _of(a, (o.lost for o in a.outcomes)),
    "collapsed": lambda a: f"{a.collapsed} of {len(a.outcomes)}",
    "training": lambda a: wall(statistics.median(map(training_seconds, a.outcomes))),
    "steps": lambda a: _median(run.steps for run in a.runs),
    "evaluations": lambda a: _median(len(o.curve()) for o in a.outcomes),
    "ms per step": lambda a: number(_speed(a)),
    "ln σ before": lambda a: _ends(a.outcomes[0], 0),
    "ln σ after": lambda a: _ends(a.outcomes[0], -1),
    "goal first met": lambda a: ", ".join(whole(_goal(o)) for o in a.outcomes),
    "goal at the end": lambda a: _met(a, (o.last for o in a.outcomes)),
    "goal at the best": lambda a: _met(a, (o.best for o in a.outcomes)),
    "stopped early": lambda a: _of(a, (_goal(o, 3) for o in a.outcomes)),
    "lost of these": lambda a: str(sum(o.lost for o in a.outcomes if _goal(o, 3))),
}
VERSUS: dict[str, Callable[[Arm, Arm], str]] = {
    "pairs won": lambda a, b: "{} of {}".format(*pairs(a, b)),
    "better": lambda a, b: str(sum(gain > ALIKE for gain in _gains(a, b))),
    "worse": lambda a, b: str(sum(gain < -ALIKE for gain in _gains(a, b))),
}
SEED: dict[str, Callable[[Outcome], str]] = {
    "step to the goal": lambda o: whole(_goal(o)),
    "trained": lambda o: f"{trained(o)}",
    "best": lambda o: shown(o.goal.score, o.best),
    "end": lambda o: shown(o.goal.score, o.last),
    "by validation": lambda o: shown(o.goal.score, o.selected),
    "collapses": lambda o: f"{len(o.collapses)}",
    "‖W‖ at the start": lambda o: number(norm_W(o, 0, 0)),
    "‖W‖ after 1 step": lambda o: number(norm_W(o, 1, 1)),
    "‖W‖ within 50": lambda o: number(norm_W(o, 1, 50)),
    "largest ‖W‖": lambda o: number(norm_W(o, 1)),
    "‖W‖ at the end": lambda o: number(probes(o)[-1].get("norm_W")),
    "ln σ at the start": lambda o: _ends(o, 0),
    "ln σ at the end": lambda o: _ends(o, -1),
    **{
        f"after {k}": lambda o, k=k: shown("accuracy", evaluated(o, epoch=k).get("accuracy"))  # type: ignore[misc]
        for k in (1, 10, 11)
    },
}


def _gains(arm: Arm, other: Arm) -> list[float]:
    """How much further on the way to perfect each seed gets; all that is called lost is alike."""

    def way(o: Outcome) -> float:
        return max(LOST, LOST if o.best is None else o.goal.progress(o.best) or 0.0)

    theirs = {o.run.seed: way(o) for o in other.outcomes}
    return [way(o) - theirs[o.run.seed] for o in arm.outcomes]


def _collapse(o: Outcome, fall: Collapse) -> dict[str, str]:
    """When a run collapsed, what became of it, and what the last probe before saw."""
    values, score = dict(o.curve()), o.goal.score
    probe = [p for p in probes(o) if p["step"] <= fall.held][-1]
    bound = probe["bound"]
    later = [value for step, value in values.items() if step > fall.gone]
    return {
        "last good evaluation": f"{shown(score, values[fall.held])} at {fall.held:,}",
        "gone by step": f"{fall.gone:,}"
        + (" (diverged)" if fall.diverged else f" ({shown(score, values[fall.gone])})"),
        "best after": shown(score, o.goal.best(later)),
        "end": shown(score, o.last),
        "last probe": f"{probe['step']:,}",
        "‖W‖ there": number(probe["norm_W"]),
        "ln σ there": sigma(probe),
        "interval there": f"{number(bound['lower'])} … {number(bound['upper'])}",
    }


def _spike(o: Outcome, fall: Collapse) -> dict[str, str] | None:
    """What grew in the steps before a collapse, where the weights of these were kept."""
    frames = _frames(o, fall)
    if not frames:
        return None
    losses = [float(frame["loss"]) for frame in frames]
    worst = losses.index(max(losses))
    leaps = (k for k in range(1, worst) if losses[k] > 10 * statistics.median(losses[:k]))
    leap = next(leaps, worst)
    start, before, lr = frames[0], frames[leap - 1], float(o.run.config["train"]["lr"])
    moves = [float(f["moved"]) / lr for f in frames[:worst] if f.get("moved") is not None]
    change = 100 * (frames[leap]["norm_W"] / start["norm_W"] - 1)
    return {
        "first step seen": f"{start['step']:,}",
        "spike at": f"{frames[leap]['step']:,}",
        "‖W‖ until the spike": f"{change:+.2g} %".replace("-", "−"),
        "loss before it": f"× {number(before['loss'] / start['loss'])}",
        "gradient before it": f"× {number(before['grad_norm'] / start['grad_norm'])}",
        "largest ln σ": f"{number(start['sigma_max'])} → {number(frames[worst]['sigma_max'])}",
        "updates": f"{number(moves[0])} → {number(max(moves))}" if moves else "–",
    }


def _frames(o: Outcome, fall: Collapse) -> list[dict[str, Any]]:
    """The first unbroken row of steps that the black box kept and that reaches into a collapse."""
    row: list[dict[str, Any]] = []
    for line in (line for line in o.run.records if line["kind"] == "leap"):
        if row and line["step"] != row[-1]["step"] + 1:
            if fall.held < row[-1]["step"]:
                break
            row = []
        row.append(line)
    return row if row and row[0]["step"] <= fall.gone and fall.held < row[-1]["step"] else []


def _chosen(book: Book, spec: dict[str, Any]) -> dict[str, Arm]:
    """The arms of a table by the name of their row."""
    found: dict[str, Arm] = {}
    for pattern in spec["arms"]:
        figure, _, names = pattern.partition("/")
        note = ", elsewhere" if figure == "elsewhere" else ""
        arms = {n: arm for n, arm in book[figure].items() if fnmatch.fnmatchcase(n, names)}
        found |= {name + note: arm for name, arm in arms.items() if name + note not in found}
    if spec.get("sort"):
        sign = -1 if next(iter(found.values())).goal.better == "higher" else 1
        known = {n: m for n, arm in found.items() if (m := arm.median("best")) is not None}
        return {n: found[n] for n in sorted(found, key=lambda n: sign * known.get(n, sign * 1e99))}
    return found


def from_spec(book: Book, spec: dict[str, Any]) -> Table:
    """A table of `tables.toml`."""
    rows, columns, arms = [], spec["columns"], _chosen(book, spec)
    for name, arm in arms.items():
        if "rows" not in spec:
            other = arms.get(re.sub(*spec["versus"], name)) if "versus" in spec else None
            cells = {c: "–" if other in (None, arm) else VERSUS[c](arm, other)
                     for c in columns if c in VERSUS}  # fmt: skip
            cells |= {c: ARM[c](arm) for c in columns if c not in VERSUS}
            rows.append([f"`{name}`", *(cells[c] for c in columns)])
        for o in arm.outcomes if "rows" in spec else ():
            seed = f"`{name}` seed {o.run.seed}"
            found: list[dict[str, str] | None] = [{c: SEED[c](o) for c in columns if c in SEED}]
            if spec["rows"] != "seeds":
                read = _collapse if spec["rows"] == "collapses" else _spike
                found = [read(o, fall) for fall in o.collapses]
            rows += [[seed, *(cells[c] for c in columns)] for cells in found if cells]
    return ["run", *columns], rows


def departures(book: Book) -> Table:
    """Where there are fewer seeds or steps than in the paper, and why."""
    rows = []
    for figure, entry in ((f, e) for f in FIGURES for e in entries(f) if e.cut):
        arms = [a for n, a in book[figure].items() if f"{n}-".startswith(f"{entry.name}-")]
        ended = [o for arm in arms[:1] for o in arm.outcomes if o.run.status != "diverged"]
        done = min(map(trained, ended), default=0)
        of = f" of {entry.paper_length:,}" if entry.paper_length else ""
        unit = ended[0].run.config["train"]["unit"] + "s" if ended else ""
        length = f"{done:,}{of} {unit}" if ended else "–"
        rows.append([f"`{entry.name}`", f"{entry.seeds} of {SEEDS}", length, entry.cut])
    return ("run", "seeds", "trained for", "why"), rows


def cost(book: Book) -> Table:
    """Runs and core time of every figure."""
    rows, total, count = [], 0.0, 0
    for figure, arms in book.items():
        runs = [] if figure == "bounds" else [run for a in arms.values() for run in a.runs]
        seconds = sum(run.seconds * float(run.config["train"]["threads"]) for run in runs)
        seconds += sum(line.get("seconds", 0.0) for line in arms) if figure == "bounds" else 0.0
        rows.append([f"`{figure}`", f"{len(runs):,}", wall(seconds)])
        total, count = total + seconds, count + len(runs)
    return ("results", "runs", "core time"), [*rows, ["all", f"{count:,}", wall(total)]]


def published(book: Book) -> Table:
    """The paper's psMNIST table with our networks in it."""
    rows = [
        (b, system, weights, "the paper") for system, weights, b in CLAIMS["published"]["psmnist"]
    ]
    rows.append((LINEAR_SOFTMAX, "linear softmax, all pixels at once", "7,850", "here"))
    for N in (178, 256, 512):
        arm = book["table1"][f"psmnist-{N}"]
        by = f"here, {max(map(trained, arm.outcomes))} epochs"
        rows.append((arm.best, f"roaRNN, N = {N}", ARM["parameters"](arm), by))
    cells = ([name, weights, shown("accuracy", b), by] for b, name, weights, by in sorted(rows))
    return ("system", "weights", "best test accuracy", "source"), cells


def machines(book: Book) -> Table:
    """Where the runs were made."""
    counts: Counter[tuple[str, ...]] = Counter()
    for arms in (arms for figure, arms in book.items() if figure != "bounds"):
        for env in (run.env for arm in arms.values() for run in arm.runs):
            counts[
                tuple(str(env[key]) for key in ("cpu", "native_kernel", "threads", "torch"))
            ] += 1
    rows = ([*facts, str(count)] for facts, count in counts.items())
    return ("processor", "kernel", "threads", "torch", "runs"), rows


def spectra(book: Book) -> Table:
    """Spectra beside the intervals of the theorems; plain networks beside the roa network's."""
    lines = [line for line in book["bounds"] if line["kind"] == "spectrum"]
    roa = {(li["over"], li["setting"], li["maps"], li["seed"]): li["finite"] for li in lines
           if li["network"] in ("roaFNN", "roaRNN")}  # fmt: skip
    groups: dict[str, list[Any]] = {}
    for line in lines:
        ends = roa[line["over"], "paper", line["maps"], line["seed"]]
        low, high = ("-inf" if ends["lower"] is None else ends["lower"]), ends["upper"]
        held = [-math.inf if v is None else v for v in line["sigma"]]
        inside = float(low) <= min(held) and max(held) <= high
        plain = {"finite": {"inside": inside}, "paper": {"inside": None}, "vacuous": None}
        groups.setdefault(f"{line['network']}, {line['setting']}", []).append(plain | line)
    rows = []
    for name, mine in groups.items():
        counts = [[li["finite"]["inside"] for li in mine], [li["paper"]["inside"] for li in mine]]
        counts.append([li["vacuous"] for li in mine])
        cells = ("–" if None in c else f"{sum(c)} of {len(c)}" for c in counts)
        rows.append([name, *cells, sigma(mine[0]), sigma(mine[-1])])
    head = ("network, W", "in the finite interval", "in the paper's interval", "vacuous",
            "ln σ, L = 10", "ln σ, L = 100,000")  # fmt: skip
    return head, rows


def worst_cases(book: Book) -> Table:
    """The network on the finite lower end, and below the paper's, at every L."""
    lines = [line for line in book["bounds"] if line["kind"] == "worst-case"]
    rows = (
        [whole(li["maps"]), *(number(v, 6) for v in (li["sigma"][-1], li["finite"], li["paper"]))]
        for li in lines
    )
    return ("L", "ln σ", "finite lower end", "the paper's lower end"), rows


def first_order(book: Book) -> Table:
    """How far W moves an eigenvalue off the circle, at the largest N, and its growth N^p."""
    lines = [line for line in book["bounds"] if line["kind"] == "first-order"]
    rows = []
    for name in dict.fromkeys(line["filter"] for line in lines):
        by_width: dict[int, list[Any]] = {}
        for line in (line for line in lines if line["filter"] == name):
            by_width.setdefault(line["width"], []).append(line)
        last = by_width[max(by_width)]
        cells = (statistics.median(li[k] for li in last) for k in ("moved", "diagonal", "norm_W"))
        moved = [statistics.median(li["moved"] for li in group) for group in by_width.values()]
        slope = statistics.linear_regression(
            [math.log(N) for N in by_width], [math.log(m) for m in moved]
        ).slope
        rows.append([name, *map(number, cells), number(slope)])
    return ("O", "measured", "by the diagonal", "‖W‖", "exponent p"), rows


def tables(book: Book) -> Iterator[tuple[str, Table]]:
    """Every table by name."""
    head = ("place", "the paper", "here", "verdict")
    yield "claims", (head, list(verdicts(book)))
    yield "headlines", (head, list(verdicts(book, headlines=True)))
    for make in (departures, cost, published, machines, spectra, worst_cases, first_order):
        yield make.__name__, make(book)
    yield from ((name, from_spec(book, spec)) for name, spec in SPECS.items())
