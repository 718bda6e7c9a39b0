"""Flipped bits in what the report reads: a page, or one sentence; never a traceback."""

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
from tiny_runs import ran

from roann.lab.report import ReportError, load_runs, render

FILES = ("metrics.jsonl", "result.json", "env.json", "config.toml")
PLAN = {"length": 6, "eval_every": 3}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    ran(place / "adding", "adding", probe_at=(0, 6), **PLAN)
    model = {"name": "roa-rnn", "hidden_size": 3, "filter": "permutation"}
    ran(place / "copying", "copying", model, probe_at=(0,), **PLAN)
    ran(place / "double-moon", "double-moon", probe_at=(6,), **PLAN)
    return place


def survived(runs: Path, work: Path, seed: int, flips: int) -> tuple[int, int]:
    """Flip one bit at a time; how many gave a page, and how many a refusal."""
    rng = random.Random(seed)
    pages = refusals = 0
    for _ in range(flips):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        source = runs / rng.choice(("adding", "copying", "double-moon"))
        for name in FILES:
            shutil.copy(source / name, work / name)
        # Half of them in the records, and there not in the many digits but in what they mean.
        name = "metrics.jsonl" if rng.random() < 0.5 else rng.choice(FILES)
        data = bytearray((work / name).read_bytes())
        place = rng.randrange(len(data))
        while rng.random() < 0.8 and chr(data[place]).isdigit():
            place = rng.randrange(len(data))
        data[place] ^= 1 << rng.randrange(8)
        (work / name).write_bytes(data)
        said = f"{work}"
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # matplotlib's, of axes that a flip made odd
                page = render(load_runs([work]), title="damaged")
        except ReportError as error:
            said = str(error)
            refusals += 1
        else:
            assert page.lstrip().startswith("<!doctype html>")
            pages += 1
        assert said.startswith(str(work))
        assert "\n" not in said
    return pages, refusals


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_gives_a_page_or_a_sentence(runs, tmp_path, seed):
    """200 flips in all."""
    pages, refusals = survived(runs, tmp_path / "work", seed, 50)
    assert pages > 5
    assert refusals > 5


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thousands_of_flipped_bits_give_a_page_or_a_sentence(runs, tmp_path):
    pages, refusals = survived(runs, tmp_path / "work", 1000, 4000)
    assert pages > 400
    assert refusals > 400


SHAPES = [
    ("sigma", 3), ("sigma", ["x"]), ("sigma_max", 1.0), ("eigenvalues", [[1]]),
    ("eigenvalues", [[1, None]]), ("gradient_at", None), ("gradient_at", [0]),
    ("gradient_by_step", "x"), ("bound", []), ("bound", {"lower": "x"}), ("norm_W", "x"),
    ("surface", {}), ("surface", {"extent": [0, 1], "values": [[0, 1], [1, 0]]}),
    ("surface", {"extent": [0, 1, 0, 1], "values": [[0, 1], [1]]}),
    ("surface", {"extent": [0, 1, 0, 1], "values": [[0, 1], [1, 0]], "points": [[1]]}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), SHAPES, ids=str)
def test_a_probe_of_another_shape_is_named_by_its_line(runs, tmp_path, key, value):
    work = Path(shutil.copytree(runs / "double-moon", tmp_path / "work"))
    lines = [json.loads(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
    place = next(k for k, line in enumerate(lines) if line["kind"] == "probe")
    lines[place][key] = value
    (work / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ReportError, match=rf"metrics\.jsonl: line {place + 1} is not a record"):
        load_runs([work])
