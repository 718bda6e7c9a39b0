"""A real Ray cluster on this machine, for tests, and ways to hurt it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tiny_runs import until

ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
# Ray's nodes notice a dead one after half a minute by default.
QUICK = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "3"}
STORE = str(100_000_000)


def processes(*words: str) -> list[int]:
    """The processes whose command line has all these words."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if all(word in line for word in words):
                    found.append(int(folder.name))
    return found


class Node:
    """A `ray start --block`, which ends with its processes."""

    def __init__(self, temporary: str, words: list[str], hidden: Path | None = None) -> None:
        ray = str(Path(sys.executable).with_name("ray"))
        command = [ray, "start", "--block", *words, "--object-store-memory", STORE]
        if hidden is not None:  # a file system of its own in place of this directory
            mounted = f"mount -t tmpfs none {hidden} && exec " + " ".join(command)
            command = ["unshare", "-m", "sh", "-c", mounted]
        self.log = Path(temporary) / f"start-{len(os.listdir(temporary))}.log"
        with open(self.log, "w") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **ENVIRONMENT, **QUICK},
            )  # fmt: skip
        until(lambda: self._started(), 180)

    def _started(self) -> bool:
        assert self._process.poll() is None, self.log.read_text()
        return "Ray runtime started" in self.log.read_text()

    @property
    def group(self) -> int:
        """The group of processes of the node."""
        return self._process.pid

    def raylet(self) -> int:
        """The process that Ray has on every machine."""
        (found,) = (p for p in processes("raylet/raylet") if os.getpgid(p) == self.group)
        return found

    def end(self) -> None:
        """Kill all of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait()


class Cluster:
    """A head with no cores, and nodes."""

    def __init__(self) -> None:
        self.temporary = tempfile.mkdtemp(prefix="roann-ray-")
        self.nodes: list[Node] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def head(self, cores: int, hidden: Path | None = None) -> Node:
        """Start the first node."""
        words = ["--head", "--port", str(self.port), "--include-dashboard", "false"]
        words += ["--temp-dir", self.temporary, "--num-cpus", str(cores)]
        words += ["--node-ip-address", "127.0.0.1"]
        self.nodes.append(Node(self.temporary, words, hidden))
        return self.nodes[-1]

    def join(self, cores: int) -> Node:
        """Start another node."""
        words = ["--address", self.address, "--num-cpus", str(cores)]
        self.nodes.append(Node(self.temporary, [*words, "--node-ip-address", "127.0.0.1"]))
        return self.nodes[-1]

    def workers(self, name: str) -> list[int]:
        """The processes of Ray's tasks for runs whose directories have this in their names."""
        groups = {node.group for node in self.nodes}
        found = []
        for process in processes("ray::roann", name):
            with suppress(ProcessLookupError):
                found += [process] if os.getsid(process) in groups else []
        return found

    def close(self) -> None:
        """End all nodes, and what they have left."""
        for node in reversed(self.nodes):
            node.end()
        for process in processes(self.temporary):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        shutil.rmtree(self.temporary, ignore_errors=True)
