"""One round of the long proof: a run or a sweep that is killed again and again, then compared."""

import functools
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "lab"))

import faults
import tiny_runs

from roann.lab import checkpoint
from roann.lab.config import to_toml
from roann.lab.run import BEST, CHECKPOINTS, METRICS, RESULT

ROANN = str(Path(sys.executable).with_name("roann"))
PATIENCE = 300.0  # seconds for one process
OK, UNFINISHED, KILLED = 0, 75, -9
PLANS: dict[str, dict[str, Any]] = {
    "double-moon": {"length": 300, "eval_every": 40},
    "copying": {"length": 400, "eval_every": 50, "probe_at": [0, 200]},
    "adding": {"length": 500, "eval_every": 60},
    "psmnist": {"length": 40, "eval_every": 20},
    "smnist": {"length": 40, "eval_every": 20},
}
SWEPT = ("double-moon", "copying", "adding")
SEEDS = tuple("012345")


class SoakError(Exception):
    """What must not happen has happened."""


@dataclass
class Round:
    """One run or sweep from its first process to its end.

    Attributes:
        place: its directory.
        words: the command that starts it or goes on with it.
        folders: its run directories.
        wholes: those of the same runs that nobody disturbed.
        rng: where chance comes from.
        full: the disk that may be filled up, if there is one.
        counts: what happened.
    """

    place: Path
    words: list[str]
    folders: list[Path]
    wholes: list[Path]
    rng: random.Random
    full: Path | None
    counts: Counter[str] = field(default_factory=Counter)
    flipped: bool = False
    headway: bool = False

    def play(self, kills: int) -> Counter[str]:
        """Kill it about `kills` times, with faults between; then let it end, and compare."""
        while self.counts["kills"] < kills:
            if self._life() == OK:
                break
            self._flip()
        if (code := self._life(undisturbed=True)) != OK:
            raise SoakError(f"{self.words}: exit code {code} undisturbed")
        for whole, folder in zip(self.wholes, self.folders, strict=True):
            self._compare(whole, folder)
        self.counts["rounds"] += 1
        return self.counts

    def _life(self, undisturbed: bool = False) -> int:
        """Start the command; it ends by itself or is killed. Returns its exit code."""
        before, self.headway = self._seen(), False
        full = not undisturbed and self.full is not None and self.rng.random() < 0.15
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(self.words, stdout=said, stderr=said, start_new_session=True)
            try:
                if not undisturbed:
                    self._disturb(process, before, full)
                code = process.wait(PATIENCE)
            finally:
                end = time.monotonic() + PATIENCE
                while faults.session(process.pid):  # orphans of a sweep notice, and leave
                    if time.monotonic() > end:
                        raise SoakError(f"{self.words}: processes stay behind")
                    time.sleep(0.02)
                if full:
                    faults.free(self.full)
            said.seek(0)
            words = said.read().decode(errors="replace")
        unkilled = (OK,) if undisturbed else (OK, UNFINISHED) if self._may_stop(full) else (OK,)
        # The server of a sweep that was killed complains of the half of a message it has got.
        if code != KILLED and (code not in unkilled or "Traceback" in words):
            raise SoakError(f"{self.words}: exit code {code}: {words[-3000:]}")
        self.counts["ended by themselves, to be resumed"] += code == UNFINISHED
        return code

    def _may_stop(self, full: bool) -> bool:
        """Whether exit code 75 is right: on a full disk, or of a sweep with killed processes."""
        return full or len(self.folders) > 1

    def _disturb(self, process: "subprocess.Popen[bytes]", before: Any, full: bool) -> None:
        """Kill the command while it starts, or one of its processes while it trains."""
        early = self.rng.random() < 0.1
        end = time.monotonic() + (self.rng.random() * 1.5 if early else PATIENCE)
        while process.poll() is None and time.monotonic() < end and self._seen() == before:
            time.sleep(0.003)
        self.headway = self._seen() != before
        if full and self.full is not None:
            faults.fill(self.full)
            self.counts["full disks"] += 1
            time.sleep(self.rng.random() * 0.5)
            if self.rng.random() < 0.5:
                faults.free(self.full)
        while process.poll() is None:
            time.sleep(self.rng.random() * 0.25)
            if full and self.rng.random() < 0.5:
                return  # a full disk alone is fault enough
            victim = self._victim(process.pid)
            if victim is not None and faults.kill(victim):
                self._count(victim == process.pid)
                if victim == process.pid:
                    return

    def _victim(self, leader: int) -> int | None:
        """The command itself, or of a sweep more often one of the runs it has started."""
        found = faults.session(leader)
        own = [pid for pid, parent in found.items() if parent == leader]
        runs = [pid for pid, parent in found.items() if parent in own]
        if len(self.folders) == 1 or self.rng.random() < 0.08:
            return leader
        return self.rng.choice(runs) if runs else None

    def _count(self, command: bool) -> None:
        self.counts["kills"] += 1
        if len(self.folders) > 1:
            self.counts["kills of roann sweep" if command else "kills of runs in a sweep"] += 1
        else:
            when = "in training" if self.headway else "while starting"
            self.counts[f"kills of roann run {when}"] += 1

    def _flip(self) -> None:
        """Damage a run that has not ended: a sweep does not look at those that have."""
        folders = [folder for folder in self.folders if not (folder / RESULT).exists()]
        if folders and self.rng.random() < 0.3:
            where = faults.flip_somewhere(self.rng.choice(folders), self.rng)
            self.flipped |= where == METRICS
            if where is not None:
                self.counts[f"flipped bits in {where}"] += 1

    def _seen(self) -> Any:
        """What changes as soon as a run trains."""
        found = []
        for folder in self.folders:
            metrics = folder / METRICS
            try:
                size = metrics.stat().st_size
            except FileNotFoundError:
                size = -1
            found.append((size, [p.name for p in checkpoint.committed(folder / CHECKPOINTS)]))
        return found

    def _compare(self, whole: Path, folder: Path) -> None:
        """Equal to the last bit; of records with a flipped bit only the weights can be."""
        try:
            if self.flipped:
                tiny_runs.assert_same_tensors(whole, folder)
            else:
                tiny_runs.assert_same(whole, folder)
                self.counts["records compared"] += 1
        except AssertionError as error:
            raise SoakError(f"{folder} is not {whole}: {error}") from error
        self.counts["runs compared"] += 1
        for place in (CHECKPOINTS, BEST):
            self.counts["tensors compared"] += len(tiny_runs.world(folder, place)[1])


def experiment_file(place: Path, task: str) -> Path:
    """The experiment of a task as a file."""
    file = place / f"{task}.toml"
    if not file.exists():
        file.write_text(to_toml(tiny_runs.experiment(task, **PLANS[task]).tables()))
    return file


@functools.cache
def names(file: Path) -> tuple[str, ...]:
    """The names of the runs of a sweep over `SEEDS`."""
    words = [ROANN, "sweep", str(file), "--seeds", *SEEDS, "--dry-run"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return tuple(Path(line).name for line in done.stdout.split())


def sweep_words(file: Path, root: Path) -> list[str]:
    """The command of a sweep with two jobs."""
    return [ROANN, "sweep", str(file), "--seeds", *SEEDS, "--jobs", "2", "--root", str(root), "-q"]
