"""`benchmarks.scale`: a record whose derived numbers are known, and the page of a real one."""

import importlib.util
import json
import math
import re
from pathlib import Path

import pytest
from made_records import ENVIRONMENT

from benchmarks.scale import estimate, tables
from benchmarks.scale.__main__ import main, read
from benchmarks.scale.estimate import (
    COLLECTIVES,
    LATENCY,
    Grid,
    Update,
    shortest,
    worthwhile,
)
from benchmarks.scale.steps import (
    CASES,
    FEW,
    ONE,
    SILENT,
    STRONG,
    THREADS,
    WAYS,
    WEAK,
    WEAK_SILENT,
)
from paper.pages import filled

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/scale.md"
SECONDS = {ONE: 2.0, THREADS: 1.1, FEW: 0.12, STRONG: 0.8, SILENT: 0.6, WEAK: 1.25}
SECONDS |= {WEAK_SILENT: 1.0}


def made_record():
    """Two threads take 0.1 s and 0.01 s per example; two processes lose a quarter and a fifth."""
    ways = {
        way.name: {"samples": [SECONDS[way.name]] * 3, "sent": 2e6, "collective": 1e-4,
                   "parameters": 500_000}
        for way in WAYS
    }  # fmt: skip
    sweep = {"runs": 10, "seconds": 30.0, "trained": 40.0, "driver": 2.0}
    large = {"runs": 60, "seconds": 130.0, "trained": 215.0, "driver": 2.5}
    return {
        "schema": 2,
        "environment": ENVIRONMENT,
        "settings": {"quick": False, "passes": 3, "updates": 1, "jobs": 2},
        "steps": dict.fromkeys(CASES, ways),
        "sweeps": {"local": [sweep, large], "ray": [sweep, large | {"driver": 7.0}]},
        "kill": {"period": 10.0, "repeated": 9.0, "restart": 5.0, "cost": 15.0},
        "skipped": {},
    }


def test_an_update_on_many_machines():
    """By hand: a + k·b, and rings of 2 (w − 1) messages."""
    model = estimate.update(made_record())
    assert (model.batch, model.parameters) == (100, 500_000)
    assert model.fixed == pytest.approx(0.1)
    assert model.per_example == pytest.approx(0.01)
    assert model.seconds(1) == pytest.approx(1.1)
    four = 0.1 + 0.25 + COLLECTIVES * 6 * LATENCY + 6 / 4 * 2e6 / 1.25e9
    assert model.seconds(4) == pytest.approx(four)
    assert model.seconds(4, 400) == pytest.approx(four + 0.75)
    assert model.parts(3)["uneven"] == pytest.approx(0.01 * 2 / 3)  # the largest has 34 of 100
    parts = model.parts(8)
    assert parts["useful"] == pytest.approx(model.seconds(1) / 8)
    assert parts["sequential"] == pytest.approx(0.1 * 7 / 8)


def test_where_scaling_stops():
    """With fast messages, at one machine for each example; with slow ones, earlier."""
    even = Update(0.0, 1.0, 0, 16).seconds
    assert (shortest(even, 16), worthwhile(even, 16)) == (16, 16)
    assert worthwhile(Update(1.0, 1.0, 0, 16).seconds, 16) == 16  # 17 / (16 · 2): above a half
    mixed = Update(4.0, 1.0, 0, 16).seconds
    assert worthwhile(mixed, 16, 0.49) == 5  # 20 / (5 · 8), but 20 / (6 · 7)
    assert shortest(Update(0.0, 1e-3, 10**8, 16).seconds, 16) == 1


def test_noise_does_not_make_time_negative():
    record = made_record()
    record["steps"] = {
        case: ways | {FEW: ways[FEW] | {"samples": [2.0]}} for case, ways in record["steps"].items()
    }
    model = estimate.update(record)
    assert (model.fixed, model.per_example) == (1.1, 0)
    assert model.seconds(1) == pytest.approx(1.1)


