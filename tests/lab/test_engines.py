"""What all engines share: locks, pieces of run directories, what is shown, what is refused."""

import io
import json
import multiprocessing
import shutil
import sys
from typing import get_args, get_type_hints

import pytest
import tiny_runs
from tiny_runs import experiment, until

from roann.lab import board, checkpoint, engines
from roann.lab.checkpoint import BusyError
from roann.lab.cli import main
from roann.lab.config import ConfigError, Resources, parse_resources, to_toml
from roann.lab.engines.base import Home, sees, sole_driver
from roann.lab.engines.parcels import COMING, PIECE, Receiver, Sender
from roann.lab.follow import Follower
from roann.lab.run import METRICS, Stop, execute, prepare, result_of
from roann.lab.sweep import ATTEMPTS, drive, expand
from roann.lab.verbs import Many


def test_one_driver_at_a_time(tmp_path):
    lock = tmp_path / "runs" / ".sweep-x.lock"
    with sole_driver(lock) as home:
        assert lock.read_text() == home.word
        with pytest.raises(BusyError, match="another driver is at work"), sole_driver(lock):
            pass
    assert not lock.exists()
    with sole_driver(lock) as other:
        assert other.word != home.word


def test_a_directory_is_shared_if_the_word_and_the_lock_are_seen(tmp_path):
    lock = tmp_path / "lock"
    with sole_driver(lock) as home:
        assert sees(home)
        assert not sees(Home(tmp_path / "elsewhere", home.word))
        assert not sees(Home(lock, "another word"))
    lock.write_text(home.word)  # nobody holds it: locks do not reach this far
    assert not sees(home)


