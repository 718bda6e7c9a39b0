"""A sample of the long proof, and proof that it would notice."""

import random
import subprocess

import faults
import pytest
import rounds
import tiny_runs
from tiny_runs import ran

import soak
from roann.lab import checkpoint
from roann.lab.run import BEST, CHECKPOINTS


def a_round(tmp_path, seed: int = 0) -> rounds.Round:
    """A round of the adding problem, shorter than those of the proof."""
    file = tmp_path / "adding.toml"
    file.write_text(rounds.to_toml(tiny_runs.experiment("adding", length=200).tables()))
    whole, folder = ran(tmp_path / "whole", "adding", length=200), tmp_path / "run"
    words = [rounds.ROANN, "run", str(file), "--out", str(folder), "-q"]
    return rounds.Round(tmp_path, words, [folder], [whole], random.Random(seed), None)


def test_the_real_command_is_killed_and_ends_as_if_nothing_had_been(tmp_path):
    counts = a_round(tmp_path).play(3)
    assert counts["kills"] == 3
    assert counts["kills of roann run in training"] + counts["kills of roann run while starting"]
    assert counts["runs compared"] == 1
    assert counts["tensors compared"] > 10


def test_a_difference_of_one_bit_is_noticed(tmp_path):
    game = a_round(tmp_path)
    subprocess.run(game.words, check=True, capture_output=True)
    assert game.play(0)["runs compared"] == 1
    found = checkpoint.newest(game.folders[0] / CHECKPOINTS)
    name = next(name for name in found.tensors if name.startswith("model."))
    found.tensors[name].view(-1)[0] += 1e-7
    checkpoint.set_aside(found.path, "a test.")
    checkpoint.save(game.folders[0] / CHECKPOINTS, found.step, found.tensors, found.state)
    with pytest.raises(rounds.SoakError, match="is not"):
        game.play(0)


def test_a_command_that_fails_is_noticed(tmp_path):
    game = a_round(tmp_path)
    game.words[1] = "fly"
    with pytest.raises(rounds.SoakError, match="exit code 2"):
        game.play(1)


def test_every_place_is_hit_by_flips(tmp_path):
    folder = ran(tmp_path / "run", "adding", length=8)
    rng = random.Random(0)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    places = {faults.flip_somewhere(folder, rng) for _ in range(40)}
    assert places == {CHECKPOINTS, BEST, "metrics.jsonl"}
    assert any(path.read_bytes() != data for path, data in before.items())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_forty_kills(tmp_path):
    proof = soak.Soak(40, tmp_path / "soak.json", tmp_path)
    assert proof.run(), proof.failures
    assert proof.counts["kills"] >= 40
