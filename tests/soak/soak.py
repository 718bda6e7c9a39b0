"""The long proof: kill -9 at random moments, over all tasks and over sweeps with two jobs.

    python tests/soak/soak.py --kills 1000 --out results/soak/soak.json

Between the kills bits are flipped and the disk is filled up. At the end of each round the weights
are bitwise those of a run that nobody disturbed, or the proof has failed (exit code 1). Stopped,
it lets the rounds under way end, and the same command goes on: the counts are in the record.
"""

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import faults
import rounds
import tiny_runs

from roann import info
from roann.lab.checkpoint import replace_file
from roann.lab.run import set_up

WORKERS = 2
ORDER = (
    "adding", "sweep", "copying", "sweep", "double-moon", "sweep", "psmnist", "sweep", "smnist",
    "sweep",
)  # fmt: skip


class Soak:
    """Plays rounds until so many processes were killed.

    Args:
        kills: how many.
        out: the record.
        scratch: where runs are made.
    """

    def __init__(self, kills: int, out: Path, scratch: Path) -> None:
        self.kills, self.out, self.scratch = kills, out, scratch
        self.counts: Counter[str] = Counter()
        self.seconds = 0.0
        if out.exists():
            before = json.loads(out.read_text())
            if not before["complete"]:
                self.counts, self.seconds = Counter(before["counts"]), before["seconds"]
        self._turn = self.counts["rounds"]
        self._since = time.monotonic()
        self._lock = threading.Lock()
        self.failures: list[str] = []
        self.stopped = False
        self.tasks = [t for t in rounds.PLANS if t in tiny_runs.available()]

    def stop(self, number: int, frame: object) -> None:
        """Let the rounds under way end, and begin no other."""
        self.stopped = True

    def run(self) -> bool:
        """Play; returns whether nothing failed."""
        for task in self.tasks:
            self._undisturbed(task)
        workers = [threading.Thread(target=self._work, args=(k,)) for k in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self._write()
        return not self.failures

    def _undisturbed(self, task: str) -> None:
        file = rounds.experiment_file(self.scratch, task)
        words = [rounds.ROANN, "run", str(file), "--out", str(self.scratch / task), "-q"]
        subprocess.run(words, check=True, capture_output=True)
        if task in rounds.SWEPT:
            words = rounds.sweep_words(file, self.scratch / f"sweep-{task}")
            subprocess.run(words, check=True, capture_output=True)

    def _work(self, worker: int) -> None:
        while self.counts["kills"] < self.kills and not self.failures and not self.stopped:
            with self._lock:
                turn, self._turn = self._turn, self._turn + 1
            try:
                with faults.disk(self.scratch / f"disk-{turn}") as mounted:
                    found = self._round(turn, self.scratch / f"disk-{turn}", mounted)
            except (rounds.SoakError, subprocess.SubprocessError, OSError) as error:
                self.failures.append(f"round {turn}: {error}")
                print(f"FAILED: {self.failures[-1]}", flush=True)
                return
            with self._lock:
                self.counts += found
                self._write()
                done, of = self.counts["kills"], self.counts["rounds"]
                print(f"{done} kills in {of} rounds, {self._elapsed():.0f} s", flush=True)

    def _round(self, turn: int, place: Path, mounted: bool) -> Counter[str]:
        rng = random.Random(turn)
        order = [task for task in ORDER if task in (*self.tasks, "sweep")]
        task, full = order[turn % len(order)], place if mounted else None
        if task == "sweep":
            task = rounds.SWEPT[turn // 2 % len(rounds.SWEPT)]
            file = rounds.experiment_file(self.scratch, task)
            words, name = rounds.sweep_words(file, place), "sweep"
            folders = [place / cell for cell in rounds.names(file)]
            wholes = [self.scratch / f"sweep-{task}" / cell for cell in rounds.names(file)]
        else:
            file, name = rounds.experiment_file(self.scratch, task), task
            words = [rounds.ROANN, "run", str(file), "--out", str(place / "run"), "-q"]
            folders, wholes = [place / "run"], [self.scratch / task]
        game = rounds.Round(place, words, folders, wholes, rng, full)
        most = 30 if name == "sweep" else 14  # a run in a sweep starts much faster
        found = game.play(min(rng.randint(most // 2, most), self.kills))
        found[f"rounds of {name}"] += 1
        return found

    def _elapsed(self) -> float:
        return self.seconds + time.monotonic() - self._since

    def _write(self) -> None:
        record = {
            "schema": 1,
            "what": "kill -9 of the command roann, faults between, final tensors bitwise compared",
            "complete": self.counts["kills"] >= self.kills and not self.failures,
            "seconds": round(self._elapsed(), 1),
            "tasks": self.tasks,
            "counts": dict(sorted(self.counts.items())),
            "failures": self.failures,
            "environment": set_up(1, 0) | info.source(),
        }
        self.out.parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.out, (json.dumps(record, indent=1) + "\n").encode())


def main(argv: list[str] | None = None) -> int:
    """Run the proof and print its counts."""
    parser = argparse.ArgumentParser(description="kill -9 at random moments, bitwise compared")
    parser.add_argument("--kills", type=int, default=1000, help="how many processes to kill")
    parser.add_argument("--out", type=Path, default=Path("build/soak.json"), help="the record")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        soak = Soak(options.kills, options.out, Path(scratch))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, soak.stop)
        passed = soak.run()
    for name, count in sorted(soak.counts.items()):
        print(f"{count:8,} {name}")
    print("every run ended bitwise as if undisturbed" if passed else "\n".join(soak.failures))
    return 1 if soak.failures else 75 if soak.stopped else 0


if __name__ == "__main__":
    sys.exit(main())
