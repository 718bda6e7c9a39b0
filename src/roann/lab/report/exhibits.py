"""Which figures a section of the report shows, and their captions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from roann.lab.figures.curves import Curve, curve_of, learning_curves, score_against_rho, thinned
from roann.lab.figures.spectra import (
    cloud_of,
    eigenvalues,
    flow_of,
    gradient_along_time,
    singular_values,
    spectra_side_by_side,
)
from roann.lab.figures.style import number_text
from roann.lab.figures.surfaces import Surface, decision_surfaces
from roann.lab.models import MODELS
from roann.lab.probe import LARGEST
from roann.lab.records import is_number
from roann.lab.report.results import Arm
from roann.lab.report.summary import Section

_SCORE_NAMES = {
    "mse": "mean squared error",
    "cross_entropy": "cross-entropy",
    "recall_cross_entropy": "cross-entropy on the recall",
    "recall_accuracy": "recall accuracy",
}
_MOST_OVER_TIME = 7  # arms whose spectra can be distinguished at every probe
_RHO_GRID = 4  # values of ρ in arms that are otherwise equal that make a figure against ρ

_CURVES = "Thin lines: seeds. Thick: their median. ★ best point, × where a run diverged."
_LINEAR = " Dashed: a linear classifier that sees all pixels at once and needs no memory."
_NORMS = (
    "The largest singular value of W over training, every seed thin, their median thick. The "
    "theorems' interval is about e to the ±ρ‖W‖: it widens as ‖W‖ grows."
)
_FLOW = (
    "How strongly the loss depends on the state at each {}, at the last probe of the first seed. "
    "A flat line: gradients reach the first {}. A line that falls to the left: they vanish."
)
_SPECTRA = (
    "Each dash is one singular value of the Jacobian of the last state with respect to the first. "
    "At ln σ = 0 a gradient keeps its length; far below it vanishes, far above it explodes. "
    "Shaded: the theorem's interval. Only outlined: the interval holds, but is too wide to be "
    "useful. Without a lower end: ρ is too large for a lower bound. Markers: of a state of more "
    f"than {LARGEST:,} numbers only the largest and the smallest singular value are measured. "
    "Arrow at the bottom: all are exactly 0."
)
_EIGENVALUES = (
    "Eigenvalues of the Jacobian of a single step, and the unit circle. A random orthogonal O "
    "spreads them in a thin ring near it; the identity gathers them all at 1."
)
_SURFACES = (
    "The network's answer over the plane, −1 blue to 1 orange, its boundary black, the points on "
    "top."
)
_RHO = (
    "Every mark is one run at its end, the line their median; × diverged. The vertical line is the "
    "ρ of the paper's figure."
)


@dataclass(frozen=True)
class Exhibit:
    """A figure with its caption."""

    title: str
    caption: str
    figure: Figure
    wide: bool = False  # it has several panels and needs the full width of the page


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
    goal = section.goal
    # The primary score, and one more that has a trivial score to compare with.
    scores = [goal.score, *[name for name in goal.trivial if name != goal.score][:1]]
    made = [
        *(exhibit for score in scores for exhibit in _curves(section, arms, score)),
        *_norms(arms),
        *_probed(arms),
        *(_against_rho(section, grid) for grid in grids),
    ]
    return [Exhibit(f"{section.title}: {e.title}", e.caption, e.figure, e.wide) for e in made]


def _curves(section: Section, arms: Sequence[Arm], score: str) -> Iterator[Exhibit]:
    epochs = any(r.get("epoch") for run in section.runs for r in run.records)
    x = "epoch" if epochs else "step"
    drawn = {
        arm.label: [thinned(curve) for curve in _of_seeds(arm, score, section.goal.set, x)]
        for arm in arms
    }
    drawn = {label: curves for label, curves in drawn.items() if any(c.x for c in curves)}
    if not drawn:
        return
    fraction = "accuracy" in score
    linear = section.row.memoryless if section.row and score == "accuracy" else None
    figure = learning_curves(
        drawn,
        ylabel=score_name(score),
        xlabel="epoch" if epochs else "training step",
        better="higher" if fraction else "lower",
        trivial=section.goal.trivial.get(score) if linear is None else linear,
        trivial_name="trivial" if linear is None else "linear softmax",
        log=not fraction,
        percent=fraction,
    )
    yield Exhibit(score_name(score), _CURVES + _LINEAR * (linear is not None), figure)


def _of_seeds(arm: Arm, score: str, shown: str | None, x: str) -> list[Curve]:
    """The curves of an arm's seeds, from evaluations if there are any, else from training."""
    curves = []
    for run in arm.runs:
        options: dict[str, Any] = {"x": x, "seed": run.seed, "diverged": run.status == "diverged"}
        curve = curve_of(run.records, score, set=shown, **options)
        curves.append(curve if curve.x else curve_of(run.records, score, kind="train", **options))
    return curves


