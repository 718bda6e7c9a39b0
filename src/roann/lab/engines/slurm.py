"""Runs as jobs of Slurm, through submitit.

The run directories must be on a file system that all machines share. A job that is preempted, or
reaches its time limit, commits a checkpoint and is queued again. Jobs do not need the driver: if it
is killed they go on, and the driver that is started again finds them by the files it keeps of them.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import time
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission, FailedJobError, UncompletedJobError

from roann.lab.config import ConfigError, Experiment
from roann.lab.engines.base import SLOTS, Setup
from roann.lab.engines.process import RunProcess, persist, status_of
from roann.lab.files import replace_file
from roann.lab.stop import Stop

JOBS = ".slurm"  # folder beside the runs: what submitit keeps of jobs
_ID = "job"  # file in it: the number of the job
_REQUEUES = 1000  # time limits that a job may reach
_WAITING = ("PENDING", "RUNNING", "REQUEUED", "CONFIGURING", "COMPLETING", "SUSPENDED", "RESIZING")
_log = logging.getLogger(__name__)


class RunJob:
    """What a job does. submitit calls `checkpoint` before a time limit, or if it is preempted."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._process: RunProcess | None = None

    def __call__(self) -> tuple[str, str]:
        """Bring the run to its end; returns its status and why it failed, if it did."""
        stop = Stop()
        with stop.listening():
            for process in persist(Path(self._run)):
                self._process = process
                while process.alive():
                    wait([process.sentinel], timeout=0.2)
                    if stop.number:
                        process.ask_to_stop()
        return process.status(), process.words()

    def checkpoint(self) -> DelayedSubmission:
        """Stop with a checkpoint; returns the job that goes on from it."""
        while self._process is not None and self._process.alive():
            self._process.ask_to_stop()
            wait([self._process.sentinel], timeout=0.2)
        return DelayedSubmission(RunJob(self._run))


class Slurm:
    """An engine: one job per run."""

    def __init__(self, setup: Setup) -> None:
        self._here = setup.address == "local"
        self.slots = setup.jobs or (1 if self._here else SLOTS)
        self._resources = setup.resources
        self._seconds = 0.2 if self._here else 2.0  # between looks at all jobs
        self._look = 0.0
        self._jobs: dict[Path, Any] = {}
        self._stopped: set[Path] = set()
        if not self._here and shutil.which("sbatch") is None:
            raise ConfigError(
                "--engine slurm: this machine has no sbatch; start the sweep where Slurm is, or "
                "try it here with --address local."
            )

    def start(self, folder: Path, experiment: Experiment) -> None:
        """Submit a job, unless one of a driver that died is still there."""
        self._stopped.discard(folder)
        place = folder.absolute().parent / JOBS / folder.name
        job = self._found(place)
        if job is None:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            job = self._executor(place, experiment).submit(RunJob(str(folder.absolute())))
            replace_file(place / _ID, str(job.job_id).encode())
        self._jobs[folder] = job

    def _executor(self, place: Path, experiment: Experiment) -> Any:
        """What submits, with the resources of a run."""
        wanted = self._resources
        cores, gpus = wanted.of(experiment.train)
        minutes = wanted.hours * 60
        if self._here:
            executor: Any = submitit.LocalExecutor(place, max_num_timeout=_REQUEUES)
            delay = max(1, min(90, int(minutes * 20)))
            executor.update_parameters(timeout_min=minutes, signal_delay_s=delay)
            return executor
        executor = submitit.SlurmExecutor(place, max_num_timeout=_REQUEUES)
        given = {
            "job_name": place.name,
            "time": max(3, round(minutes)),
            "cpus_per_task": cores,
            "mem": f"{max(1, round(wanted.memory * 1000))}M" if wanted.memory else None,
            "gpus_per_node": int(gpus) or None,
            "partition": wanted.partition,
            "account": wanted.account,
        }
        executor.update_parameters(**{key: value for key, value in given.items() if value})
        return executor

    def _found(self, place: Path) -> Any:
        """The job that an earlier driver has submitted, if it has not ended."""
        if not (place / _ID).is_file():
            return None
        kind: Any = submitit.LocalJob if self._here else submitit.SlurmJob
        job = kind(folder=place, job_id=(place / _ID).read_text())
        alive = _exists(job.job_id) if self._here else job.state in _WAITING
        if alive:
            _log.info("%s: its job %s is still there.", place.name, job.job_id)
        return job if alive else None

    def ended(self, seconds: float) -> dict[Path, str]:
        """Look at the jobs now and then."""
        time.sleep(max(0.0, min(seconds, self._look - time.monotonic())))
        if time.monotonic() < self._look:
            return {}
        self._look = time.monotonic() + self._seconds
        found = {}
        for folder in [f for f, job in self._jobs.items() if self._over(job)]:
            found[folder] = self._status(folder, self._jobs.pop(folder))
        return found

    def _over(self, job: Any) -> bool:
        if self._here and job._process is None:  # of an earlier driver
            return bool(job.paths.result_pickle.exists()) or not _exists(job.job_id)
        return bool(job.done())

    def _status(self, folder: Path, job: Any) -> str:
        try:
            status, words = job.result()
        except FailedJobError as error:
            status, words = "failed", str(error).strip().splitlines()[-1]
        except UncompletedJobError:
            self._check_shared(job)
            status, words = status_of(folder, -1), ""
        if words:
            _log.error("%s", words)
        if status in ("interrupted", "killed"):  # what nobody asked for is tried again
            return "interrupted" if folder in self._stopped else "killed"
        if status != "failed":
            shutil.rmtree(Path(job.paths.folder), ignore_errors=True)
        return str(status)

    def _check_shared(self, job: Any) -> None:
        """Raise an error if a job failed and its log, which Slurm itself opens, is not here."""
        if not self._here and job.state == "FAILED" and not job.paths.stdout.exists():
            raise ConfigError(
                f"{job.paths.folder.parent.parent}: job {job.job_id} of Slurm failed and left no "
                "log in this directory; put it on a file system that all machines share."
            )

    def stop(self, folder: Path) -> None:
        """Cancel the job of a run; its process commits a checkpoint."""
        if folder in self._jobs and folder not in self._stopped:
            self._stopped.add(folder)
            job = self._jobs[folder]
            if self._here and job._process is None:
                os.kill(int(job.job_id), signal.SIGINT)
            else:
                job.cancel(check=False)

    def close(self) -> None:
        """Nothing: jobs that are left go on."""


def _exists(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    return True
