"""Time per training step of the lab's loop, in one process and in two that share each batch."""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.distributed

from benchmarks import machine
from benchmarks.cases import COPYING, PSMNIST
from benchmarks.contenders import Sequences
from benchmarks.lab_loop import DrawnImages, EnoughError
from roann.lab.config import Train
from roann.lab.distributed import ALONE, Ranks
from roann.lab.joining import joined
from roann.lab.models import build_model
from roann.lab.models.base import count_parameters
from roann.lab.models.roa import RoaRnnConfig
from roann.lab.progress import Progress
from roann.lab.records import Sink
from roann.lab.tasks.base import Task
from roann.lab.tasks.copying import Copying, CopyingConfig
from roann.lab.train import State, make_optimizer, train

CASES: dict[str, Sequences] = {
    "psMNIST, N = 178": PSMNIST,
    "psMNIST, N = 512": replace(PSMNIST, N=512),
    "copying, L = 2,000": COPYING,
}
WARM_UP = 2  # updates that are not timed
COLLECTIVES = 3  # of an update: gradients, the loss, and whether to stop
FEW_PART = 0.02  # of the batch: two or three examples, as each of many machines has
_WAIT = 120.0


@dataclass(frozen=True)
class Way:
    """How many processes train, with how many threads each, on which part of the case's batch."""

    name: str
    processes: int = 1
    threads: int = 1
    batch: float = 1.0  # of all processes together, in batches of the case
    talk: bool = True  # or each trains alone on its part, at the same time


CORES = 2  # of a machine: what two threads and two processes use
ONE, THREADS = "1 process", "1 process, 2 threads"
FEW = "1 process, 2 threads, 2 % of the batch"
STRONG, WEAK = "2 processes", "2 processes, twice the batch"
SILENT, WEAK_SILENT = "2 processes that do not talk", "2 that do not talk, twice the batch"
WAYS = (
    Way(ONE),
    Way(THREADS, threads=CORES),
    Way(FEW, threads=CORES, batch=FEW_PART),
    Way(STRONG, processes=CORES),
    Way(SILENT, processes=CORES, talk=False),
    Way(WEAK, processes=CORES, batch=2.0),
    Way(WEAK_SILENT, processes=CORES, batch=2.0, talk=False),
)


def measure(case: Sequences, way: Way, updates: int) -> dict[str, Any]:
    """Seconds of each update, bytes that a process sends in one, and seconds of a bare collective.

    An update is over when its slowest process is.
    """
    stores: Any = torch.distributed  # it does not say that it exports this one
    store = stores.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # so that a process starts at once
    place = {
        "WORLD_SIZE": str(way.processes),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    running = []
    try:
        for rank in range(way.processes):
            ours, theirs = context.Pipe()
            args = (case, way, updates, place | {"RANK": str(rank)}, theirs)
            process = context.Process(target=_work, args=args)
            process.start()
            running.append((process, ours))
        found = [ours.recv() for process, ours in running if ours.poll(_WAIT + 30 * updates)]
    finally:
        for process, _ in running:
            process.kill()
            process.join()
    if len(found) < way.processes:
        raise OSError(f"{way.name}: a process did not answer")
    return {
        "samples": [max(times) for times in zip(*(f["times"] for f in found), strict=True)],
        "sent": max(f["sent"] for f in found),
        "collective": max(f["collective"] for f in found),
        "parameters": found[0]["parameters"],
    }


def _work(
    case: Sequences, way: Way, updates: int, place: dict[str, str], answer: Connection
) -> None:
    """The life of one process."""
    os.environ.update(place)
    machine.set_up(way.threads)
    with joined(_WAIT) as ranks:
        collective = _collective(ranks)
        found = _updates(case, way, updates, ranks)
    answer.send(found | {"collective": collective})


def _updates(case: Sequences, way: Way, updates: int, ranks: Ranks) -> dict[str, Any]:
    batch = max(1, round(case.B * way.batch)) // (1 if way.talk else way.processes)
    task = _task(case, batch)
    plan = Train(lr=1e-6, length=10**9, eval_every=10**9, checkpoint_seconds=1e9)
    config = RoaRnnConfig(hidden_size=case.N, rho=case.rho)
    model = build_model("roa-rnn", config, task, seed=0)
    optimizer = make_optimizer(model, plan)
    together = ranks if way.talk else ALONE
    times: list[float] = []
    sent: list[int] = []

    def pause(state: State) -> None:
        together.most(0, 0)  # as a run does, to stop all at the same update
        times.append(time.perf_counter())
        sent.append(_written())
        if state.step >= updates + WARM_UP:
            raise EnoughError

    progress = Progress("bench", updates, task.primary, 0.0)
    context: Any = SimpleNamespace(records=Sink(), progress=progress, pause=pause)
    ranks.most(0)  # start together
    with suppress(EnoughError):
        train(task, model, optimizer, plan, State(measured=0), context, dict, together)
    seconds = [b - a for a, b in zip(times[WARM_UP:-1], times[WARM_UP + 1 :], strict=True)]
    bytes_sent = (sent[-1] - sent[WARM_UP]) / updates
    return {"times": seconds, "sent": bytes_sent, "parameters": count_parameters(model)}


def _task(case: Sequences, batch: int) -> Task:
    if case.reads_all:
        lag = case.T - 20  # ten symbols before the lag, ten after it
        return Copying(CopyingConfig(lag=lag, batch_size=batch))
    return DrawnImages(replace(case, B=batch), 4 * batch)


def _collective(ranks: Ranks) -> float:
    """The median seconds of a collective of one number; 0 in one process."""
    if ranks.world == 1:
        return 0.0
    times = []
    for _ in range(200):
        start = time.perf_counter()
        ranks.most(0)
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def _written() -> int:
    """Bytes that this process has written so far, to files and sockets; 0 where nobody counts."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return 0
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])
