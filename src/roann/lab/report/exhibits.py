"""Which figures a section of the report shows, and their captions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from roann.lab.figures import (
    Cloud,
    Curve,
    RhoPoint,
    Surface,
    best_point,
    cloud_of,
    curve_of,
    decision_surfaces,
    eigenvalues,
    gradient_along_time,
    learning_curves,
    number_text,
    psmnist_accuracy,
    score_against_rho,
    singular_values,
    spectra_side_by_side,
    thinned,
)
from roann.lab.models import MODELS
from roann.lab.probe import LARGEST
from roann.lab.records import is_number
from roann.lab.report.arm import Arm
from roann.lab.report.goal import Goal
from roann.lab.report.runs import Run
from roann.lab.report.summary import Section, curves_of

_SCORE_NAMES = {
    "mse": "mean squared error",
    "cross_entropy": "cross-entropy",
    "recall_cross_entropy": "cross-entropy on the recall",
    "recall_accuracy": "recall accuracy",
}
_LISTED = 4  # values that a caption lists one by one
_MOST_OVER_TIME = 7  # arms whose spectra are told apart at every probe
_RHO_GRID = 4
"""So many values of ρ in arms that are otherwise equal make a grid, drawn against ρ."""


@dataclass(frozen=True)
class Exhibit:
    """A figure with its words.

    Attributes:
        title: short.
        caption: what is drawn and what to see in it.
        figure: the drawing.
        wide: it has several panels and needs the full width of the page.
    """

    title: str
    caption: str
    figure: Figure
    wide: bool = False


def score_name(score: str) -> str:
    """A readable name of a score."""
    return _SCORE_NAMES.get(score, score.replace("_", " "))


def score_text(score: str, value: float | None) -> str:
    """A score as people read it: accuracies in percent."""
    if value is None:
        return "–"
    return f"{100 * value:.2f} %" if "accuracy" in score else number_text(value)


def exhibits_of(section: Section) -> list[Exhibit]:
    """Every figure the records of a section can fill."""
    grids = _rho_grids(section)
    in_grid = {id(arm) for grid in grids for arm in grid}
    arms = [arm for arm in section.arms if id(arm) not in in_grid]
    made: list[Exhibit | None] = []
    if arms:
        made += [_curves(section, arms, score) for score in _scores(section)]
        made += [_norms(section, arms), _gradients(section, arms), _clouds(section, arms)]
        made += [_eigenvalues(section, arms), _surfaces(section, arms)]
    made += [_against_rho(section, grid) for grid in grids]
    return [exhibit for exhibit in made if exhibit is not None]


def _scores(section: Section) -> list[str]:
    """The primary score, and one more that has something to beat."""
    others = [name for name in section.goal.trivial if name != section.goal.score]
    return [section.goal.score, *others[:1]]


def _better(score: str) -> Any:
    return "higher" if "accuracy" in score else "lower"


def _curves(section: Section, arms: Sequence[Arm], score: str) -> Exhibit | None:
    epochs = any(r.get("epoch") for run in section.runs for r in run.records)
    x = "epoch" if epochs else "step"
    drawn = {
        arm.label: [thinned(curve) for curve in curves_of(arm, score, section.goal, x)]
        for arm in arms
    }
    drawn = {label: curves for label, curves in drawn.items() if any(c.x for c in curves)}
    if not drawn:
        return None
    caption = _curve_caption(section.goal, drawn, score, x)
    title = f"{section.title}: {score_name(score)}"
    if score == "accuracy" and section.row is not None and section.row.memoryless is not None:
        figure = psmnist_accuracy(drawn, published={}, linear=section.row.memoryless)
        caption += " Dashed: a linear classifier that sees all pixels at once and needs no memory."
        return Exhibit(title, caption, figure)
    figure = learning_curves(
        drawn,
        ylabel=score_name(score),
        xlabel="epoch" if epochs else "training step",
        better=_better(score),
        trivial=section.goal.trivial.get(score),
        log=_better(score) == "lower",
        percent="accuracy" in score,
    )
    return Exhibit(title, caption, figure)


def _curve_caption(goal: Goal, arms: dict[str, list[Curve]], score: str, x: str) -> str:
    facts = []
    for label, curves in arms.items():
        best = best_point(curves, _better(score))
        if best is not None:
            facts.append(f"{label}: {score_text(score, best[2])} at {x} {best[1]:g}")
    words = [
        "Thin lines: every seed. Thick: their median. ★ the best point, × where a run diverged."
    ]
    if len(facts) <= 4:
        words.append(f"Best of any seed: {'; '.join(facts)}.")
    if score in goal.trivial:
        words.append(f"A trivial model scores {score_text(score, goal.trivial[score])}.")
    return " ".join(words)


def _probes(run: Run) -> list[dict[str, Any]]:
    return [record for record in run.records if record["kind"] == "probe"]


def _last_probes(arms: Iterable[Arm], key: str) -> dict[str, dict[str, Any]]:
    """Per arm, the last probe of its first seed that holds `key`."""
    found = {}
    for arm in arms:
        held = [probe for probe in _probes(arm.runs[0]) if probe.get(key)]
        if held:
            found[arm.label] = held[-1]
    return found


def _norms(section: Section, arms: Sequence[Arm]) -> Exhibit | None:
    drawn = {
        arm.label: [
            curve
            for run in arm.runs
            if (curve := curve_of(run.records, "norm_W", kind="probe", seed=run.seed)).x
        ]  # of the seeds that were probed: some figures probe the first alone
        for arm in arms
    }
    drawn = {label: curves for label, curves in drawn.items() if any(len(c.x) > 1 for c in curves)}
    if not drawn:
        return None
    figure = learning_curves(drawn, ylabel="‖W‖₂", log=True, better="lower", best=False)
    return Exhibit(
        f"{section.title}: the norm of W",
        "The largest singular value of W over training, every seed thin, their median thick. The "
        "theorems' interval is about e to the ±ρ‖W‖: it widens as ‖W‖ grows.",
        figure,
    )


def _gradients(section: Section, arms: Sequence[Arm]) -> Exhibit | None:
    probes = _last_probes(arms, "gradient_by_step")
    if not probes:
        return None
    norms = {
        label: [math.nan if n is None else float(n) for n in probe["gradient_by_step"]]
        for label, probe in probes.items()
    }
    times = {label: probe["gradient_at"] for label, probe in probes.items()}
    ratios = {
        label: values[0] / values[-1]
        for label, values in norms.items()
        if values and values[-1] > 0
    }
    kinds = {row.kind for arm in arms if (row := MODELS.get(str(arm.model["name"])))}
    deep = kinds == {"depth"}
    if deep:
        title, xlabel, first = "gradient along depth", "layer", "layer"
        words = "How strongly the loss depends on the state of each layer. Where the line falls to "
        words += "the left, the first layers hardly learn."
    else:
        title, xlabel, first = "gradient along time", "time step t", "step"
        words = "How strongly the loss depends on the state at each time step. A network that can "
        words += "learn from its distant past has a flat line; one that forgets falls to the left."
    words += f" Norm at the first {first} over norm at the last: {_each(ratios)}."
    return Exhibit(
        f"{section.title}: {title}",
        f"{words} Measured at training step {_steps(probes)}.",
        gradient_along_time(norms, times=times, xlabel=xlabel),
    )


def _steps(probes: dict[str, dict[str, Any]]) -> str:
    steps = {label: probe["step"] for label, probe in probes.items()}
    if len(set(steps.values())) == 1:
        return str(next(iter(steps.values())))
    return _each(steps)


def _each(values: Mapping[str, float]) -> str:
    """The value of every arm, or of many only from where to where."""
    if len(values) <= _LISTED:
        return "; ".join(f"{label}: {number_text(value)}" for label, value in values.items())
    return f"{number_text(min(values.values()))} to {number_text(max(values.values()))}"


def _clouds(section: Section, arms: Sequence[Arm]) -> Exhibit | None:
    drawn: dict[str, list[Cloud]] = {}
    for arm in arms:
        found = [cloud_of(record, record["step"]) for record in _probes(arm.runs[0])]
        clouds = [cloud for cloud in found if cloud is not None]
        if clouds:
            drawn[arm.label] = clouds
    if not drawn:
        return None
    every = [cloud for clouds in drawn.values() for cloud in clouds]
    words = [
        "Each dash is one singular value of the Jacobian of the last state with respect to the "
        "first. At ln σ = 0 a gradient keeps its length; far below it vanishes, far above it "
        "explodes.",
        _interval_words(every),
    ]
    if any(cloud.extremes_only for cloud in every):
        words.append(
            f"Of a state of more than {LARGEST:,} numbers only the largest and the smallest "
            "singular value are measured: marks in place of dashes."
        )
    if any(all(s == -math.inf for s in cloud.log_sigma) for cloud in every):
        words.append("An arrow at the foot: all are exactly 0.")
    many = len(drawn) > _MOST_OVER_TIME
    return Exhibit(
        f"{section.title}: singular values",
        " ".join(filter(None, words)),
        spectra_side_by_side(drawn)
        if many
        else singular_values(drawn, xlabel="training step", xlog=False),
        wide=many,
    )


def _interval_words(clouds: Sequence[Cloud]) -> str:
    bounded = [cloud for cloud in clouds if cloud.upper is not None]
    words = []
    if bounded:
        words.append("The theorem says that they lie in the interval.")
    if any(cloud.vacuous for cloud in bounded):
        words.append(
            "Where it is only outlined, not shaded, it holds, but is too wide to be useful: "
            "see where the measured values lie."
        )
    if any(cloud.lower is None for cloud in bounded):
        words.append("Without a lower end, ρ is too large for the theorem to bound from below.")
    return " ".join(words)


def _eigenvalues(section: Section, arms: Sequence[Arm]) -> Exhibit | None:
    probes = _last_probes(arms, "eigenvalues")
    if not probes:
        return None
    return Exhibit(
        f"{section.title}: eigenvalues of one step",
        "Eigenvalues of the Jacobian of a single step, and the unit circle. A random orthogonal "
        "O spreads them in a thin ring near it; the identity gathers them all at 1.",
        eigenvalues({label: probe["eigenvalues"] for label, probe in probes.items()}),
        wide=len(probes) > 1,
    )


def _surfaces(section: Section, arms: Sequence[Arm]) -> Exhibit | None:
    probes = _last_probes(arms, "surface")
    if not probes:
        return None
    surfaces = {
        label: Surface(
            tuple(probe["surface"]["extent"]),
            probe["surface"]["values"],
            probe["surface"].get("points", ()),
        )
        for label, probe in probes.items()
    }
    return Exhibit(
        f"{section.title}: decision surfaces",
        "The network's answer over the plane, −1 blue to 1 orange, its boundary black, the points "
        "on top. A network through which gradients flow draws a smooth boundary between the moons.",
        decision_surfaces(surfaces),
        wide=len(surfaces) > 1,
    )


def _rho_grids(section: Section) -> list[list[Arm]]:
    families: dict[str, list[Arm]] = {}
    for arm in section.arms:
        if is_number(arm.model.get("rho")):
            rest = {key: value for key, value in arm.model.items() if key != "rho"}
            train = dict(arm.runs[0].config.get("train", {}))
            train.pop("seed", None)
            families.setdefault(repr((sorted(rest.items()), sorted(train.items()))), []).append(arm)
    return [grid for grid in families.values() if len(grid) >= _RHO_GRID]


def _against_rho(section: Section, grid: Sequence[Arm]) -> Exhibit:
    goal, model = section.goal, str(grid[0].model["name"])
    points = [
        RhoPoint(float(arm.model["rho"]), outcome.run.seed, outcome.last)
        for arm in grid
        for outcome in arm.outcomes
    ]
    figure = score_against_rho(
        {model: points},
        ylabel=f"final {score_name(goal.score)}",
        trivial=goal.trivial.get(goal.score),
        log=goal.better == "lower",
        percent="accuracy" in goal.score,
        marked=None if section.row is None else section.row.rho,
    )
    return Exhibit(
        f"{section.title}: final score against ρ",
        f"Every mark is one run at its end, the line their median; × diverged. {len(grid)} values "
        "of ρ, all else equal. The vertical line is the ρ of the paper's figure.",
        figure,
    )
