"""Runs that have not ended, kept beside the records, so that another machine can go on with them.

What is kept is a run directory with one checkpoint and the best one: all that a resumed run reads.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from roann.lab import checkpoint, run
from roann.lab.reproduce.collect import SOURCE

PLACE = "unfinished"
_log = logging.getLogger(__name__)


def keep(folder: Path, results: Path) -> None:
    """Copy what a run needs to go on to `results/unfinished/<figure>/`, or delete it at the end.

    The run may be under way: the newest checkpoint is copied first, and its records are a part of
    those copied after it. A run without a checkpoint has nothing to go on from.
    """
    kept = _kept(folder, results)
    found = checkpoint.committed(folder / run.CHECKPOINTS)
    if run.result_of(folder) is not None or not found:
        _remove(kept)
        return
    new = kept.with_name(f"{kept.name}.new")
    _remove(new)
    shutil.copytree(found[0], new / run.CHECKPOINTS / found[0].name)
    for best in checkpoint.committed(folder / run.BEST)[:1]:
        shutil.copytree(best, new / run.BEST / best.name)
    for name in (run.CONFIG, run.ENVIRONMENT, run.METRICS, SOURCE):
        if (folder / name).exists():
            shutil.copyfile(folder / name, new / name)
    _remove(kept)
    new.rename(kept)


def take_up(folder: Path, results: Path) -> None:
    """Begin a run directory with what was kept of it, if there is none yet."""
    kept = _kept(folder, results)
    if not (kept / run.CONFIG).exists() or (folder / run.CONFIG).exists():
        return
    _remove(folder)
    new = folder.with_name(f"{folder.name}.new")
    _remove(new)
    shutil.copytree(kept, new)
    new.rename(folder)
    _log.info("%s: begun elsewhere, goes on from %s.", folder.name, kept)


def _kept(folder: Path, results: Path) -> Path:
    return results / PLACE / folder.parent.name / folder.name


def _remove(path: Path) -> None:
    """A directory that may not be there."""
    if path.exists():
        shutil.rmtree(path)
