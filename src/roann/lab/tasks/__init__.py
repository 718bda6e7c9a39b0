"""The tasks: one table, one row per task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from roann.lab.tasks.adding import Adding, AddingConfig
from roann.lab.tasks.base import Batch, Task, mean_scores
from roann.lab.tasks.copying import Copying, CopyingConfig
from roann.lab.tasks.double_moon import DoubleMoon, DoubleMoonConfig
from roann.lab.tasks.mnist import PsMnistConfig, SequentialMnist, SMnistConfig

__all__ = ["TASKS", "Batch", "Task", "TaskRow", "mean_scores"]


@dataclass(frozen=True)
class TaskRow:
    """One task: its settings, a frozen dataclass that checks itself, and its maker.

    Attributes:
        config: the class of its settings; every field has a default, the paper's.
        build: from settings (and ``device=``) to the task.
    """

    config: type[Any]
    build: Callable[..., Task]


TASKS: dict[str, TaskRow] = {
    "double-moon": TaskRow(DoubleMoonConfig, DoubleMoon),
    "copying": TaskRow(CopyingConfig, Copying),
    "adding": TaskRow(AddingConfig, Adding),
    "psmnist": TaskRow(PsMnistConfig, SequentialMnist),
    "smnist": TaskRow(SMnistConfig, SequentialMnist),
}
