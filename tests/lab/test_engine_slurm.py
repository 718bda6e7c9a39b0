"""Sweeps through submitit: jobs that are preempted, time out, or lose their driver."""

import os
import signal
import subprocess
import sys

import pytest
import tiny_runs
from ray_cluster import processes
from test_engine_ray import assert_undisturbed, ended, kill, steps, swept
from tiny_runs import commanded, experiment, has_checkpoint, until

from roann.lab.cli import main
from roann.lab.config import Resources
from roann.lab.engines.base import Home, Setup
from roann.lab.run import result_of

pytestmark = pytest.mark.timeout(900)  # jobs load torch twice
submitit = pytest.importorskip("submitit", reason="the extra [slurm] is not installed")


def slurm(folder, *more):
    words, cells = swept(folder, 2, length=2000, checkpoint_every=50)
    words[words.index("ray")] = "slurm"
    return [*words, "--address", "local", *more], cells


def jobs(cells, what="submitit.core._submit"):
    """The processes that Slurm would start for these runs."""
    return [p for cell in cells for p in processes(what, f"/.slurm/{cell.name}")]


def begun(folder):
    """The runs that have a checkpoint."""
    return [place for place in (folder / "runs").glob("x-*") if has_checkpoint(place)]


def logs(cells):
    place = cells[0].parent / ".slurm"
    return "".join(p.read_text() for c in cells for p in (place / c.name).glob("*_log.*"))


def test_without_slurm_the_cure_is_said(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    words, _ = slurm(tmp_path)
    assert main([word for word in words if word not in ("--address", "local")]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("roann: --engine slurm: this machine has no sbatch; ")


def test_a_job_asks_for_what_the_file_says(tmp_path, monkeypatch):
    from roann.lab.engines.slurm import Slurm

    for name in ("sbatch", "srun"):  # found, not called
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    wanted = Resources(memory=1.5, hours=2.0, partition="long", account="lab")
    engine = Slurm(Setup(Home(tmp_path / "lock", "x"), resources=wanted))
    executor = engine._executor(tmp_path / "jobs" / "run-s0", experiment("adding", threads=3))
    text = executor._make_submission_file_text("command", "uid")
    for line in (
        "--cpus-per-task=3",
        "--mem=1500M",
        "--time=120",
        "--partition=long",
        "--account=lab",
        "--job-name=run-s0",
        "--signal=USR2@90",
    ):
        assert f"#SBATCH {line}\n" in text, text
    assert "gpus" not in text


def test_a_directory_that_is_not_shared_is_noticed(tmp_path, monkeypatch, capsys):
    """Commands in Slurm's place: the job fails on a machine that cannot write its log here."""
    said = {"srun": "", "scancel": "", "sbatch": "Submitted batch job 7"}
    said["sacct"] = "JobID|State|NodeList\\n7|FAILED|n1"
    (tmp_path / "bin").mkdir()
    for name, text in said.items():
        command = tmp_path / "bin" / name
        command.write_text(f"#!/bin/sh\nprintf '{text}\\n'\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(submitit.Job, "_results_timeout_s", 0)  # for a slow file system
    words, _ = swept(tmp_path, 1)
    words[words.index("ray")] = "slurm"
    assert main([*words, "-q"]) == 2
    assert capsys.readouterr().err == (
        f"roann: {tmp_path / 'runs'}: job 7 of Slurm failed and left no log in this directory; "
        "put it on a file system that all machines share.\n"
    )


@pytest.mark.slow
def test_a_job_that_is_preempted_goes_on(tmp_path):
    words, cells = slurm(tmp_path, "--jobs", "2", "-q")
    driver = commanded(*words)
    until(lambda: all(has_checkpoint(cell) for cell in cells), 300)
    for job in jobs(cells):
        os.kill(job, signal.SIGUSR2)  # as Slurm does, and submitit's debugging
    until(lambda: logs(cells).count("Requeued job") == 2, 300)
    seen = logs(cells)
    assert "this job is preempted" in seen
    assert ended(driver) == 0
    assert_undisturbed(tmp_path, cells, length=2000, checkpoint_every=50)
    for cell in cells:
        assert (cell / "run.log").read_text().count("SIGTERM at step") == 1


@pytest.mark.slow
def test_a_job_that_reaches_its_time_limit_goes_on(tmp_path):
    words, _ = slurm(tmp_path, "-q", "--train.length", "100000000")
    driver = commanded(*words, "--resources.hours", str(90 / 3600))
    until(lambda: len(begun(tmp_path)) == 1, 300)
    found = begun(tmp_path)
    until(lambda: "Requeued job" in logs(found), 300)
    assert "Job has timed out" in logs(found)
    before = steps(found)
    until(lambda: steps(found) > before + 100, 300)
    os.kill(driver.pid, signal.SIGINT)
    assert ended(driver) == 130


@pytest.mark.slow
def test_jobs_outlive_their_driver_and_the_next_one_finds_them(tmp_path):
    words, cells = slurm(tmp_path, "--jobs", "2")
    driver = commanded(*words, "-q")
    until(lambda: all(has_checkpoint(cell) for cell in cells), 300)
    kill(driver)
    before = steps(cells)
    until(lambda: steps(cells) > before)  # without a driver
    command = [sys.executable, "-m", "roann", *words]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is still there") == 2
    assert_undisturbed(tmp_path, cells, length=2000, checkpoint_every=50)
    assert all("resumed" not in (cell / "run.log").read_text() for cell in cells)


@pytest.mark.slow
def test_ctrl_c_cancels_jobs_and_a_job_that_is_killed_is_tried_again(tmp_path):
    words, _ = slurm(tmp_path, "--jobs", "2", "--train.length", "60000", "-q")
    driver = commanded(*words)
    until(lambda: len(begun(tmp_path)) == 2, 300)
    found = begun(tmp_path)
    first = jobs(found)
    for job in jobs(found, "submitit.local._local"):
        os.kill(job, signal.SIGKILL)
    for job in first:
        os.kill(job, signal.SIGKILL)
    until(lambda: len(set(jobs(found)) - set(first)) == 2, 300)
    before = steps(found)
    until(lambda: steps(found) > before, 300)
    os.kill(driver.pid, signal.SIGINT)
    assert ended(driver) == 130
    until(lambda: not jobs(found), 300)
    assert all(tiny_runs.world(cell)[0] > 0 for cell in found)
    assert not any(result_of(cell) for cell in found)
