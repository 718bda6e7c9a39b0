"""What a run writes down and prints: records that survive a torn end, their summary, progress."""

import math

import pytest

from roann.lab import records
from roann.lab.progress import Lines, printable
from roann.lab.records import Records


def test_records_survive_a_torn_end_and_are_cut_where_told(tmp_path):
    path = tmp_path / "metrics.jsonl"
    written = Records(path)
    written.write("eval", 1, None, 0.1234567, {"set": "eval", "x": math.nan, "y": [math.inf, 1.5]})
    offset = written.sync()
    written.write("eval", 2, 0.5, 2.0, {"set": "eval", "x": 1.0})
    written.sync()
    written.close()
    assert offset == path.read_bytes().index(b"\n") + 1
    with open(path, "ab") as file:
        file.write(b'{"kind": "eval", "st')
    first, second = records.read(path)
    assert first == {
        "kind": "eval", "step": 1, "epoch": None, "seconds": 0.123, "set": "eval", "x": None,
        "y": [None, 1.5],
    }  # fmt: skip
    assert second["step"] == 2
    again = Records(path, offset)
    assert path.stat().st_size == offset
    again.write("eval", 3, None, 3.0, {"set": "eval"})
    again.sync()
    again.close()
    assert [line["step"] for line in records.read(path)] == [1, 3]
    with open(path, "ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(ValueError, match="utf-8"):
        records.read(path)
    assert [line["step"] for line in records.read(path, strict=False)] == [1, 3]


def test_the_summary_tells_last_best_and_selected_apart():
    accuracies = {"validation": [0.5, 0.9, 0.7], "test": [0.6, 0.8, 0.85]}
    lines = [
        {
            "kind": "eval",
            "step": k,
            "set": name,
            "seconds": 0.0,
            "epoch": None,
            "accuracy": of[k],
        }
        for k in range(3)
        for name, of in accuracies.items()
    ]
    found = records.summary(lines, "accuracy", "higher")
    assert {k: v["accuracy"] for k, v in found["final"].items()} == {
        "validation": 0.7,
        "test": 0.85,
    }
    assert found["best"]["test"]["step"] == 2
    assert found["best"]["validation"] == {"step": 1, "epoch": None, "accuracy": 0.9}
    assert found["selected"]["test"]["accuracy"] == 0.8
    worst = records.summary(lines, "accuracy", "lower")
    assert worst["best"]["test"]["accuracy"] == 0.6
    assert records.summary([], "accuracy", "lower") == {"final": {}, "best": {}, "selected": {}}


def test_progress_tells_loss_score_trivial_speed_and_time_left(capsys, monkeypatch):
    monkeypatch.setattr(Lines, "interval", 0.0)
    watch = Lines("run\x1b[31m\u202e", 100, "mse", 1 / 6)
    watch.step(1, 0.5)
    watch.scores({"eval": {"mse": 0.25}})
    watch.step(2, 0.125)
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("run[31m: step 1/100, loss 0.5, mse –, trivial 0.1667")
    assert "loss 0.125, eval mse 0.25, trivial 0.1667" in second
    assert "steps/s" in second
    assert second.endswith("left")


def test_nothing_that_moves_a_cursor_is_printed():
    assert printable("a\x00\x07\x1b[2J\x9b1;1H\u202e\u200fb\nc") == "a[2J1;1Hb\nc"