def test_a_grid_of_runs():
    overhead, driver = estimate.marginal(made_record(), "local")
    assert overhead == pytest.approx((2 * 100 - 175) / 50)
    assert driver == pytest.approx(0.01)
    grid = Grid(run_seconds=100.0, overhead=0.5, driver=0.01, runs=1000, cores=2)
    assert grid.seconds(1) == pytest.approx(500 * 100.5)
    assert grid.seconds(300) == pytest.approx(2 * 100.5)  # 600 cores: two rounds
    assert grid.most() == 500
    assert grid.seconds(500) == grid.seconds(10_000) == pytest.approx(100.5)
    assert grid.served() == pytest.approx(5025)
    assert Grid(0.0, 0.001, 0.01, 1000).seconds(9) == pytest.approx(10)  # the driver's time
    assert Grid(1.0, 0.0, 0.0).served() == math.inf
    assert estimate.grid(made_record(), "ray").run_seconds == 2.0 * 20 * 600  # one core


def test_the_tables():
    text = tables.text(made_record())
    assert "| psMNIST, N = 512: 1 process | 2.000 s | 1 | – | – |" in text
    assert "| psMNIST, N = 512: 2 processes | 800.0 ms | 2.5 | 2 MB | 25 % |" in text
    assert "2 processes, twice the batch | 1.250 s | 3.2 | 2 MB | 20 % |" in text
    assert "do not talk" not in text
    assert "| local | 1,800 | 3.58 s | 0.50 s | 10 ms | 10.0 s |" in text
    assert "| ray | 1,800 | 3.58 s | 0.50 s | 100 ms | 10.0 s |" in text
    assert "| training repeated: from the checkpoint to the kill | 9.0 |" in text
    assert "| how much later the next checkpoint came | 15.0 |" in text
    assert "| expected with a checkpoint every 60 s | 35.0 |" in text
    # 64 machines have two examples each at most: 0.1 + 0.02 s, and 0.022 s of messages.
    assert "| 64 machines | 0.47 h, 7.74 times faster | 22 days, 63.3 times faster |" in text
    assert "| 64 | 142.1 ms | 0.47 h | 7.74 | 12 % | 69 % | 3 % | 16 % | 98 % |" in text
    assert "| kept busy by one driver | – | 120,002 machines |" in text
    assert "| load before the run | 0.25 |" in text


def test_what_was_not_measured_is_a_dash_and_a_busy_machine_a_warning():
    record = made_record()
    del record["sweeps"]["ray"]
    record["environment"] = ENVIRONMENT | {"load_before": 1.5}
    text = tables.text(record | {"skipped": {"sweep, ray": "not installed"}})
    assert "- not measured: sweep, ray: not installed" in text
    assert "| ray | – | – | – | – | – |" in text
    assert "| 1 machine | 3.7 h | – |" in text
    assert "| load before the run | 1.5: other programs ran, do not rely on these numbers |" in text


def test_the_committed_page_is_that_of_the_committed_record():
    page = PAGE.read_text(encoding="utf-8")
    (name,) = set(re.findall(r"`(results/bench/scale-[\w-]+\.json)`", page))
    record = read(ROOT / name)
    assert not record["settings"]["quick"]
    assert filled(page, tables.blocks(record)) == page
    assert all(f"<!-- table: {block} -->" in page for block in tables.blocks(record))


def test_bad_input_is_one_sentence(tmp_path, capsys):
    file = tmp_path / "record.json"
    file.write_text(json.dumps({"schema": 7}))
    assert main(["--write-docs", str(file), str(PAGE)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"benchmarks.scale: {file}: expected a record of benchmarks.scale")
    assert err.count("\n") == 1
    assert main(["--passes", "0"]) == 2
    assert "expected a number from 1 to 100, got '0'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_quick_run(tmp_path, capsys):
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    (file,) = tmp_path.glob("scale-*-quick.json")
    record = read(file)
    for ways in record["steps"].values():
        assert ways.keys() == {way.name for way in WAYS}
        for way in (STRONG, WEAK):
            # A ring of two sends each gradient once; 4 bytes a parameter, and some messages.
            sent, least = ways[way]["sent"], 4 * ways[way]["parameters"]
            assert least <= sent < least + 10_000
        assert ways[SILENT]["sent"] == ways[ONE]["sent"] == 0
    assert record["sweeps"]["local"][1]["runs"] == 4
    if importlib.util.find_spec("ray"):
        assert record["skipped"] == {}
        assert record["sweeps"]["ray"][1]["runs"] == 4
    assert record["kill"]["restart"] > 0
    assert record["kill"]["cost"] > record["kill"]["repeated"] > 0
    assert "the numbers mean nothing" in capsys.readouterr().out
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["--write-docs", str(file), str(page)]) == 0
    assert all(
        table in page.read_text(encoding="utf-8") for table in tables.blocks(record).values()
    )
