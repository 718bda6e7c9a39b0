"""Two "hosts", network namespaces joined by a cable (a veth pair) that is cut in the middle."""

import os
import subprocess
import sys
import time

import pytest
from test_distributed import ended, file_of, newest
from tiny_runs import assert_same, until

PLAN = {"length": 800, "eval_every": 300, "checkpoint_every": 50, "log_every": 100}
HOSTS = {"a": "10.77.0.1", "b": "10.77.0.2"}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def cable():
    """Names of the two namespaces, by host."""
    names = {host: f"roann-{os.getpid()}-{host}" for host in HOSTS}
    try:
        for name in names.values():
            ip("netns", "add", name)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"network namespaces are not permitted here: {error}")
    try:
        ip("link", "add", "veth-a", "netns", names["a"], "type", "veth",
           "peer", "name", "veth-b", "netns", names["b"])  # fmt: skip
        for host, name in names.items():
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", f"{HOSTS[host]}/24", "dev", f"veth-{host}")
            ip("-n", name, "link", "set", f"veth-{host}", "up")
        yield names
    finally:
        for name in names.values():
            ip("netns", "del", name)


def host_started(names, host, file, folder) -> subprocess.Popen:
    """One rank in a namespace, by torchrun."""
    leads = "true" if host == "a" else "false"
    return subprocess.Popen(
        ["ip", "netns", "exec", names[host], sys.executable, "-m", "torch.distributed.run",
         "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "5",
         "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{HOSTS['a']}:29400", "--rdzv-id", "cut",
         "--rdzv-conf", f"is_host={leads}", "--local-addr", HOSTS[host],
         "-m", "roann", "run", str(file), "--out", str(folder), "--timeout", "6", "-q"],
        env=os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": f"veth-{host}"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_network_that_was_cut_costs_nothing_but_time(tmp_path, cable):
    file = file_of(tmp_path, **PLAN)
    for name in ("whole", "cut"):
        folder = tmp_path / name
        processes = [host_started(cable, host, file, folder) for host in HOSTS]
        try:
            if name == "cut":
                until(lambda folder=folder: newest(folder) >= 100, 120)
                ip("-n", cable["a"], "link", "set", "veth-a", "down")
                stopped = newest(folder)
                time.sleep(10)
                assert newest(folder) <= stopped + PLAN["checkpoint_every"]  # it was cut
                ip("-n", cable["a"], "link", "set", "veth-a", "up")
            for process in processes:
                ended(process)
        finally:
            for process in processes:
                process.kill()
                process.communicate()
    assert "resumed at step" in (tmp_path / "cut" / "run.log").read_text()
    assert_same(tmp_path / "whole", tmp_path / "cut")