def _norms(arms: Sequence[Arm]) -> Iterator[Exhibit]:
    drawn = {
        arm.label: [
            curve
            for run in arm.runs
            if (curve := curve_of(run.records, "norm_W", kind="probe", seed=run.seed)).x
        ]  # of the seeds that were probed: some figures probe the first alone
        for arm in arms
    }
    drawn = {label: curves for label, curves in drawn.items() if any(len(c.x) > 1 for c in curves)}
    if drawn:
        figure = learning_curves(drawn, ylabel="‖W‖₂", log=True, best=False)
        yield Exhibit("the norm of W", _NORMS, figure)


def _probed(arms: Sequence[Arm]) -> Iterator[Exhibit]:
    """What the probes of the first seed of each arm measured, mostly the last one of them."""
    probes = {arm.label: arm.runs[0].of_kind("probe") for arm in arms}
    flows = {k: flow for k, probe in _last(probes, "gradient_by_step") if (flow := flow_of(probe))}
    if flows:
        kinds = {row.kind for arm in arms if (row := MODELS.get(str(arm.model["name"])))}
        over, step = ("depth", "layer") if kinds == {"depth"} else ("time", "time step")
        figure = gradient_along_time(flows, xlabel="layer" if over == "depth" else "time step t")
        yield Exhibit(f"gradient along {over}", _FLOW.format(step, step), figure)
    clouds = {
        label: found
        for label, seen in probes.items()
        if (found := [cloud for p in seen if (cloud := cloud_of(p, p["step"])) is not None])
    }
    if len(clouds) > _MOST_OVER_TIME:
        yield Exhibit("singular values", _SPECTRA, spectra_side_by_side(clouds), wide=True)
    elif clouds:
        yield Exhibit("singular values", _SPECTRA, singular_values(clouds))
    values = {label: probe["eigenvalues"] for label, probe in _last(probes, "eigenvalues")}
    if values:
        figure = eigenvalues(values)
        yield Exhibit("eigenvalues of one step", _EIGENVALUES, figure, wide=len(values) > 1)
    surfaces = {
        label: Surface(tuple(seen["extent"]), seen["values"], seen.get("points") or ())
        for label, probe in _last(probes, "surface")
        for seen in [probe["surface"]]
    }
    if surfaces:
        figure = decision_surfaces(surfaces)
        yield Exhibit("decision surfaces", _SURFACES, figure, wide=len(surfaces) > 1)


def _last(
    probes: dict[str, list[dict[str, Any]]], key: str
) -> Iterable[tuple[str, dict[str, Any]]]:
    """Per arm, the last probe that holds `key`."""
    for label, seen in probes.items():
        yield from ((label, probe) for probe in [p for p in seen if p.get(key)][-1:])


def _rho_grids(section: Section) -> list[list[Arm]]:
    families: dict[str, list[Arm]] = {}
    for arm in section.arms:
        if is_number(arm.model.get("rho")):
            train = {**arm.runs[0].config.get("train", {}), "seed": 0}
            settings = sorted({**arm.model, "rho": 0}.items()), sorted(train.items())
            families.setdefault(repr(settings), []).append(arm)
    return [grid for grid in families.values() if len(grid) >= _RHO_GRID]


def _against_rho(section: Section, grid: Sequence[Arm]) -> Exhibit:
    goal = section.goal
    figure = score_against_rho(
        str(grid[0].model["name"]),
        [(float(arm.model["rho"]), o.last) for arm in grid for o in arm.outcomes],
        ylabel=f"final {score_name(goal.score)}",
        trivial=goal.trivial.get(goal.score),
        log=goal.better == "lower",
        percent="accuracy" in goal.score,
        marked=None if section.row is None else section.row.rho,
    )
    return Exhibit("final score against ρ", _RHO, figure)
