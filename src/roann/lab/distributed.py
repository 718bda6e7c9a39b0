"""One training in several processes: who this process is, and what the processes tell each other.

torchrun (or `--processes`, see `roann.lab.launch`) starts the processes; each has a rank, and rank
0 leads: it alone reads and writes the run directory and speaks. All of them go through the same
steps. What must be equal in all of them (weights, filters, decisions) comes from rank 0 or from a
sum over all ranks, so that every process takes the same branch at the same step.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from roann.lab.config import ConfigError
from roann.lab.exits import INTERRUPTED, USAGE, LabError
from roann.lab.models.base import Model
from roann.lab.stop import InterruptedRun
from roann.lab.streams import generator
from roann.lab.tasks.base import Batch, Task, mean_scores

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store


class ElsewhereError(LabError):
    """What another process raised while all did the same."""

    def __init__(self, rank: int, code: int, words: str) -> None:
        super().__init__(f"rank {rank}: {words}")
        self.code = code


class UnequalError(LabError):
    """Processes whose weights or filters differ."""

    code = INTERRUPTED


class Objective(nn.Module):
    """A model with its loss, as one module: DistributedDataParallel must see all of the graph."""

    def __init__(self, task: Task, model: Model) -> None:
        super().__init__()
        self.model = model
        self._task = task

    def forward(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The predictions, their loss, and the loss with the model's penalty."""
        prediction = self.model(inputs)
        loss = self._task.loss(prediction, targets)
        penalty = self.model.penalty()
        return prediction, loss, loss if penalty is None else loss + penalty


class Ranks:
    """This process among those that train together. Alone (`world` 1), every method is trivial.

    Each method but `batch` is called by all processes, in the same order.
    """

    def __init__(self, rank: int = 0, world: int = 1, store: Store | None = None) -> None:
        self.rank, self.world = rank, world
        self._store = store

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def is_lost(self, folder: Path) -> bool:
        """Whether these processes made a directory before they were started again, and it is gone.

        Then rank 0 has moved to another machine. Called before the directory is made; its store
        outlives restarts.
        """
        begun = self._store is not None and self._store.add("roann/begun", 0) > 0
        return begun and not folder.exists()

    def begin(self) -> None:
        """Note that the run directory has been made."""
        if self._store is not None:
            self._store.add("roann/begun", 1)

    def check(self, task: Task, model: Model) -> None:
        """Refuse what several processes cannot train as one does."""
        if self.world == 1:
            return
        if task.batch_size % self.world:
            raise ConfigError(
                f"[task] batch_size: {self.world} processes cannot share {task.batch_size} "
                f"examples equally; use a multiple of {self.world}."
            )
        if any(map(_couples, model.modules())):
            raise ConfigError(
                "[model] name: this model normalizes with statistics of the batch, of which each "
                "process would see a part only; train it in one process."
            )

    def batch(self, task: Task, seed: int, step: int) -> Batch:
        """This rank's part of the global batch; what the model draws for it is fixed, too.

        One process draws masks of dropout from one stream that a checkpoint keeps. Several draw
        them anew for every step and rank, so there is nothing to keep.
        """
        if self.world > 1:
            torch.manual_seed(generator(seed, "masks", step, self.rank).initial_seed())
        return task.batch(seed, step, self.rank, self.world)

    def objective(self, task: Task, model: Model) -> nn.Module:
        """The loss of a part of the batch, whose gradient is the mean over all parts.

        Buckets keep their layout (they would not without `find_unused_parameters`): sums then have
        the same order in a run that was resumed. Buffers were sent once; none changes in training.
        """
        module = Objective(task, model)
        if self.world == 1:
            return module
        kind = nn.parallel.DistributedDataParallel
        new = "forward_sync_buffers" in inspect.signature(kind).parameters  # torch 2.13
        once: dict[str, Any] = {"forward_sync_buffers" if new else "broadcast_buffers": False}
        return kind(module, init_sync=False, find_unused_parameters=True, **once)

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all ranks of a scalar, without a graph."""
        if self.world == 1:
            return value
        total = value.detach().double().cpu()
        torch.distributed.all_reduce(total)
        return total / self.world

    def most(self, *values: int) -> list[int]:
        """The largest of each value over all ranks."""
        if self.world == 1:
            return list(values)
        found = torch.tensor(values)
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
        return [int(value) for value in found]

    def scores(self, scores: dict[str, float]) -> dict[str, float]:
        """The scores of a batch from those of its parts."""
        if self.world == 1:
            return scores
        return mean_scores((part, 1) for part in self.gather(scores))

    def merge(self, parts: dict[int, Any]) -> list[Any]:
        """The parts of all ranks, in the order of their places, as one process would have them."""
        if self.world == 1:
            return list(parts.values())
        found = [item for other in self.gather(list(parts.items())) for item in other]
        return [part for _, part in sorted(found, key=itemgetter(0))]

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order; JSON can say them, and keeps every bit."""
        if self.world == 1:
            return [value]
        data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        torch.distributed.all_gather(sizes, torch.tensor([len(data)]))
        longest = int(max(sizes))
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.world)]
        torch.distributed.all_gather(parts, nn.functional.pad(data, (0, longest - len(data))))
        pairs = zip(parts, sizes, strict=True)
        return [json.loads(bytes(part[: int(size)].tolist())) for part, size in pairs]

    def share(self, value: Any) -> Any:
        """The value of rank 0."""
        return self.gather(value if self.leads else None)[0]

    def send(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors of rank 0, on the CPU; those of other ranks are not looked at."""
        if self.world == 1:
            return dict(tensors)
        kinds = [(name, str(t.dtype)[6:], list(t.shape)) for name, t in tensors.items()]
        found = {}
        for name, dtype, shape in self.share(kinds):
            kind = getattr(torch, dtype)
            value = tensors[name].contiguous() if self.leads else torch.empty(shape, dtype=kind)
            torch.distributed.broadcast(value.reshape(-1).view(torch.uint8), 0)
            found[name] = value
        return found

    def verify(self, model: nn.Module, when: str) -> None:
        """Raise an error unless the model has the same bits in all processes, filters included."""
        if self.world == 1:
            return
        digest = hashlib.sha256()
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            digest.update(name.encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes())
        found = self.gather(digest.hexdigest())
        other = next((rank for rank, text in enumerate(found) if text != found[0]), None)
        if other is not None:
            raise UnequalError(
                f"{when}, rank {other} has other weights or filters than rank 0; use machines of "
                "one kind. Checkpoints are good."
            )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Do something in all processes: what one of them raises for the user, all raise.

        The block itself may not talk to other processes.
        """
        error: LabError | OSError | None = None
        try:
            yield
        except (LabError, OSError) as caught:
            error = caught
            if self.world == 1:
                raise
        code = error.code if isinstance(error, LabError) else USAGE
        number = error.number if isinstance(error, InterruptedRun) else 0
        told = self.gather(None if error is None else [number, code, str(error)])
        for rank, (number, code, words) in [(r, t) for r, t in enumerate(told) if t is not None]:
            if number:
                raise InterruptedRun(number)
            raise (error if error and rank == self.rank else ElsewhereError(rank, code, words))


ALONE = Ranks()


def _couples(module: nn.Module) -> bool:
    """Whether a module's output for one example depends on the others."""
    return isinstance(module, _BatchNorm) or not getattr(module, "per_example", True)
