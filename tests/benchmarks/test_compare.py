"""Two revisions side by side: the table of a record."""

import json

from benchmarks import compare

MADE = {
    "about": {
        "before": "abc",
        "rounds": 2,
        "machine": {"cpu": "A processor", "isa": "avx2", "commit": "def"},
    },
    "microseconds": {
        "before": {"cell": 10.0, "scan": 2000.0},
        "after": {"cell": 12.5, "scan": 1000.0},
    },
}


def test_the_table_has_both_times_and_their_ratio():
    lines = compare.table(MADE).splitlines()
    assert lines[2:] == ["| cell | 10.0 | 12.5 | 1.25 |", "| scan | 2,000.0 | 1,000.0 | 0.50 |"]


def test_records_are_found_in_a_folder(tmp_path):
    assert compare.recorded(tmp_path) == ""
    (tmp_path / "compare-abc.json").write_text(json.dumps(MADE))
    text = compare.recorded(tmp_path)
    assert text.startswith("Before: commit abc; after: commit def. A processor, avx2.\n\n| case |")
    assert "| cell | 10.0 | 12.5 | 1.25 |" in text


def test_a_call_is_timed_in_microseconds():
    calls = []
    assert 0 < compare.best(lambda: calls.append(sum(range(1000)))) < 1e6
    assert len(calls) > 4


def test_every_case_runs():
    cases = dict(compare.calls())
    assert "RNN N=16 T=20 B=1: training step" in cases
    for name in ("RNN N=16 T=20 B=1", "cell N=178 B=1"):
        cases[f"{name}: training step"]()
        assert cases[f"{name}: inference"]().isfinite().all()