def test_two_sweeps_of_one_grid_by_command(tmp_path, capsys):
    file = tmp_path / "x.toml"
    base = experiment("adding", length=2)
    file.write_text(to_toml(base.tables()))
    words = ["sweep", str(file), "--seeds", "0", "1", "--root", str(tmp_path / "runs"), "-q"]
    cells = expand(base, {"train.seed": [0, 1]}, tmp_path / "runs", "x")
    from roann.lab.sweep import _lock

    with sole_driver(_lock(cells)):
        assert main(words) == 2
        assert capsys.readouterr().err == (
            f"roann: {tmp_path / 'runs'}: another driver is at work on these runs; wait for it or "
            "stop it.\n"
        )
        assert main([*words[:4], "--root", words[6], "-q"]) == 0  # another grid
    assert main(words) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--engine", "local", "--address", "auto"], "--address is a cluster of --engine ray"),
        (["--engine", "slurm", "--address", "auto"], "not 'auto' with --engine slurm"),
        (["--engine", "ray", "--jobs", "0"], "--jobs must be from 1"),
        (["--resources.cores", "0"], "[resources] cores"),
        (["--resources.memory", "-1"], "[resources] memory"),
        (["--engine", "bus"], "bus"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(tmp_path, capsys, words, said):
    file = tmp_path / "x.toml"
    file.write_text(to_toml(experiment("adding").tables()))
    assert main(["sweep", str(file), "--root", str(tmp_path / "runs"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_engine_names_its_extra(tmp_path, capsys, monkeypatch, engine, package):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    file = tmp_path / "x.toml"
    file.write_text(to_toml(experiment("adding").tables()))
    root = tmp_path / "runs"
    assert main(["sweep", str(file), "--engine", engine, "--root", str(root)]) == 2
    why = f"import of {package} halted; None in sys.modules"  # Python's own words
    assert capsys.readouterr().err == (
        f"roann: --engine {engine} needs the extra '{engine}' ({why}); install it with: "
        f"python -m pip install 'roann[{engine}]'\n"
    )
    assert not root.exists()


def test_resources_are_checked_and_no_part_of_a_run(tmp_path):
    found = parse_resources({"resources": {"cores": 2, "memory": 1.5}})
    assert found == Resources(cores=2, memory=1.5)
    plan = experiment("adding", threads=3).train
    assert Resources().of(plan) == (3, 0.0)
    assert found.of(plan) == (2, 0.0)
    with pytest.raises(ConfigError, match="did you mean 'cores'"):
        parse_resources({"resources": {"core": 2}})
    text = to_toml(experiment("adding").tables())
    names = []
    for extra in ("", "[resources]\ncores = 7\n"):
        file = tmp_path / "x.toml"
        file.write_text(text + "\n" + extra)
        out = io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            assert main(["sweep", str(file), "--dry-run", "--json"]) == 0
        names.append(json.loads(out.getvalue())["directories"])
    assert names[0] == names[1]


def test_every_engine_is_a_choice_of_the_flag():
    assert list(engines.ENGINES) == list(get_args(get_type_hints(Many)["engine"]))


def test_the_engines_are_not_imported_with_the_lab():
    import subprocess

    code = (
        "import sys, roann.lab.perform, roann.lab.sweep, roann.lab.engines;"
        "print([m for m in ('ray', 'submitit', 'optuna') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def copied(source, target, most=None):
    """Send a directory, or the first `most` items of it."""
    receiver = Receiver(target)
    for number, item in enumerate(Sender(source).pack()):
        if number == most:
            return
        receiver.take(item)


def test_a_run_in_pieces_is_the_same_run(tmp_path, monkeypatch):
    monkeypatch.setattr("roann.lab.engines.parcels.PIECE", 100)
    assert PIECE > 1_000_000
    whole = tiny_runs.ran(tmp_path / "whole", "adding")
    target = tmp_path / "copy"
    target.mkdir()
    items = list(Sender(whole).pack())
    assert max(len(item[2]) for item in items if isinstance(item, tuple)) == 100
    copied(whole, target)
    tiny_runs.assert_same(whole, target)
    assert result_of(target) == result_of(whole)
    assert not (target / COMING).exists()


@pytest.mark.parametrize("most", [0, 1, 5, 9])
def test_pieces_whose_rest_does_not_come_change_nothing(tmp_path, most):
    """Sent from a run on its way, cut off, sent again: the run at home goes on from either."""
    away = tiny_runs.made(tmp_path / "away", "adding")
    home = tiny_runs.made(tmp_path / "home", "adding")
    interrupted(away, 9)
    copied(away, home)
    assert tiny_runs.world(home)[0] == 10
    interrupted(away, 15)
    copied(away, home, most)
    assert tiny_runs.world(home)[0] == 10
    copied(away, home)
    assert tiny_runs.world(home)[0] == 16
    execute(home, Stop())
    tiny_runs.assert_same(tiny_runs.ran(tmp_path / "whole", "adding"), home)


def interrupted(folder, step):
    """Run a directory up to a checkpoint."""

    class At(Stop):
        def poll(self):
            newest = [checkpoint.step_of(p) for p in checkpoint.committed(folder / "checkpoints")]
            if max(newest, default=0) >= step:
                self.number = 15
            super().poll()

    with pytest.raises(Exception, match="SIGTERM"):
        execute(folder, At())


def test_only_what_has_changed_is_sent(tmp_path):
    folder = tiny_runs.made(tmp_path / "x", "adding")
    sender = Sender(folder)
    assert [item[0] for item in sender.pack() if isinstance(item, tuple)] == ["config.toml"]
    assert list(sender.pack()) == []
    interrupted(folder, 6)
    sent = {item[0] for item in sender.pack() if isinstance(item, tuple)}
    assert "metrics.jsonl" in sent
    assert "config.toml" not in sent
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").mkdir()
    assert list(sender.pack()) == []


def test_a_follower_reads_on_and_starts_again_after_a_cut(tmp_path):
    path = tmp_path / METRICS
    follower = Follower(path)
    assert follower.look().step == 0
    start = {"kind": "event", "step": 0, "epoch": None, "seconds": 0.0, "event": "start"}
    first = json.dumps(start | {"primary": "mse", "better": "lower"}) + "\n"

    def evaluated(step, value, name="eval"):
        found = {"kind": "eval", "step": step, "epoch": None, "seconds": step / 10, "set": name}
        return json.dumps(found | {"mse": value}) + "\n"

    lines = first + evaluated(10, 0.5) + evaluated(10, 0.1, "other")
    path.write_text(lines + '{"kind": "tr')
    assert follower.look().scores == {10: 0.5}
    assert follower.words() == "eval mse 0.5"
    path.write_text(lines + evaluated(20, 0.25))
    assert follower.look().scores == {10: 0.5, 20: 0.25}
    assert (follower.step, follower.best) == (20, 0.25)
    plan = experiment("adding", length=100)
    assert follower.total(plan) == pytest.approx(10.0)
    assert follower.left(plan) == pytest.approx(8.0)
    path.write_text(first + "damaged\n" + evaluated(10, 0.5))  # resumed before step 20
    assert follower.look().scores == {10: 0.5}


class Recorded:
    """An engine that runs nothing: each run ends as a list says."""

    def __init__(self, statuses, slots=2, progress=None):
        self.slots = slots
        self.statuses = statuses
        self.started, self._running = [], []
        self._progress = progress or (lambda folder: None)

    def start(self, folder, experiment):
        assert folder not in self._running
        self._running.append(folder)
        self.started.append(folder)
        assert len(self._running) <= self.slots

    def ended(self, seconds):
        folder = self._running.pop(0)
        self._progress(folder)
        return {folder: self.statuses[folder].pop(0)}

    def stop(self, folder):
        self.statuses[folder] = ["interrupted"]

    def close(self):
        pass


def test_a_run_that_is_killed_is_tried_again_while_it_gets_further(tmp_path):
    from roann.lab.sweep import Grid

    cells = expand(experiment("adding"), {"train.seed": [0, 1]}, tmp_path, "x")
    hopeless, preempted = cells

    def progress(folder):
        if folder == preempted:
            folder.mkdir(exist_ok=True)
            step = 10 * engine.started.count(folder)
            line = {"kind": "train", "step": step, "epoch": None, "seconds": 1.0}
            with open(folder / METRICS, "a") as file:
                file.write(json.dumps(line) + "\n")

    kills = 7
    statuses = {hopeless: ["killed"] * 9, preempted: ["killed"] * kills + ["finished"]}
    engine = Recorded(statuses, progress=progress)
    plan = Grid(cells)
    drive(plan, engine, Stop(), board.Board())
    assert plan.statuses == {hopeless: "killed", preempted: "finished"}
    assert engine.started.count(hopeless) == ATTEMPTS
    assert engine.started.count(preempted) == kills + 1


def test_a_live_table_shows_steps_scores_and_the_time_left(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "100")
    cells = expand(experiment("adding"), {"train.seed": [0, 1]}, tmp_path, "x")
    first, _ = cells
    tiny_runs.ran(first, "adding", seed=0)
    shown = board.board(quiet=False)
    assert isinstance(shown, board.Table)
    shown.show(cells, 3, 1)
    shown.close()
    assert "2 runs in progress, 3 waiting, 1 ended, about 0:0" in screen.getvalue()
    row = next(line for line in screen.getvalue().splitlines() if first.name in line)
    assert "30/30" in row
    assert "eval mse 0." in row
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(board.board(quiet=False), board.News)
    assert type(board.board(quiet=True)) is board.Board


def test_a_run_in_use_is_busy_and_words_of_a_failure_are_said(tmp_path, caplog):
    from roann.lab.engines.process import RunProcess

    folder = tiny_runs.made(tmp_path / "x", "adding")
    with checkpoint.sole_writer(folder):
        process = RunProcess(folder)
        until(lambda: not process.alive())
        assert process.status() == "busy"
    bad = tmp_path / "bad"
    prepare(bad, experiment("double-moon", {"name": "lstm"}))
    process = RunProcess(bad)
    until(lambda: not process.alive())
    assert (process.status(), "feed-forward" in process.words()) == ("failed", True)
    assert process.pid not in [child.pid for child in multiprocessing.active_children()]
    assert engines.ENGINES["local"].needs is None
