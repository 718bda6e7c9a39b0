"""Runs on a Ray cluster, or by a Ray of this machine.

Ray schedules; what a run is stays in its directory, whose lock keeps it from running twice. Where
the cluster shares the directory, a task executes the run in it. Where it does not, this process
holds the lock, and the task sends the files home. Tasks are not repeated by Ray: the loop of the
sweep starts a run again if it was killed, from what is in its directory.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray

from roann import __version__
from roann.lab.checkpoint import BusyError, sole_writer
from roann.lab.config import ConfigError, Experiment
from roann.lab.engines import bell
from roann.lab.engines.base import SLOTS, Setup
from roann.lab.engines.parcels import Receiver, Sender
from roann.lab.engines.process import status_of
from roann.lab.engines.ray_task import Told, attend
from roann.lab.exits import INTERRUPTED, LabError
from roann.lab.progress import counted
from roann.lab.run import result_of

HEAD_SECONDS = 15.0  # to wait for the head of a cluster; after a minute Ray ends this process
LOOK_SECONDS = 5.0  # between looks whether it is there
_AHEAD = 4  # pieces that a task may send before the driver has taken them
_log = logging.getLogger(__name__)


class ClusterError(LabError):
    """A cluster that cannot be had, or that went away; the runs can be continued."""

    code = INTERRUPTED


class _Task:
    """A run that was handed to Ray."""

    def __init__(self, stream: Any, experiment: Experiment) -> None:
        self.stream = stream
        self.experiment = experiment
        self.held = ExitStack()  # the lock of the directory, if it is not shared
        self.receiver: Receiver | None = None
        self.began = False


class Ray:
    """An engine, connected to the cluster of `Setup.address` or to a Ray of its own."""

    def __init__(self, setup: Setup) -> None:
        self.slots = setup.jobs or SLOTS
        self._setup = setup
        self._shared = True
        self._tasks: dict[Path, _Task] = {}
        self._over: dict[Path, str] = {}
        self._asked: set[str] = set()
        self._head = _connect(setup.address)
        self._look = 0.0
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        ray.cloudpickle.register_pickle_by_value(bell)
        actor: Any = ray.remote(bell.Bell)
        self._bell: Any = actor.options(
            num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy=here
        ).remote()
        self._attend: Any = ray.remote(attend)

    def start(self, folder: Path, experiment: Experiment) -> None:
        """Hand a run to Ray."""
        self._look = 0.0  # a run that starts again may have lost its machine: the head, too
        self._check_head()
        run = str(folder.absolute())
        options = self._options(experiment)
        task = _Task(None, experiment)
        parcel = None
        if not self._shared:
            try:
                task.held.enter_context(sole_writer(folder))
            except BusyError:
                self._over[folder] = "busy"
                return
            if result_of(folder) is not None:
                task.held.close()
                self._over[folder] = status_of(folder, None)
                return
            task.receiver = Receiver(folder)
            parcel = [ray.put(item) for item in Sender(folder).pack()]
        self._bell.still.remote(run)
        call = self._attend.options(
            num_returns="streaming",
            max_retries=0,
            _generator_backpressure_num_objects=_AHEAD,
            name=f"roann {folder.name}",
            **options,
        )
        task.stream = call.remote(run, self._setup.home, __version__, parcel, self._bell)
        self._tasks[folder] = task

    def _options(self, experiment: Experiment) -> dict[str, Any]:
        """What the run needs of a machine, in Ray's words."""
        resources = self._setup.resources
        cores, gpus = resources.of(experiment.train)
        gigabytes = resources.memory or 0.0
        wanted = {"CPU": float(cores), "GPU": gpus, "memory": gigabytes * 1e9}
        words = counted(cores, "core")
        words += f", {gpus:g} GPU" * bool(gpus)
        words += f", {gigabytes:g} GB of memory" * bool(gigabytes)
        if words not in self._asked:  # once: Ray may wait for its head, and end this process
            self._asked.add(words)
            nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            if not any(all(have.get(k, 0) >= v for k, v in wanted.items()) for have in nodes):
                self._lacks(words)
        return {"num_cpus": cores, "num_gpus": gpus} | (
            {"memory": wanted["memory"]} if resources.memory else {}
        )

    def _lacks(self, wanted: str) -> None:
        if self._setup.address is None and "RAY_ADDRESS" not in os.environ:
            raise ConfigError(
                f"[resources]: this machine does not have {wanted} for a run; ask for less."
            )
        _log.warning("no machine of the cluster has %s for a run; waiting for one.", wanted)

    def ended(self, seconds: float) -> dict[Path, str]:
        """Take what tasks have sent, and return the runs that have ended."""
        self._check_head()
        streams = {task.stream: folder for folder, task in self._tasks.items()}
        ready: list[Any] = []
        if streams:
            ray.wait(list(streams), num_returns=1, timeout=0 if self._over else seconds)
            ready = ray.wait(list(streams), num_returns=len(streams), timeout=0)[0]
        for stream in ready:
            folder = streams[stream]
            status = self._take(folder, self._tasks[folder])
            if status is not None:
                self._tasks.pop(folder).held.close()
                self._over[folder] = status
        found, self._over = self._over, {}
        return found

    def _take(self, folder: Path, task: _Task) -> str | None:
        """Take the next item of a task; returns the status of a run that has ended."""
        try:
            item = ray.get(next(task.stream))
        except StopIteration:
            return status_of(folder, -1)  # without a last word
        except ray.exceptions.TaskCancelledError:
            return status_of(folder, None)
        except ray.exceptions.RayTaskError as error:
            _log.error("%s: %s", folder.name, _line(error))
            return "failed"
        except ray.exceptions.RayError as error:
            _log.warning("%s: %s.", folder.name, _reason(error))
            return status_of(folder, -1)
        if not isinstance(item, Told):
            assert task.receiver is not None
            task.receiver.take(item)
            return None
        return self._hear(folder, task, item)

    def _hear(self, folder: Path, task: _Task, told: Told) -> str | None:
        if told.what == "began":
            task.began = True
            return None
        if told.what == "version":
            raise ConfigError(
                f"{told.words} has roann {told.more}, this machine {__version__}; install the same "
                "version on all machines of the cluster."
            )
        if told.what == "elsewhere":
            if self._shared:
                _log.warning(
                    "%s does not see %s, or not its locks; run directories come home through Ray.",
                    told.words, self._setup.home.lock.parent,
                )  # fmt: skip
            self._shared = False
            del self._tasks[folder]
            self.start(folder, task.experiment)
            return None
        if told.more:
            _log.error("%s", told.more)
        return told.words

    def _check_head(self) -> None:
        """Raise an error if the head of the cluster is gone: Ray would end this very process."""
        if time.monotonic() < self._look:
            return
        end = time.monotonic() + HEAD_SECONDS
        while not _answers(self._head):
            if time.monotonic() > end:
                raise ClusterError(
                    f"the Ray cluster at {self._head} is gone; run the same command to continue "
                    "when it is there again."
                )
            time.sleep(0.5)
        self._look = time.monotonic() + LOOK_SECONDS

    def stop(self, folder: Path) -> None:
        """Ask a run to stop; one that has not begun is taken back."""
        if folder in self._tasks:
            self._bell.ring.remote(str(folder.absolute()))
            if not self._tasks[folder].began:
                ray.cancel(self._tasks[folder].stream)

    def close(self) -> None:
        """Leave Ray, which ends tasks that are left."""
        for task in self._tasks.values():
            task.held.close()
        ray.shutdown()


