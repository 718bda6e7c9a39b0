"""Processes of one training as torchrun starts them, but forked from a server that has torch."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed
from tiny_runs import CONTEXT

from roann.lab.__main__ import main

# Of torch, if it was loaded without what `roann.lab.__main__` sets; the flag is there on purpose.
_NOISE = re.compile(r"^\[rank\d\]:\[W.*find_unused_parameters.*\n", re.MULTILINE)


class Group:
    """Ranks that run a function, or the command `roann`; what each prints goes to a file.

    The store belongs to the caller's process, as that of torchrun belongs to its agent: a group
    that is started again finds what the one before has left there.
    """

    def __init__(self, world: int, folder: Path) -> None:
        self.world, self.folder = world, folder
        self._store = torch.distributed.TCPStore(
            "localhost", 0, is_master=True, wait_for_workers=False
        )
        self._started = -1
        self.processes: list[Any] = []

    def start(self, *words: object) -> "Group":
        """Start `roann WORDS` in every rank."""
        return self.call(main, list(map(str, words)))

    def call(self, function: Callable[..., Any], *args: Any) -> "Group":
        """Start a function in every rank; what it returns is the exit code."""
        self._started += 1
        place = {
            "WORLD_SIZE": str(self.world),
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(self._store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(self._started),
        }
        self.processes = []
        for rank in range(self.world):
            own = place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            target = (own, str(self._output(rank)), function, args)
            self.processes.append(CONTEXT.Process(target=_work, args=target))
            self.processes[-1].start()
        return self

    def end(self, *codes: int) -> list[str]:
        """Wait for the end with these exit codes, or 0; returns what each rank has printed."""
        for process in self.processes:
            process.join(120)
        printed = [_NOISE.sub("", self._output(rank).read_text()) for rank in range(self.world)]
        found = [process.exitcode for process in self.processes]
        assert found == list(codes or [0] * self.world), printed
        return printed

    def close(self) -> None:
        """Kill what is left."""
        for process in self.processes:
            process.kill()
            process.join()

    def _output(self, rank: int) -> Path:
        return self.folder / f"rank-{rank}.txt"


def _work(place: dict[str, str], output: str, function: Callable[..., Any], args: Any) -> None:
    """The life of one rank."""
    os.environ.update(place)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(file, descriptor)
    raise SystemExit(function(*args))
