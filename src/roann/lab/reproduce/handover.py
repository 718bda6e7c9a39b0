"""Runs that have not ended, kept beside the records, so that another machine can go on with them.

What is kept is a run directory with one checkpoint and the best one: all that a resumed run reads.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from roann.lab import checkpoint, run
from roann.lab.config import Experiment
from roann.lab.reproduce.collect import SOURCE

PLACE = "unfinished"
_log = logging.getLogger(__name__)


def keep(folder: Path, results: Path) -> None:
    """Copy what a run needs to go on to `results/unfinished/<figure>/`, or delete it at the end.

    The run may be under way: the newest checkpoint is copied first, and its records are a part of
    those copied after it. What was kept of a run that is further on, elsewhere, is left alone.
    """
    kept = _kept(folder, results)
    if run.result_of(folder) is not None:
        _remove(kept)
        return
    if _step(folder) is None or (_step(kept) or 0) > (_step(folder) or 0):
        return
    new = kept.with_name(f"{kept.name}.new")
    for last in (False, True):
        _remove(new)
        try:
            _copy(folder, new)
            break
        except FileNotFoundError:  # the run has deleted this checkpoint, for it has a newer one
            if last:
                raise
    _remove(kept)
    new.rename(kept)


def _copy(folder: Path, new: Path) -> None:
    for place in (run.CHECKPOINTS, run.BEST):
        for newest in checkpoint.committed(folder / place)[:1]:
            shutil.copytree(newest, new / place / newest.name)
    for name in (run.CONFIG, run.ENVIRONMENT, run.METRICS, SOURCE):
        if (folder / name).exists():
            shutil.copyfile(folder / name, new / name)


def take_up(folder: Path, experiment: Experiment, results: Path) -> None:
    """Begin a run directory with what was kept of it, if there is nothing to go on from yet."""
    kept = _kept(folder, results)
    begun = run.result_of(folder) is not None or _step(folder) is not None
    if begun or not (kept / run.CONFIG).exists():
        return
    if not run.is_of(kept, experiment):
        _log.warning("%s is of another config; the run begins anew.", kept)
        return
    _remove(folder)
    new = folder.with_name(f"{folder.name}.new")
    _remove(new)
    shutil.copytree(kept, new)
    new.rename(folder)
    _log.info("%s: begun elsewhere, goes on from %s.", folder.name, kept)


def _step(folder: Path) -> int | None:
    """The step of the newest checkpoint of a run directory."""
    found = checkpoint.committed(folder / run.CHECKPOINTS)
    return checkpoint.step_of(found[0]) if found else None


def _kept(folder: Path, results: Path) -> Path:
    return results / PLACE / folder.parent.name / folder.name


def _remove(path: Path) -> None:
    """A directory that may not be there."""
    if path.exists():
        shutil.rmtree(path)
