"""Run directories to records: what is kept is as it was, and what is not needed goes."""

import sys

import pytest
from tiny_runs import ran

from paper.collect import LINES, collect, note_source, read_record, thinned
from roann.lab import records
from roann.lab.report import ReportError, load_run


def test_a_record_says_what_its_run_said(tmp_path):
    folder = ran(tmp_path / "run", "double-moon", length=300, log_every=1, probe_at=(0, 30, 300))
    note_source(folder)
    collect(folder, tmp_path / "results")
    path = tmp_path / "results" / tmp_path.name / "run.jsonl"
    run, record = load_run(folder), read_record(path)
    assert (record.name, record.config, record.text) == (run.name, run.config, run.text)
    assert (record.result, record.seed) == (run.result, run.seed)
    assert set(run.env) < set(record.env) | {"commit"}
    trained = [line for line in record.records if line["kind"] == "train"]
    assert 10 <= len(trained) <= LINES
    assert trained[-1]["step"] == 300
    goal = run.facts["primary"], run.facts["better"]
    for part in ("final", "best"):
        ours = records.summary(record.records, *goal)[part]["eval"]
        assert ours == pytest.approx(run.result[part]["eval"], rel=1e-6)
    probes = [line for line in record.records if line["kind"] == "probe"]
    assert [probe["step"] for probe in probes] == [0, 30, 300]
    assert all("sigma_max" in probe and "surface" not in probe for probe in probes)
    assert path.stat().st_size < 100_000
    before = path.stat().st_mtime_ns
    collect(folder, tmp_path / "results")
    assert path.stat().st_mtime_ns == before


def test_a_record_names_every_commit_its_run_was_made_with(tmp_path, monkeypatch):
    folder = ran(tmp_path / "fig" / "run", "adding", length=2)
    for commit in ("aaa", "bbb", "bbb", None, "aaa with changes"):
        now = {} if commit is None else {"commit": commit}
        monkeypatch.setattr(sys.modules[note_source.__module__], "source", lambda now=now: now)
        note_source(folder)
    collect(folder, tmp_path)
    record = read_record(tmp_path / "fig" / "run.jsonl")
    assert record.env["commit"] == "aaa, then bbb, then aaa with changes"


def test_thinning_keeps_every_evaluation_and_event_and_the_last_step():
    lines = [{"kind": "train", "step": k, "loss": 1 / (k + 1), "lr": 0.5} for k in range(1003)]
    lines += [{"kind": "eval", "step": k, "set": "eval", "mse": 1 / 3} for k in range(1000)]
    lines += [{"kind": "event", "step": 1000, "event": "diverged"}]
    kept = thinned(lines)
    assert sum(line["kind"] == "eval" for line in kept) == 1000
    trained = [line for line in kept if line["kind"] == "train"]
    assert len(trained) == LINES
    assert trained[-1] == {"kind": "train", "step": 1002, "loss": float(f"{1 / 1003:.7g}")}
    assert kept[-1] == lines[-1]


def test_of_probes_the_extremes_are_kept():
    probe = {"kind": "probe", "norm_W": 1 / 3, "sigma": [0.5, 0.25, None], "eigenvalues": [[1, 0]]}
    lines = [probe | {"step": k, "gradient_by_step": list(range(300))} for k in (0, 9)]
    assert thinned(lines) == [
        {"kind": "probe", "step": k, "norm_W": 0.3333333, "sigma_max": 0.5, "sigma_min": None}
        for k in (0, 9)
    ]


def test_thinning_twice_is_thinning_once():
    lines = [{"kind": "train", "step": k, "seconds": k / 7, "loss": 1 / (k + 1)} for k in range(99)]
    lines += [{"kind": "probe", "step": 9, "sigma": [1.0, -1 / 3]}]
    once = thinned(lines)
    assert thinned(once) == once


def test_a_damaged_record_is_named(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"kind":"train","step":1}\n')
    with pytest.raises(ReportError, match=r"a\.jsonl: not the record of a run"):
        read_record(path)


def test_a_run_that_measured_nothing_has_no_record(tmp_path):
    folder = ran(tmp_path / "run", "adding", length=2)
    (folder / "result.json").unlink()
    (folder / "metrics.jsonl").write_text("")
    collect(folder, tmp_path / "results")
    assert not (tmp_path / "results").exists()
