"""A search for good settings by Optuna: each trial is a run, in a directory as those of a sweep.

The journal beside the runs is the state of a search. After any interruption the same command reads
it, continues the trials that had begun, and goes on. A trial whose scores are worse than the median
of the others at the same evaluation is pruned.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roann.lab import engines
from roann.lab.board import board
from roann.lab.config import TABLES, ConfigError, Experiment
from roann.lab.engines.base import Setup
from roann.lab.follow import Follower
from roann.lab.progress import counted
from roann.lab.records import is_number
from roann.lab.run import METRICS, build, prepare
from roann.lab.stop import Stop
from roann.lab.sweep import drive

if TYPE_CHECKING:
    import optuna

MAX_TRIALS = 100_000
STARTUP = 5  # trials before any is pruned
_AGAIN = 10  # draws, where settings are already being tried
_log = logging.getLogger(__name__)

Space = dict[str, dict[str, Any] | list[Any]]


def space(table: Mapping[str, Any], experiment: Experiment) -> Space:
    """The fields to vary with their ranges or values, from `[search]`.

    Without one: ρ and the learning rate up to ten times smaller and larger than in the file, and
    widths from half of its own to double, as far as the model has them.
    """
    found: Space = {}
    for key, value in table.items():
        nested = key in TABLES and isinstance(value, dict)
        inner = {f"{key}.{k}": v for k, v in value.items()} if nested else {key: value}
        found |= inner
    if not table:
        model = experiment.model
        for name in ("hidden_size", "width"):
            if hasattr(model, name):
                width = getattr(model, name)
                found[f"model.{name}"] = {"low": max(1, width // 2), "high": 2 * width, "log": True}
        rates = {"model.rho": getattr(model, "rho", None), "train.lr": experiment.train.lr}
        for name, rate in rates.items():
            if rate:
                found[name] = {"low": rate / 10, "high": rate * 10, "log": True}
    for name, value in found.items():
        _check(name, value, experiment)
    return found


def _check(name: str, value: Any, experiment: Experiment) -> None:
    """Refuse what is no range and no list, and ends that the field does not allow."""
    ends = value
    if isinstance(value, dict):
        low, high, log = value.get("low"), value.get("high"), value.get("log", False)
        known = set(value) <= {"low", "high", "log"} and isinstance(log, bool)
        fits = is_number(low) and is_number(high) and low < high and (low > 0 or not log)
        if not known or not fits:
            raise ConfigError(
                f"[search] {name} must have low below high, both above 0 if log = true, "
                f"not {value!r:.100}."
            )
        ends = [low, high]
    if not isinstance(ends, list) or not ends:
        raise ConfigError(
            f"[search] {name} must be {{ low = …, high = … }} or a list, not {value!r:.60}."
        )
    if not all(isinstance(end, bool | int | float | str) for end in ends):
        raise ConfigError(f"[search] {name} must list numbers or text, not {value!r:.60}.")
    for end in ends:
        experiment.changed({name: end}, "search")


def journal_of(experiment: Experiment, over: Space, stem: Path) -> Path:
    """The journal of a search, named by all that makes it the same search."""
    text = json.dumps([experiment.digest(), over], sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return stem.with_name(f"search-{stem.name}-{digest[:10]}.journal")


class Search:
    """A plan: runs that Optuna proposes, and prunes."""

    def __init__(
        self, study: optuna.Study, experiment: Experiment, over: Space, stem: Path, trials: int
    ) -> None:
        self._study, self._experiment = study, experiment
        self._over = {name: _distribution(value) for name, value in over.items()}
        self._stem, self._trials = stem, trials
        self._running: dict[Path, tuple[optuna.Trial, Follower]] = {}
        self._pruned: set[Path] = set()
        self._look = 0.0
        self._begun = self._unfinished()

    def _unfinished(self) -> list[optuna.Trial]:
        """The trials that an earlier driver had begun."""
        from optuna import Trial
        from optuna.trial import TrialState

        found = []
        for frozen in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if frozen.params.keys() == self._over.keys():
                found.append(Trial(self._study, frozen._trial_id))
            else:  # killed while it was drawn
                self._study.tell(frozen.number, state=TrialState.FAIL)
        return found

    def next(self) -> tuple[Path, Experiment] | None:
        """The run of a trial that had begun, or of a new one."""
        from optuna.trial import TrialState

        for _ in range(_AGAIN):
            if not self._begun and self.left() == 0:
                return None
            trial = self._begun.pop(0) if self._begun else self._study.ask(self._over)
            experiment = self._experiment.changed(trial.params, "search")
            name = "-".join([self._stem.name, *map(_words, trial.params.items())])
            folder = self._stem.with_name(experiment.run_id(name))
            if folder not in self._running:
                prepare(folder, experiment)
                trial.set_user_attr("directory", str(folder))
                self._running[folder] = trial, Follower(folder / METRICS)
                return folder, experiment
            self._study.tell(trial, state=TrialState.FAIL)  # the same is being tried
        return None

    def left(self) -> int:
        """How many trials are still to be started."""
        from optuna.trial import TrialState

        states = [trial.state for trial in self._study.get_trials(deepcopy=False)]
        asked = len(states) - states.count(TrialState.WAITING)  # put into the journal by hand
        return max(0, self._trials - asked) + len(self._begun)

    def unwanted(self, running: Iterable[Path]) -> list[Path]:
        """Report new scores; returns the runs that Optuna prunes."""
        if time.monotonic() < self._look:
            return []
        self._look = time.monotonic() + 1.0
        for folder in running:
            trial, follower = self._running[folder]
            if folder not in self._pruned and _report(trial, follower):
                self._pruned.add(folder)
                _log.info("%s: pruned.", folder.name)
        return [folder for folder in running if folder in self._pruned]

    def ended(self, folder: Path, status: str) -> None:
        """Tell Optuna the outcome; what was interrupted stays to be continued."""
        from optuna.trial import TrialState

        trial, follower = self._running.pop(folder)
        _report(trial, follower)
        best = follower.best
        if folder in self._pruned and status == "interrupted":
            self._study.tell(trial, state=TrialState.PRUNED)
        elif status == "finished" and best is not None:
            self._study.tell(trial, best)
        elif status == "diverged" and best is not None:
            self._study.tell(trial, state=TrialState.PRUNED)
        elif status in ("failed", "killed", "finished", "diverged"):
            self._study.tell(trial, state=TrialState.FAIL)


def _words(param: tuple[str, Any]) -> str:
    field, value = param
    return f"{field.partition('.')[2]}-{f'{value:.4g}' if isinstance(value, float) else value}"


def _report(trial: optuna.Trial, follower: Follower) -> bool:
    """Report the scores that are new, by the number of their evaluation; whether one is too bad."""
    known = trial.study.get_trials(deepcopy=False)[trial.number].intermediate_values
    bad = False
    for number, score in enumerate(follower.look().scores.values()):
        if number not in known:
            trial.report(score, number)
            bad = bad or trial.should_prune()
    return bad


def _distribution(value: Any) -> optuna.distributions.BaseDistribution:
    from optuna import distributions as kinds

    if isinstance(value, list):
        return kinds.CategoricalDistribution(value)
    low, high, log = value["low"], value["high"], value.get("log", False)
    if isinstance(low, int) and isinstance(high, int):
        return kinds.IntDistribution(low, high, log=log)
    return kinds.FloatDistribution(low, high, log=log)


def _study(journal: Path, experiment: Experiment, direction: str) -> optuna.Study:
    """The study of a journal; only the driver that holds the lock may open it."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    for left in journal.parent.glob(f"{journal.name}.lock*"):
        left.unlink()  # of a driver that was killed
    if journal.exists():
        data = journal.read_bytes()
        with open(journal, "r+b") as file:  # it may have been killed within a line
            file.truncate(data.rfind(b"\n") + 1)
    plan = experiment.train
    storage = JournalStorage(JournalFileBackend(str(journal)))
    study = optuna.create_study(
        storage=storage,
        study_name="roann",
        load_if_exists=True,
        direction="minimize" if direction == "lower" else "maximize",
        pruner=optuna.pruners.MedianPruner(
            n_startup_trials=STARTUP, n_warmup_steps=math.ceil(plan.length / plan.eval_every / 5)
        ),
    )
    # A search that goes on must not draw again what it has drawn.
    seed = (plan.seed + len(study.get_trials(deepcopy=False))) % 2**32
    with warnings.catch_warnings():  # that trials in progress count is new in some versions
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
    return study


