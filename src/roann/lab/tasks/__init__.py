"""The tasks: one table, one row per task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from roann.lab.tasks.adding import Adding, AddingConfig
from roann.lab.tasks.base import Batch, Task, mean_scores
from roann.lab.tasks.copying import Copying, CopyingConfig
from roann.lab.tasks.double_moon import DoubleMoon, DoubleMoonConfig
from roann.lab.tasks.mnist import (
    LINEAR_SOFTMAX,
    FlatMnist,
    MnistConfig,
    PsMnistConfig,
    SequentialMnist,
    SMnistConfig,
)
from roann.lab.tasks.series import Archive, ArchiveConfig, DigitsConfig, SpokenDigits

__all__ = ["TASKS", "Batch", "Task", "TaskRow", "mean_scores"]


@dataclass(frozen=True)
class TaskRow:
    """One task: its settings, a frozen dataclass that checks itself, its maker, and its words."""

    config: type[Any]  # the class of its settings; every field has a default, the paper's.
    build: Callable[..., Task]  # from settings (and ``device=``) to the task.
    title: str  # its name in a report.
    blurb: str  # what a model must do, for a reader who has never seen the task.
    # the field of the settings that sets how hard it is, and its letter in the paper.
    size: tuple[str, str] | None = None
    rho: float | None = None  # the ρ of the paper's figure.
    # the accuracy of a linear classifier that sees the whole sequence at once.
    memoryless: float | None = None


TASKS: dict[str, TaskRow] = {
    "double-moon": TaskRow(
        DoubleMoonConfig,
        DoubleMoon,
        "Double moon",
        "Two interlocking half rings of points, separated by a network that is two neurons wide "
        "and as deep as you like.",
        rho=5.0,
    ),
    "copying": TaskRow(
        CopyingConfig,
        Copying,
        "Copying memory",
        "Ten symbols are shown, then L blanks; at the marker the network must repeat the symbols "
        "in order. The accuracy is that of the recall alone: over all steps a network that recalls "
        "nothing would look almost perfect.",
        size=("lag", "L"),
        rho=3.0,
    ),
    "adding": TaskRow(
        AddingConfig,
        Adding,
        "Adding problem",
        "A sequence of T random numbers, two of them marked, one in each half; at the end the "
        "network must give their sum.",
        size=("length", "T"),
        rho=1 / 200,
    ),
    "psmnist": TaskRow(
        PsMnistConfig,
        SequentialMnist,
        "Permuted sequential MNIST",
        "The 784 pixels of a handwritten digit, one at a time in a fixed random order; at the end "
        "the network must name the digit. The best test accuracy over all epochs is shown; the "
        "score chosen by validation is with every run.",
        rho=1 / 2,
        memoryless=LINEAR_SOFTMAX,
    ),
    "smnist": TaskRow(
        SMnistConfig,
        SequentialMnist,
        "Sequential MNIST",
        "The 784 pixels of a handwritten digit, one at a time in reading order.",
    ),
    "ucr": TaskRow(
        ArchiveConfig,
        Archive,
        "UCR and UEA archive",
        "Measured series, one step at a time; at the end of each the network must name its class.",
        size=("problem", "problem"),
    ),
    "digits": TaskRow(
        DigitsConfig,
        SpokenDigits,
        "Spoken digits",
        "Recordings of spoken digits, as log-mel frames, frames of samples, or samples one at a "
        "time; at the end of each the network must name the digit. The speakers of the test "
        "recordings are those of the training recordings.",
        size=("view", "view"),
    ),
    "mnist": TaskRow(
        MnistConfig,
        FlatMnist,
        "MNIST",
        "The 784 pixels of a handwritten digit at once, for feed-forward networks.",
        memoryless=LINEAR_SOFTMAX,
    ),
}