def _connect(address: str | None) -> str:
    """Connect to a cluster, or start Ray here; Ray itself says nothing. Returns its address."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS")
    if address is not None and address.startswith("ray://"):
        raise ConfigError(
            f"--address must be HOST:PORT or auto, not {address!r}: start the sweep on a machine "
            "of the cluster."
        )
    if address not in (None, "auto", "local") and not _answers(str(address)):
        raise ClusterError(f"no Ray cluster answers at {address}; start one with `ray start`.")
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    own: dict[str, Any] = {} if address else {"include_dashboard": False}
    handler = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address=address or "local", logging_level=logging.CRITICAL, log_to_driver=False, **own
        )
    except (ConnectionError, RuntimeError, ValueError) as error:
        what = f"no Ray cluster at {address}" if address else "Ray could not be started"
        raise ClusterError(f"{what} ({_line(error)}).") from None
    finally:
        signal.signal(signal.SIGTERM, handler)  # Ray's own would end this process at once
    return str(ray.get_runtime_context().gcs_address)


def _answers(address: str) -> bool:
    """Whether something listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def _reason(error: Exception) -> str:
    """A few words for what happened to a task: Ray's own are a page."""
    words = {
        ray.exceptions.OutOfMemoryError: "its machine ran out of memory",
        ray.exceptions.NodeDiedError: "its machine is gone",
        ray.exceptions.WorkerCrashedError: "its process was killed",
    }
    return next((text for kind, text in words.items() if isinstance(error, kind)), _line(error))


def _line(error: Exception) -> str:
    """What an error says in one line; the last one of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    at = -1 if isinstance(error, ray.exceptions.RayTaskError) else 0
    return lines[at].rstrip(".") if lines else type(error).__name__
