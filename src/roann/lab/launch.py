"""`--processes`: start the processes of one training on this machine, by torch's elastic agent.

The agent starts all processes again, from the newest checkpoint, when one of them dies or fails.
It would also do so after an end that is meant (an interruption, a user's mistake), because it knows
success and failure only. So rank 0 writes its exit code to a file, and meant ends are successes to
the agent; the launcher reads the file and ends with that code.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from roann.lab.config import ConfigError
from roann.lab.exits import CTRL_C, FAILED, INTERRUPTED, OK

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

OUTCOME = "ROANN_OUTCOME"  # environment variable: the file for the exit code
MAX_PROCESSES, MAX_RESTARTS = 1024, 10**6
_log = logging.getLogger(__name__)


def check(processes: int | None, max_restarts: int, timeout: float) -> None:
    """Refuse numbers that make no sense."""
    if processes is not None and not 1 <= processes <= MAX_PROCESSES:
        raise ConfigError(f"--processes must be from 1 to {MAX_PROCESSES}, not {processes}.")
    if not 0 <= max_restarts <= MAX_RESTARTS:
        raise ConfigError(f"--max-restarts must be from 0 to {MAX_RESTARTS}, not {max_restarts}.")
    if not 0 < timeout < math.inf:
        raise ConfigError(f"--timeout must be a number of seconds above 0, not {timeout}.")
    if processes is not None and "RANK" in os.environ:
        raise ConfigError("--processes: torchrun has started this process; leave the flag out.")


def settle(code: int) -> int:
    """The exit code of a process for the one that started it: that of `launch` hears of a file."""
    path = os.environ.get(OUTCOME)
    if path is None or code == FAILED:
        return code
    if os.environ.get("RANK") == "0":
        Path(path).write_text(str(code))
    return OK


def launched_here() -> bool:
    """Whether `launch` has started this process; it prints the result itself."""
    return OUTCOME in os.environ


def launch(words: list[str], processes: int, max_restarts: int, timeout: float) -> int:
    """Run `roann WORDS` in several processes until they end; returns the exit code of rank 0."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    for name in ("torch.distributed.elastic", "torch.distributed.launcher"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
        for child in [c for c in logging.root.manager.loggerDict if c.startswith(name + ".")]:
            logging.getLogger(child).setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="roann-") as place:
        outcome = Path(place) / "outcome"
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=max_restarts,
            logs_specs=DefaultLogsSpecs(log_dir=place),
            shutdown_timeout=math.ceil(timeout),
        )
        os.environ[OUTCOME] = str(outcome)
        try:
            elastic_launch(config, sys.executable)("-m", "roann", *words)
        except SignalException as signal:
            code = CTRL_C if signal.sigval.name == "SIGINT" else INTERRUPTED
            return int(outcome.read_text()) if outcome.exists() else code
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            _log.error("%s; --max-restarts %d is used up.", _words(rank, failure), max_restarts)
            return INTERRUPTED
        finally:
            del os.environ[OUTCOME]
        return int(outcome.read_text())


def _words(rank: int, failure: ProcessFailure) -> str:
    if failure.exitcode < 0:
        return f"rank {rank} was killed by {failure.signal_name()}"
    return f"rank {rank} failed with exit code {failure.exitcode}"
