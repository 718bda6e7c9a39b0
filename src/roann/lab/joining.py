"""Join the processes of one training, and leave them: by torchrun's environment variables."""

from __future__ import annotations

import gc
import logging
import os
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed

from roann.lab.config import ConfigError
from roann.lab.distributed import ALONE, Ranks
from roann.lab.exits import FAILED, LabError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

START_SECONDS = 60.0  # to wait for processes that start
MAX_WORLD = 4096


class RankError(LabError):
    """An error of one process; a launcher starts all of them again."""

    code = FAILED


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
        store, leave = _join(rank, world, timeout)
        yield Ranks(rank, world, store)
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


def _join(rank: int, world: int, timeout: float) -> tuple[Store, Callable[[], None]]:
    """Connect all processes; returns the launcher's store, and what waits for all to leave."""
    if not torch.distributed.is_available():
        raise ConfigError("this torch has no torch.distributed; train in one process.")
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    backend = _backend()
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

    return store, leave


def _backend() -> str:
    """What carries tensors: gloo, and NCCL for those of GPUs; each rank takes a GPU of its own."""
    if not (torch.cuda.is_available() and torch.distributed.is_nccl_available()):
        return "gloo"
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    return "cpu:gloo,cuda:nccl"


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
