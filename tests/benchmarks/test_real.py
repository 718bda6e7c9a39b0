"""The benchmark on real series, with small made files in place of the real ones."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the extra [estimators] is not installed")

import torch
from torch.nn.utils.rnn import pack_padded_sequence

from benchmarks.real import epochs, goals, minirocket, peers, records, sets, systems, tables
from benchmarks.real.__main__ import main
from paper import ROOT
from paper.pages import filled
from roann.estimators import RoaFeatures


def write_ts(path, targets, head):
    random = np.random.default_rng(len(path.name))
    lines = []
    for target in targets:
        wave = np.sin(np.arange(20) * (0.3 + 0.4 * float(target))) + random.normal(0, 0.1, 20)
        lines.append(",".join(f"{v:.4f}" for v in wave) + f":{target}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{head}\n@data\n" + "\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture
def data(tmp_path):
    """A directory with a set of each kind."""
    for part in ("TRAIN", "TEST"):
        head = "@classLabel true 0 1"
        write_ts(tmp_path / f"ucr/GunPoint/GunPoint_{part}.ts", "01" * 8, head)
        path = tmp_path / f"ucr/CardanoSentiment/CardanoSentiment_{part}.ts"
        write_ts(path, np.linspace(0, 1, 12).round(2), "@targetlabel true")
    months = (f"m{k},{100 + k + 20 * np.sin(k * np.pi / 6):.3f}\n" for k in range(132))
    (tmp_path / "ucr/Airline.csv").write_text("Date,Passengers\n" + "".join(months))
    return tmp_path


def test_all_kinds_run_and_are_recorded(data, tmp_path, capsys):
    out = tmp_path / "out"
    words = ["--data", str(data), "--out", str(out), "--seeds", "2", "--epochs", "1"]
    assert main([*words, "--sets", "GunPoint", "CardanoSentiment", "Airline"]) == 0
    rows = records.read(out)
    found = {(row["set"], row["system"]): row for row in rows}
    assert {system for name, system in found if name == "GunPoint"} == {
        "roann, fixed", "ridge", "roann, trained", "LSTM", "GRU"}  # fmt: skip
    assert {system for name, system in found if name == "Airline"} == {
        "ridge", "persistence", "seasonal", "roann, trained", "LSTM", "GRU"}  # fmt: skip
    assert {r["seed"] for r in rows if r["system"] == "roann, fixed"} == {0, 1}
    assert {r["seed"] for r in rows if r["system"] == "ridge"} == {0}
    assert found["GunPoint", "roann, fixed"]["score"] == 1
    assert found["Airline", "persistence"]["score"] == 0
    assert found["Airline", "ridge"]["score"] > 0.9
    assert found["Airline", "seasonal"]["score"] > 0.5
    for row in rows:
        if row["system"] in ("roann, trained", "LSTM", "GRU"):
            assert set(row["chosen"]["validation"]) == {"0.01", "0.003", "0.03"}
            best = max(row["chosen"]["validation"].values())
            assert row["chosen"]["validation"][str(row["chosen"]["learning_rate"])] == best
    capsys.readouterr()
    again = [*words, "--sets", "GunPoint", "--systems", "ridge"]
    assert main(again) == 0
    assert capsys.readouterr().err == ""  # it has its record
    assert main([*again, "--again"]) == 0
    assert "GunPoint, ridge, seed 0" in capsys.readouterr().err
    assert len(records.read(out)) == len(rows)  # in place of the old ones


def test_an_interrupted_command_continues(data, tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    words = ["--data", str(data), "--out", str(out), "--seeds", "3", "--epochs", "1"]
    words += ["--sets", "GunPoint", "--systems", "GRU"]
    fits = []
    usual = systems._fitted
    monkeypatch.setattr(systems, "_fitted", lambda *args: fits.append(args) or usual(*args))

    def stopped(*row):
        records_add(*row)
        raise KeyboardInterrupt

    records_add = records.add
    monkeypatch.setattr(records, "add", stopped)
    assert main(words) == 130
    (first,) = records.read(out)
    assert (first["seed"], len(fits)) == (0, 4)  # three of the search
    monkeypatch.setattr(records, "add", records_add)
    capsys.readouterr()
    assert main(words) == 0
    assert "seed 0" not in capsys.readouterr().err
    assert len(fits) == 6  # the search is in the record
    rows = records.read(out)
    assert rows[0] == first
    assert [row["seed"] for row in rows] == [0, 1, 2]
    assert len({json.dumps(row["chosen"]) for row in rows}) == 1


def test_a_learning_rate_that_diverges_is_not_chosen(data, tmp_path, monkeypatch):
    fit = systems._fitted

    def fragile(kind, held, seed, rate):
        if rate == systems.RATES[0]:
            raise FloatingPointError("the gradient is not finite")
        return fit(kind, held, seed, rate)

    monkeypatch.setattr(systems, "_fitted", fragile)
    words = ["--data", str(data), "--out", str(tmp_path), "--seeds", "1", "--epochs", "1"]
    for _ in range(2):
        assert main([*words, "--sets", "GunPoint", "--systems", "LSTM", "--again"]) == 0
        (row,) = records.read(tmp_path)
        assert row["chosen"]["validation"][str(systems.RATES[0])] is None
        assert row["chosen"]["learning_rate"] in systems.RATES[1:]


def test_sunspots_are_here():
    found = sets.SETS["sunspots"](Path("nowhere"))
    assert found.X_test[0].shape == (309, 1)
    assert found.X_test[0][[0, -1], 0].tolist() == [5.0, 2.9]
    assert len(found.X[0]) == 309 - 66
    assert len(systems.truth(found)) == 66 - 11 + 1
    last = sets.SETS["sunspots-last"](Path("nowhere"))
    assert np.array_equal(last.X_test[0], found.X_test[0])
    ours = systems.network(systems.RoaForecaster, last, 0, 0.01)
    assert ours.options.poolings == ("last",)
    assert ours.options.layer == {"nonlinearity": "identity"}


def test_the_same_seed_gives_the_same_answers_and_another_does_not(data):
    made = sets.SETS["GunPoint"](data)
    kind = systems.PEERS["GRU", systems.RoaClassifier]
    fits = [systems._fitted(kind, made, seed, 0.01)[0].predict_proba(made.X) for seed in (0, 0, 1)]
    assert np.array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])


def test_a_validation_split_holds_training_series_only(data):
    made = sets.SETS["GunPoint"](data)
    held = systems.validation(made)
    assert len(held.X) == 12
    assert len(held.X_test) == 4
    known = {x.tobytes() for x in made.X}
    assert {x.tobytes() for x in [*held.X, *held.X_test]} == known
    series = sets.SETS["Airline"](data)
    held = systems.validation(series)
    assert len(held.X_test[0]) == len(series.X[0]) == len(held.X[0]) + 36


def test_forecasts_use_the_past_alone(data):
    made = sets.SETS["Airline"](data)
    assert len(systems.truth(made)) == 36 - 12 + 1
    for at, past, ahead in zip(
        systems.origins(made), systems.windows(made), systems.truth(made), strict=True
    ):
        assert np.array_equal(past, made.X_test[0][at - 24 : at, 0])
        assert np.array_equal(ahead, made.X_test[0][at : at + 12, 0])


@pytest.mark.parametrize("cell", ["LSTM", "GRU"])
def test_peers_are_torchs_own_layers_in_both_directions(cell):
    """States, last states and gradients, of packed series and of equal lengths."""
    ours = peers.Gated(cell, 3, 5, True, seed=4)
    torch.manual_seed(4)
    theirs = getattr(torch.nn, cell)(3, 5, bidirectional=True)
    x = torch.randn(9, 4, 3, generator=torch.Generator().manual_seed(0))
    for given in (x, pack_padded_sequence(x, torch.tensor([9, 7, 7, 1]))):
        found, wanted = [], []
        for net, kept in ((ours, found), (theirs, wanted)):
            output, last = net(given)
            output = getattr(output, "data", output)
            last = last[0] if isinstance(last, tuple) else last
            loss = output.square().sum() + last.sum()
            kept += [output, last, *torch.autograd.grad(loss, list(net.parameters()))]
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_peers_have_the_layer_of_their_name_and_it_is_trained(data):
    made = replace(sets.SETS["GunPoint"](data), epochs=3)  # the head starts at zero
    for name in ("LSTM", "GRU"):
        kind = systems.PEERS[name, systems.RoaClassifier]
        weights = []
        for rate in (0.03, 1e-12):
            net = systems._fitted(kind, made, 0, rate)[0].networks_[0].layers[0].nets[1]
            assert type(net).__name__ == name
            weights.append(net.weight_hh_l0.detach())
        assert float((weights[0] - weights[1]).abs().max()) > 1e-3


def test_another_python_is_asked_for_minirocket(tmp_path, capsys):
    python = tmp_path / "python"
    row = {"seed": 0, "score": 0.5, "seconds": 1.0, "parameters": 3}
    python.write_text(f"#!/bin/sh\necho words\necho '{json.dumps(row)}'\n")
    python.chmod(0o755)
    assert minirocket.run(python, "classify", (Path("a"), Path("b")), 1) == [row]
    python.write_text("#!/bin/sh\necho 'unequal lengths' >&2\nexit 1\n")
    assert minirocket.run(python, "classify", (Path("a"), Path("b")), 1) == []
    assert "MiniRocket: unequal lengths" in capsys.readouterr().err


def test_errors_are_one_line(tmp_path, capsys):
    assert main(["--data", str(tmp_path), "--sets", "GunPoint"]) == 2
    assert "GunPoint_TRAIN.ts" in capsys.readouterr().err
    (tmp_path / "x.jsonl").write_text('{"set": 1}\n')
    (tmp_path / "page.md").write_text("")
    assert main(["--out", str(tmp_path), "--write-docs", str(tmp_path / "page.md")]) == 2
    assert "line 1: not a record" in capsys.readouterr().err


def test_the_tables_show_every_seed_and_what_is_missing():
    row = {"set": "GunPoint", "kind": "classify", "seconds": 2.0, "parameters": 1234}
    made = [row | {"system": "LSTM", "seed": k, "score": s} for k, s in enumerate((0.9, 0.95))]
    made.append(row | {"system": "GRU", "seed": 0, "score": 0.9})
    made.append(row | {"system": "ridge", "seed": 0, "score": 0.7333})
    lines = tables.blocks(made)["classify"].replace("\u202f", " ").splitlines()
    assert lines[2] == "| GunPoint | – | – | 92.5 (90.0 … 95.0) | 90.0 (one seed) | 73.3 | – | 2 |"
    assert "| GunPoint | LSTM | 2 | 1,234 | – |" in tables.blocks(made)["cost"]


def made(name, kind="classify", **scores):
    row = {"set": name, "kind": kind, "seed": 0, "seconds": 1.0, "parameters": 150_000}
    return [
        row | {"system": system.replace("roann_", "roann, "), "score": score}
        for system, score in scores.items()
    ]


def test_goals_are_judged_by_the_records():
    rows = made(
        "GunPoint", roann_fixed=0.99, roann_trained=0.9, LSTM=0.95, GRU=0.97, MiniRocket=1.0
    )
    rows += made("ACSF1", roann_fixed=0.86, LSTM=0.9, MiniRocket=0.9)
    rows += made("sunspots", "forecast", roann_trained=0.3, LSTM=0.4, GRU=-0.2)
    rows += made("digits-mel", roann_fixed=0.97)
    lines = {line[0]: line[1:] for line in goals.table(rows)[1]}
    assert lines["better than LSTM and GRU on every set"] == [
        "no",
        "above: GunPoint; below: sunspots (0.30 to 0.40); not compared: ACSF1, digits-mel",
    ]
    near = "mean over classification sets at most 4 points below MiniRocket"
    assert lines[near] == ["yes", "92.5 to 95.0 over GunPoint, ACSF1"]
    assert lines["above MiniRocket where order over long spans matters"][0] == "no"
    digits = "digits-{}: {} % with at most 150,000 parameters"
    assert lines[digits.format("mel", 97)] == ["yes", "97.0, 150,000 learned, 1 seeds"]
    assert lines[digits.format("samples", 85)] == ["not measured", ""]
    better = made("GunPoint", roann_fixed=0.99, LSTM=0.95, GRU=0.97)
    assert goals.table(better)[1][0][1:] == ["yes", "above: GunPoint"]


def test_an_epoch_is_measured_on_a_part(data, tmp_path, monkeypatch):
    monkeypatch.setattr(epochs, "PART", 5)
    out = tmp_path / "out"
    words = ["--data", str(data), "--out", str(out), "--sets", "GunPoint", "--one-epoch"]
    assert main([*words, "--systems", "ridge", "LSTM"]) == 0
    (row,) = epochs.read(out)
    assert (row["system"], row["series"], row["steps"], row["all_steps"]) == ("LSTM", 4, 80, 320)
    assert row["seconds"] > 0
    assert records.read(out) == []
    found = epochs.table([row | {"seconds": 90.0, "epochs": 10}])[1]
    assert found == [["GunPoint", "LSTM", "4", "90", "6.0", "3.2"]]


def test_the_page_counts_what_fixed_features_draw():
    """The goal on parameters holds with the weights that are drawn and not learned, too."""
    page = " ".join((ROOT / "docs/real.md").read_text(encoding="utf-8").split())
    rows = {(r["set"], r["system"]): r for r in records.read(ROOT / "results/real")}
    X = np.random.default_rng(0).normal(size=(4, 30, 40))
    for name, width, channels in (("digits-mel", 128, 40), ("digits-samples", 64, 1)):
        features = RoaFeatures(hidden_size=width).fit(X[:, :, :channels])
        drawn = sum(p.numel() for layer in features.layers_ for p in layer.parameters())
        total = drawn + rows[name, "roann, fixed"]["parameters"]
        assert f"{total:,}" in page
        assert total < goals.PARAMETERS


def test_the_committed_page_is_that_of_the_committed_records():
    page = (ROOT / "docs/real.md").read_text(encoding="utf-8")
    folder = ROOT / "results/real"
    assert filled(page, tables.blocks(records.read(folder), epochs.read(folder))) == page
