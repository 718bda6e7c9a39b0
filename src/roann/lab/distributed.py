"""One training in several processes: who this process is, and what the processes tell each other.

torchrun (or `--processes`, see `roann.lab.launch`) starts the processes; each has a rank, and rank
0 leads: it alone reads and writes the run directory and speaks. All of them go through the same
steps. What must be equal in all of them (weights, filters, decisions) comes from rank 0 or from a
sum over all ranks, so that every process takes the same branch at the same step.
"""

from __future__ import annotations

import gc
import hashlib
import inspect
import json
import logging
import os
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from roann.lab.config import ConfigError
from roann.lab.exits import FAILED, INTERRUPTED, USAGE, LabError
from roann.lab.models.base import Model
from roann.lab.stop import InterruptedRun
from roann.lab.tasks.base import Batch, Task, mean_scores

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

START_SECONDS = 60.0  # to wait for processes that start
MAX_WORLD = 4096
_log = logging.getLogger(__name__)


class RankError(LabError):
    """An error of one process; a launcher starts all of them again."""

    code = FAILED


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

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.rank, self.world = rank, world

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

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
                "[model] name: this model uses statistics of the batch or random masks, which "
                "several processes cannot share; train it in one process."
            )

    def batch(self, task: Task, seed: int, step: int) -> Batch:
        """This rank's part of the global batch."""
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
                "one kind. The last checkpoint is good."
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


def launched() -> bool:
    """Whether torchrun, or what works like it, has started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def restarts() -> int:
    """How often the launcher has started the processes again."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


@contextmanager
def joined(timeout: float) -> Iterator[Ranks]:
    """Join the other processes, if there are any, and leave them at the end.

    An error of this process alone becomes one sentence with its rank. What all processes raise is
    said by rank 0; the others end with its exit code and without a word.
    """
    rank, world = _place() if launched() else (0, 1)
    if world == 1:
        yield ALONE
        return
    logger = logging.getLogger("roann")
    level = logger.level
    try:
        if rank:
            logger.setLevel(logging.CRITICAL)
        leave = _join(rank, world, timeout)
        yield Ranks(rank, world)
        leave()
    except Exception as error:
        traceback.clear_frames(error.__traceback__)  # for `_part`
        if isinstance(error, LabError):
            if rank:
                raise SystemExit(error.code) from None
            raise
        if not _is_loss(error):
            words = " ".join(str(error).split())
            raise RankError(f"rank {rank}: {type(error).__name__}: {words}") from error
        if rank:
            raise SystemExit(FAILED) from None
        silent = f"another process died or was silent for {timeout:g} s"
        raise RankError(f"rank 0: {silent}; checkpoints are kept.") from error
    finally:
        logger.setLevel(level)
        if torch.distributed.is_initialized():
            _part()


def _place() -> tuple[int, int]:
    """The rank and the number of processes, as torchrun says them."""
    values: list[int] = []
    for name, low in (("WORLD_SIZE", 1), ("RANK", 0)):
        text = os.environ[name]
        high = MAX_WORLD if name == "WORLD_SIZE" else values[0] - 1
        if not text.isdecimal() or not low <= int(text) <= high:
            raise ConfigError(f"{name} must be a number from {low} to {high}, not {text!r:.60}.")
        values.append(int(text))
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        if values[0] > 1 and not os.environ.get(name):
            raise ConfigError(f"{name} is not set; start the processes with torchrun.")
    return values[1], values[0]


def _join(rank: int, world: int, timeout: float) -> Callable[[], None]:
    """Connect all processes; returns what waits, at the end, until all of them have ended."""
    if not torch.distributed.is_available():
        raise ConfigError("this torch has no torch.distributed; train in one process.")
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = "gloo"
    if torch.cuda.is_available() and torch.distributed.is_nccl_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        backend = "cpu:gloo,cuda:nccl"
    wait = timedelta(seconds=max(timeout, START_SECONDS))
    store = next(iter(rendezvous("env://", timeout=wait)))[0]
    own = PrefixStore(_generation(store, rank, world), store)
    torch.distributed.init_process_group(
        backend, store=own, rank=rank, world_size=world, timeout=timedelta(seconds=timeout)
    )

    def leave() -> None:
        # A connection that closes while another process still reads is an error there.
        end = time.monotonic() + timeout
        with suppress(torch.distributed.DistError):  # the store may have gone with its process
            own.add("left", 1)
            while own.add("left", 0) < world and time.monotonic() < end:
                time.sleep(0.005)

    return leave


def _part() -> None:
    """Close all connections, whatever has failed.

    The group must outlive every module that uses it, and end here. Where the last module ends it,
    torch waits for its threads and keeps Python's lock, for which they wait: for ever.
    """
    group = torch.distributed.group.WORLD
    gc.collect()
    torch.distributed.destroy_process_group()
    del group


def _generation(store: Store, rank: int, world: int) -> str:
    """A name for these very processes, the same in all of them.

    After a restart the agent's store still has the addresses of processes that died, and hosts may
    count restarts differently. So each process calls with a word of its own, and rank 0 answers.
    """
    end = time.monotonic() + START_SECONDS
    word = uuid.uuid4().hex
    if rank:
        store.set(f"roann/call/{rank}", word)
        while not store.check([f"roann/answer/{word}"]):
            _pause(end)
        name = store.get(f"roann/answer/{word}").decode()
        store.add(f"roann/joined/{name}", 1)
        return str(name)
    while store.add(f"roann/joined/{word}", 0) < world - 1:
        calls = [f"roann/call/{other}" for other in range(1, world)]
        for call in [call for call in calls if store.check([call])]:
            answer = f"roann/answer/{store.get(call).decode()}"
            if not store.check([answer]):
                store.set(answer, word)
        _pause(end)
    return word


def _pause(end: float) -> None:
    """Wait a moment for other processes; not in torch, where a signal would have to wait too."""
    if time.monotonic() > end:
        raise torch.distributed.DistNetworkError("a process did not come")
    time.sleep(0.01)


def _is_loss(error: Exception) -> bool:
    """Whether an error is that another process went away, or is silent."""
    if isinstance(error, torch.distributed.DistError):
        return True
    return isinstance(error, RuntimeError) and any(
        word in str(error) for word in ("gloo", "NCCL", "Connection closed", "Timed out", "timeout")
    )


def _couples(module: nn.Module) -> bool:
    """Whether a module's output for one example depends on the others, or on random draws."""
    dropout = getattr(module, "p" if isinstance(module, _DropoutNd) else "dropout", 0)
    drawn = isinstance(dropout, int | float) and dropout > 0
    return drawn or isinstance(module, _BatchNorm) or not getattr(module, "per_example", True)
