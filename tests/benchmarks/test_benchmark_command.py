"""The command line, run as it is used: in processes of its own, at tiny sizes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_records import made_record

from benchmarks import memory, record, tables
from benchmarks.__main__ import main
from benchmarks.cases import CASES
from benchmarks.contenders import Sequences

ROOT = Path(__file__).parents[2]
QUICK = ["--quick"]


def bench(*args, before="", **options):
    one = "os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])"  # as `taskset` does
    code = f"""import os, sys; {one}; {before}
from benchmarks.__main__ import main; sys.exit(main(sys.argv[1:]))"""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        env=os.environ | {"OMP_NUM_THREADS": "1"}, cwd=ROOT, capture_output=True, text=True,
        **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Every case but those that start processes of their own."""
    out = tmp_path_factory.mktemp("bench")
    cases = [name for name in CASES if name not in ("memory", "long")]
    done = bench(*QUICK, "--out", out, "--cases", *cases)
    assert done.returncode == 0, done.stderr
    (path,) = out.iterdir()
    return path, done, record.read(path)


def test_the_record_is_printed_and_written(tiny):
    path, done, made = tiny
    assert "-1t-quick-psmnist-178-" in path.name  # not all cases, so it says which
    assert done.stdout == tables.text(made) + "\n"
    assert f"written to {path}" in done.stderr


def test_every_contender_was_measured_in_every_case(tiny):
    made = tiny[2]
    ours = {f"roann {filter}" for filter in ("qr", "permutation", "broad")}
    everyone = ours | {"naive loop", "nn.RNN", "nn.GRU", "nn.LSTM"}
    for case in ("psmnist-178", "psmnist-256", "psmnist-512", "copying", "adding"):
        for work in ("forward", "train"):
            rows = {r.contender: r for r in made.rows if (r.case, r.work) == (case, work)}
            assert everyone | {"limit"} <= set(rows)
            assert rows["naive loop"].difference <= 1e-5
            assert rows["roann qr"].flops == rows["limit"].flops
    for case, contenders in {
        "fnn": ours | {"one module per layer"},
        "packed": {"roann packed", "roann padded", "nn.RNN packed", "nn.RNN padded"},
        "cell": {"RoaRNNCell broad", "RoaRNNCell the paper's", "nn.RNNCell"},
        "stream-16": {"nn.RNNCell", "nn.RNN"}
        | {
            f"{who} {filter}"
            for who in ("StreamingRoa", "RoaRNNCell", "ONNX Runtime")
            for filter in ("broad", "qr")
        },
        "stream-long": {"StreamingRoa qr"},
        "modes": {"store", "checkpoint", "reversible"},
        "growth-T": {"T = 4", "T = 8", "T = 16"},
        "lab": {"bare loop", "roann.lab.train"},
    }.items():
        assert {row.contender for row in made.rows if row.case == case} == contenders


def test_rows_are_sound_and_the_machine_is_described(tiny):
    made = tiny[2]
    for row in made.rows:
        assert row.seconds == min(row.samples) > 0
        assert 1 <= len(row.samples) <= made.settings["rounds"]
        assert row.steps >= 1
    assert made.settings["cases"] == [name for name in CASES if name not in ("memory", "long")]
    assert {k: v for k, v in made.settings.items() if k != "cases"} == {
        "passes": 1, "rounds": 2, "threads": 1, "quick": True,
    }  # fmt: skip
    assert made.environment["flushes_denormals"] is True
    assert made.environment["cores"] == 1  # those the contenders may use
    assert made.skipped == {}


def test_a_packed_step_counts_only_where_it_is_real(tiny):
    made = tiny[2]
    row = made.find("packed", "train", "roann packed")
    assert row.steps == row.sizes["real_steps"] == sum([12, 8, 4, 1])
    assert made.find("packed", "train", "roann padded").steps == 12 * 4


def test_it_runs_with_torch_alone(tmp_path):
    names = ["numpy", "matplotlib", "tyro", "pydantic", "rich", "jinja2"]
    block = f"sys.modules.update(dict.fromkeys({names}))"
    args = [*QUICK, "--out", tmp_path, "--cases", "psmnist-178", "lab"]
    done = bench(*args, before=block)
    assert done.returncode == 0, done.stderr
    assert "### psmnist-178, train\n\nT = 12, B = 4, N = 16, I = 1\n" in done.stdout
    assert "- not measured: lab: " in done.stdout
    assert "is not installed" in done.stdout


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--cases", "nonsense"], "invalid choice: 'nonsense'"),
        (["--write-docs", "absent.json", "page.md"], "absent.json"),
    ],
)
def test_mistakes_are_said_in_a_line(args, words, capsys):
    assert main(args) == 2
    assert words in capsys.readouterr().err


def test_the_page_is_written_from_a_record(tmp_path, capsys):
    source, page = tmp_path / "record.json", tmp_path / "benchmark.md"
    source.write_text(made_record().to_json())
    page.write_text("By hand.\n<!-- table: targets -->\nold\n<!-- end -->\n")
    assert main(["--write-docs", str(source), str(page)]) == 0
    first = page.read_bytes()
    assert first.startswith(b"By hand.\n<!-- table: targets -->\n| what")
    assert b"old" not in first
    assert main(["--write-docs", str(source), str(page)]) == 0
    assert page.read_bytes() == first
    assert b"| met |" in first


def test_a_broken_record_is_refused(tmp_path, capsys):
    source = tmp_path / "record.json"
    source.write_text('{"schema": 1}')
    assert main(["--write-docs", str(source), str(tmp_path / "page.md")]) == 2
    assert "expected a benchmark record" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


@pytest.mark.skipif(not memory.resident(), reason="this system has no /proc/self/status")
def test_peak_memory_is_that_of_the_states_where_they_are_kept():
    case = Sequences(T=4000, B=20, N=128, I=1, rho=0.5, horizon=4000)
    states = 4 * case.T * case.B * case.N
    store, reversible = (memory.peak("", mode, mode, case) for mode in ("store", "reversible"))
    assert states <= store.extra_bytes <= 3 * states
    assert reversible.extra_bytes < states
    assert (store.steps, store.sizes) == (4000, {"T": 4000, "B": 20, "N": 128, "I": 1})
    assert store.notes == reversible.notes == []


def test_a_fresh_process_that_fails_is_an_error_with_its_words():
    with pytest.raises(ValueError, match="memory: expected one of"):
        memory.peak("", "", "nonsense", 10)


def test_memory_is_skipped_with_a_reason_where_the_system_does_not_say(monkeypatch):
    monkeypatch.setattr(memory, "resident", dict)
    with pytest.raises(record.SkippedError, match="no /proc/self/status"):
        list(CASES["long"](True))