@dataclass(frozen=True)
class Outcomes:
    """All trials of a search, in their order, the best of them, and the score that counts."""

    trials: list[dict[str, Any]]
    best: dict[str, Any] | None
    score: str


def run_search(
    experiment: Experiment,
    over: Space,
    stem: Path,
    trials: int,
    setup: Mapping[str, Any],
    stop: Stop,
    quiet: bool = False,
) -> Outcomes:
    """Try settings until there were `trials` of them; runs are named and placed after `stem`.

    `setup` has ``engine`` and, if wanted, ``jobs``, ``address`` and ``resources``.
    """
    if not 1 <= trials <= MAX_TRIALS:
        raise ConfigError(f"--trials must be from 1 to {MAX_TRIALS}, not {trials}.")
    engine, *_ = rest = setup["engine"], setup.get("jobs"), setup.get("address")
    engines.check(*rest)
    engines.need("optuna", "roann search", "search")
    task, _ = build(experiment)  # before any trial: mistakes of the file are none of theirs
    journal = journal_of(experiment, over, stem)
    with engines.sole_driver(journal.with_name(f".{journal.name}.lock")) as home:
        study = _study(journal, experiment, task.better)
        plan = Search(study, experiment, over, stem, trials)
        _log.info("%s, %d to go; journal: %s.", counted(trials, "trial"), plan.left(), journal)
        if plan.left():
            given = {key: value for key, value in setup.items() if key != "engine"}
            with engines.opened(engine, Setup(home, **given)) as opened:
                drive(plan, opened, stop, board(quiet))
    rows = [_row(trial) for trial in study.get_trials(deepcopy=False)]
    scored = [row for row in rows if row["score"] is not None]
    choose = min if task.better == "lower" else max
    return Outcomes(rows, choose(scored, key=lambda row: row["score"], default=None), task.primary)


def _row(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    state = trial.state.name.lower()
    row = {"trial": trial.number, "state": "unfinished" if state == "running" else state}
    score = trial.value if state == "complete" else None
    return row | {"score": score, "values": trial.params} | trial.user_attrs
