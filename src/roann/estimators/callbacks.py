"""What may look at a fit, or stop it, after each epoch."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, TextIO

from torch import nn

from roann import _checks, serialization


@dataclass
class Epoch:
    """What is known after an epoch: a row of `history_`.

    Attributes:
        member: which network of the estimator, from 0.
        epoch: counted from 1, over all calls of `fit` with warm_start and of `partial_fit`.
        loss: the mean training loss of the epoch.
        valid_loss, valid_score: on the validation split; None without one. The score is accuracy,
            R² or, of a forecaster, the skill against repeating the last value.
        learning_rate: the last one of the epoch.
        seconds: since the fit of this member began.
    """

    member: int
    epoch: int
    loss: float
    valid_loss: float | None
    valid_score: float | None
    learning_rate: float
    seconds: float


@dataclass
class Progress:
    """What a callback is given.

    Attributes:
        row: the numbers of this epoch.
        epochs: how many epochs the fit takes at most.
        network: the network as it stands.
        best: whether this epoch has the lowest validation loss so far, or training loss without
            a validation split.
        next_rate: set it to a learning rate to replace the built-in schedule in the next epoch.
    """

    row: Epoch
    epochs: int
    network: nn.Module
    best: bool
    next_rate: float | None = field(default=None)


class Callback(Protocol):
    """Anything that can be called with a `Progress`; return True to stop the fit.

    Example:
        >>> from roann.estimators import RoaRegressor
        >>> def enough(progress):
        ...     return progress.row.epoch == 2
        >>> X = torch.randn(20, 5).numpy()
        >>> len(RoaRegressor(hidden_size=4, callbacks=[enough]).fit(X, X[:, 0]).history_)
        2
    """

    def __call__(self, progress: Progress, /) -> bool | None:
        """Called after each epoch."""


@dataclass
class Checkpoint:
    """Save the network of the best epoch so far to one safetensors file.

    Args:
        path: the file; `{member}` in its name is replaced by the number of the network.

    Load it with `roann.load(path, into=estimator.networks_[0])`.

    Example:
        >>> import tempfile
        >>> from roann.estimators import RoaRegressor
        >>> X = torch.randn(20, 5).numpy()
        >>> file = Path(tempfile.mkdtemp()) / "best.safetensors"
        >>> model = RoaRegressor(hidden_size=4, max_epochs=2, callbacks=[Checkpoint(file)])
        >>> _ = model.fit(X, X[:, 0])
        >>> roann.load(file, into=model.networks_[0]) is model.networks_[0]
        True
    """

    path: str | os.PathLike[str]

    def __call__(self, progress: Progress) -> None:
        """Save, if this epoch is the best so far."""
        if progress.best:
            path = os.fspath(self.path).replace("{member}", str(progress.row.member))
            serialization.save(progress.network, path)


@dataclass
class Log:
    """Append the numbers of each epoch to a file, one JSON object per line.

    Example:
        >>> import tempfile
        >>> from roann.estimators import RoaRegressor
        >>> X = torch.randn(20, 5).numpy()
        >>> file = Path(tempfile.mkdtemp()) / "log.jsonl"
        >>> _ = RoaRegressor(hidden_size=4, max_epochs=3, callbacks=[Log(file)]).fit(X, X[:, 0])
        >>> len(file.read_text().splitlines())
        3
    """

    path: str | os.PathLike[str]

    def __call__(self, progress: Progress) -> None:
        """Append a line."""
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(progress.row)) + "\n")


@dataclass
class Schedule:
    """A learning rate of your own for each epoch.

    Args:
        rate: from the number of the next epoch, counted from 1, to its learning rate. The first
            epoch has the built-in one.

    Example:
        >>> from roann.estimators import RoaRegressor
        >>> X = torch.randn(20, 5).numpy()
        >>> halved = Schedule(lambda epoch: 0.01 / 2**epoch)
        >>> model = RoaRegressor(hidden_size=4, max_epochs=3, callbacks=[halved]).fit(X, X[:, 0])
        >>> [row["learning_rate"] for row in model.history_][1:]
        [0.0025, 0.00125]
    """

    rate: Callable[[int], float]

    def __call__(self, progress: Progress) -> None:
        """Set the next learning rate."""
        rate = self.rate(progress.row.epoch + 1)
        progress.next_rate = _checks.real("rate", rate, positive=True)


@dataclass
class TensorBoard:
    """Write losses, scores and the learning rate for TensorBoard (extra `[tensorboard]`).

    Args:
        folder: where event files go, in a folder `member-NUMBER` for each network.

    Example:
        >>> board = TensorBoard("runs/first")
        >>> board.folder
        'runs/first'
    """

    folder: str | os.PathLike[str]
    _writers: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, progress: Progress) -> None:
        """Write one point of each curve."""
        row = progress.row
        if row.member not in self._writers:
            self._writers[row.member] = self._writer(row.member)
        writer = self._writers[row.member]
        for name in ("loss", "valid_loss", "valid_score", "learning_rate"):
            value = getattr(row, name)
            if value is not None:
                writer.add_scalar(name, value, row.epoch)
        writer.flush()

    def _writer(self, member: int) -> Any:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ModuleNotFoundError(
                "TensorBoard needs the package tensorboard; install it with: "
                "pip install 'roann[tensorboard]'"
            ) from error
        return SummaryWriter(str(Path(self.folder) / f"member-{member}"))

    def __getstate__(self) -> dict[str, Any]:
        """Without open files: a clone writes its own."""
        return {"folder": self.folder, "_writers": {}}


class Lines:
    """The progress of a fit: one line that is rewritten on a terminal, else one every 2 seconds."""

    def __init__(self, name: str, members: int, stream: TextIO | None = None) -> None:
        self.name, self.members = name, members
        self.stream = sys.stderr if stream is None else stream
        self.shown = -math.inf

    def __call__(self, progress: Progress) -> None:
        """Show the epoch."""
        row, last = progress.row, progress.row.epoch >= progress.epochs
        terminal = self.stream.isatty()
        now = time.monotonic()
        if not last and now - self.shown < (0.1 if terminal else 2.0):
            return
        self.shown = now
        done = round(20 * min(1.0, row.epoch / progress.epochs))
        parts = [f"{self.name} [{'#' * done}{'.' * (20 - done)}]"]
        if self.members > 1:
            parts.append(f"network {row.member + 1}/{self.members}")
        parts += [f"epoch {row.epoch}/{progress.epochs}", f"loss {row.loss:.4f}"]
        if row.valid_loss is not None:
            parts += [f"validation {row.valid_loss:.4f}", f"score {row.valid_score:.3f}"]
        line = "  ".join(parts)
        self.stream.write(f"\r\x1b[K{line}" if terminal else f"{line}\n")
        self.stream.flush()

    def close(self) -> None:
        """End the line."""
        if self.stream.isatty() and self.shown > -math.inf:
            self.stream.write("\n")
