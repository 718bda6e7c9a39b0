"""Sweeps on a real Ray: what is killed costs time, not results."""

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import tiny_runs
from ray_cluster import ENVIRONMENT, Cluster
from tiny_runs import commanded, experiment, has_checkpoint, until

from roann.lab.checkpoint import BusyError, sole_writer
from roann.lab.config import Resources, to_toml
from roann.lab.engines import opened
from roann.lab.engines.base import Setup, sole_driver
from roann.lab.run import prepare, result_of
from roann.lab.sweep import expand

pytest.importorskip("ray", reason="the extra [ray] is not installed")

pytestmark = pytest.mark.timeout(900)  # a machine with other work
PLAN = {"length": 400, "checkpoint_every": 5, "eval_every": 100, "log_every": 50}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


@pytest.fixture(scope="module")
def hidden():
    """A directory that the machines of the cluster have each for themselves."""
    with tempfile.TemporaryDirectory(prefix="roann-hidden-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def cluster(hidden):
    may = subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
    made = Cluster()
    try:
        made.head(2, hidden if may else None)
        made.hides = may
        yield made
    finally:
        made.close()


def swept(folder, seeds, **plan):
    """The file of a sweep, its words, and the directories of its runs."""
    base = experiment("adding", **PLAN | plan)
    file = folder / "x.toml"
    file.write_text(to_toml(base.tables()))
    cells = expand(base, {"train.seed": list(range(seeds))}, folder / "runs", "x")
    words = ["sweep", str(file), "--seeds", *map(str, range(seeds)), "--root", str(folder / "runs")]
    return [*words, "--engine", "ray"], list(cells)


def free(folder) -> bool:
    try:
        with sole_writer(folder):
            return True
    except (BusyError, OSError):
        return False


def assert_undisturbed(folder, cells, **plan):
    """Each run has ended once, and as a run that nobody has disturbed."""
    for seed, cell in enumerate(cells):
        whole = tiny_runs.ran(folder / f"whole-{seed}", "adding", seed=seed, **PLAN | plan)
        tiny_runs.assert_same(whole, cell)
        assert (cell / "run.log").read_text().count("finished after") == 1
        assert not (cell / ".coming").exists()


def steps(cells) -> int:
    return sum(tiny_runs.world(cell)[0] for cell in cells if has_checkpoint(cell))


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    process.join()


def ended(process) -> int:
    process.join()
    return process.exitcode


def command(*words):
    """The command in a process of its own, with what it says."""
    return subprocess.run([sys.executable, "-m", "roann", *words], capture_output=True, text=True)


def test_a_run_gets_the_cores_and_the_memory_it_asks_for(tmp_path):
    """The one in `make test`, on a Ray of its own; what may die is in the long proofs below."""
    import ray

    _, (cell,) = swept(tmp_path, 1)
    plan = experiment("adding", **PLAN)
    prepare(cell, plan)
    wanted = Resources(cores=2, memory=0.25)
    with (
        sole_driver(tmp_path / "lock") as home,
        opened("ray", Setup(home, None, None, wanted)) as engine,
    ):
        engine.start(cell, plan)
        have = ray.cluster_resources()

        def taken(what):
            return have[what] - ray.available_resources().get(what, 0)

        until(lambda: has_checkpoint(cell), 300)
        until(lambda: (taken("CPU"), taken("memory")) == (2, 0.25e9))
        statuses = {}
        until(lambda: statuses.update(engine.ended(0.5)) or statuses, 300)
    assert statuses == {cell: "finished"}
    assert_undisturbed(tmp_path, [cell])


@pytest.mark.slow
def test_workers_and_drivers_may_die(cluster, tmp_path):
    words, cells = swept(tmp_path, 2)
    words += ["--address", cluster.address, "-q"]
    driver = commanded(*words)
    until(lambda: all(has_checkpoint(cell) for cell in cells), 300)
    for name in [cell.name for cell in cells]:
        for worker in cluster.workers(name):
            os.kill(worker, signal.SIGKILL)
    before = steps(cells)
    until(lambda: steps(cells) > before + 20, 300)
    kill(driver)
    assert not all(result_of(cell) for cell in cells)
    assert ended(commanded(*words)) == 0
    assert_undisturbed(tmp_path, cells)


@pytest.mark.slow
def test_what_is_not_shared_comes_home(cluster, hidden):
    if not cluster.hides:
        pytest.skip("mount namespaces are not permitted here")
    plan = {"length": 3000, "checkpoint_every": 100}
    words, cells = swept(hidden, 2, **plan)
    words += ["--address", cluster.address, "-q"]
    driver = commanded(*words)
    until(lambda: any(has_checkpoint(cell) for cell in cells), 300)
    assert not free(next(cell for cell in cells if has_checkpoint(cell)))  # the driver's
    kill(driver)
    assert not all(result_of(cell) for cell in cells)
    came = {cell: tiny_runs.world(cell)[0] for cell in cells if has_checkpoint(cell)}
    assert all(0 < step < 3000 for step in came.values())
    assert ended(commanded(*words)) == 0
    for cell, step in came.items():
        assert f"resumed at step {step}" in (cell / "run.log").read_text()
    assert_undisturbed(hidden, cells, **plan)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_brings_the_last_checkpoint_home(cluster, hidden, number, code):
    if not cluster.hides:
        pytest.skip("mount namespaces are not permitted here")
    folder = hidden / number.name
    folder.mkdir()
    # No checkpoint but the last one: what is at home was sent after the signal.
    plan = {"length": 30_000, "checkpoint_every": 0, "eval_every": 30_000}
    words, cells = swept(folder, 3, **plan)
    words += ["--address", cluster.address]
    until_seen = [sys.executable, "-m", "roann", *words]
    with subprocess.Popen(until_seen, stderr=subprocess.PIPE, text=True) as driver:
        until(lambda: sum((cell / "metrics.jsonl").exists() for cell in cells) == 2, 300)
        driver.send_signal(number)
        said = driver.stderr.read()
    assert driver.returncode == code
    elsewhere = f"{platform.node()} does not see {folder / 'runs'}, or not its locks; "
    assert f"{elsewhere}run directories come home through Ray.\n" in said
    assert f"stopped by {number.name}; run the same command to continue." in said
    assert "Traceback" not in said
    assert sum(has_checkpoint(cell) for cell in cells) == 2  # the third had not begun
    assert all(free(cell) for cell in cells)


@pytest.mark.slow
def test_a_machine_may_go_away_with_its_raylet(tmp_path):
    """Two nodes; the one that runs loses its raylet, twice, and others take over."""
    cluster = Cluster()
    try:
        cluster.head(0)
        lost = cluster.join(1)
        words, cells = swept(tmp_path, 2, length=3000)
        driver = commanded(*words, "--address", cluster.address, "-q")
        for kills in (1, 2):
            until(lambda: steps(cells) > 50 * kills, 300)  # noqa: B023
            os.kill(lost.raylet(), signal.SIGKILL)
            lost = cluster.join(1)
        assert ended(driver) == 0
        assert_undisturbed(tmp_path, cells, length=3000)
    finally:
        cluster.close()


@pytest.mark.slow
def test_a_head_that_dies_ends_the_driver_in_words(tmp_path):
    words, cells = swept(tmp_path, 1, length=100_000)
    for _ in range(2):
        cluster = Cluster()
        try:
            cluster.head(1)
            command = [sys.executable, "-m", "roann", *words, "--address", cluster.address]
            before = steps(cells)
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as driver:
                until(lambda: steps(cells) > before, 300)  # noqa: B023
                cluster.nodes[0].end()
                said = driver.stderr.read()
            assert driver.returncode == 75, said
            assert "Traceback" not in said
            assert "run the same command to continue" in said
        finally:
            cluster.close()
    until(lambda: free(cells[0]))
    assert steps(cells) > 0


@pytest.mark.slow
def test_a_ray_of_its_own_goes_with_its_driver(tmp_path):
    words, cells = swept(tmp_path, 2, length=2000)
    driver = commanded(*words, "-q")
    until(lambda: any(has_checkpoint(cell) for cell in cells), 300)
    kill(driver)
    until(lambda: all(free(cell) for cell in cells if cell.exists()))
    said = command(*words, "--json")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["runs"] == {str(cell): "finished" for cell in cells}
    assert [found["scores"][str(cell)]["steps"] for cell in cells] == [2000, 2000]
    assert all(line.startswith("roann: ") for line in said.stderr.splitlines())
    assert_undisturbed(tmp_path, cells, length=2000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (
            ["--resources.cores", "999"],
            2,
            "[resources]: this machine does not have 999 cores for a run; ask for less.",
        ),
        (
            ["--resources.memory", "99999"],
            2,
            "[resources]: this machine does not have 1 core, 99999 GB of memory for a run; ask for "
            "less.",
        ),
        (["--address", "ray://127.0.0.1:1"], 2, "--address must be HOST:PORT or auto"),
        (["--address", "127.0.0.1:1"], 75, "no Ray cluster answers at 127.0.0.1:1"),
    ],
)
def test_what_a_cluster_cannot_give_is_said(tmp_path, flags, code, said):
    words, _ = swept(tmp_path, 1)
    done = command(*words, *flags)
    assert done.returncode == code
    assert said in done.stderr.splitlines()[-1]


@pytest.mark.slow
def test_a_search_on_ray(cluster, tmp_path):
    pytest.importorskip("optuna", reason="the extra [search] is not installed")
    words, _ = swept(tmp_path, 1, length=100)
    words = ["search", words[1], "--root", str(tmp_path / "runs"), "--engine", "ray"]
    words += ["--address", cluster.address, "--trials", "4", "--jobs", "2", "-q", "--json"]
    found = json.loads(command(*words).stdout)
    assert [row["state"] for row in found["trials"]] == ["complete"] * 4
    assert all(result_of(Path(row["directory"]))["steps"] == 100 for row in found["trials"])
    assert found["best"]["score"] == min(row["score"] for row in found["trials"])
