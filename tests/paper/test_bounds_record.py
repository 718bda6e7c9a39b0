"""The bounds study: theorems hold in it, and it can be stopped anywhere."""

import math

import pytest
import torch

from paper import bounds, tables
from roann import PAPER, RoaRNN
from roann.diagnostics import spectral_norm
from roann.lab import records

NETWORKS = bounds.STUDY["networks"]
# Small horizons on purpose: the theorem is not what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore::roann.HypothesisWarning")


@pytest.mark.parametrize("net", NETWORKS, ids=lambda net: f"{net['label']}-{net['setting']}")
def test_spectra_lie_in_the_finite_interval(net):
    found = bounds.spectrum(net, 60, 0)
    assert len(found["sigma"]) == net["width"]
    if "rho" not in net:
        assert "finite" not in found
        assert found["sigma"][-1] < -30  # it vanishes
    else:
        assert found["finite"]["inside"]
        assert found["sigma"][0] <= found["finite"]["upper"]


def test_a_small_W_makes_the_interval_say_something_and_the_papers_does_not():
    tight, paper = (bounds.spectrum(net, 300, 0) for net in NETWORKS if net["label"] == "roaRNN")
    assert not tight["vacuous"]
    assert paper["vacuous"]


def test_filters_of_one_seed_share_W():
    tight = [net for net in NETWORKS if net["setting"] == "tight" and "RNN" in net["label"]]
    roa, eye = (bounds.built(net, 5, 3)[0].get_parameter("weight_hh_l0") for net in tight)
    assert torch.equal(roa, eye)


@pytest.mark.parametrize("L", [10, 100, 1000])
def test_the_worst_case_meets_the_finite_end_and_passes_the_papers(L):
    found = bounds.worst_case(L)
    exact = L * math.log(1 - 2.0 / L * 2)
    assert found["sigma"] == pytest.approx([exact] * 4, rel=1e-8)
    assert found["finite"] == pytest.approx(exact, rel=1e-12)
    assert found["paper"] > exact


@pytest.mark.parametrize("filter", ["qr", "haar", "cycle"])
def test_spread_eigenvalues_move_by_the_diagonal_of_W(filter):
    found = bounds.first_order(filter, 24, 0)
    # The next order is α‖W‖² over the distance of eigenvalues, far below this.
    assert found["moved"] == pytest.approx(found["diagonal"], rel=0.02)


def test_the_identity_moves_by_the_eigenvalues_of_W():
    found = bounds.first_order("identity", 24, 0)
    generator = torch.Generator().manual_seed(0)
    rnn = RoaRNN(1, 24, alpha=0.5, generator=generator, dtype=torch.float64, **PAPER)
    W = rnn.get_parameter("weight_hh_l0").detach()
    eigenvalues = torch.linalg.eigvals(W)
    # |1 − α + α λ| − (1 − α) = α Re λ + O(α²)
    assert found["moved"] == pytest.approx(float(eigenvalues.real.abs().max()), rel=1e-2)
    assert found["norm_W"] == pytest.approx(float(spectral_norm(W)), rel=1e-12)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setitem(bounds.STUDY, "lengths", (10, 20))
    monkeypatch.setitem(bounds.STUDY, "sizes", (4, 8))


def test_a_study_that_is_there_is_not_measured_again(tmp_path, small):
    path = tmp_path / "new" / "bounds.jsonl"
    bounds.main(True, path)
    before = path.read_bytes()
    names = [line["kind"] for line in records.read(path)]
    assert names == ["study"] + ["first-order"] * 10 + (["worst-case"] + ["spectrum"] * 8) * 2
    bounds.main(True, path)
    assert path.read_bytes() == before  # with the same times


def test_the_tables_of_the_study(tmp_path, small):
    bounds.main(True, tmp_path / "bounds.jsonl")
    found = {"bounds": records.read(tmp_path / "bounds.jsonl")}
    _, measured = tables.spectra(found)
    rows = {row[0]: row for row in measured}
    assert len(rows) == len(NETWORKS)
    assert rows["roaRNN, tight"][1:4] == ["2 of 2", "2 of 2", "0 of 2"]
    assert rows["plain RNN, paper"][2:4] == ["–", "–"]
    _, worst = tables.worst_cases(found)
    assert [row[:2] for row in worst] == [["10", "−5.10826"], ["20", "−4.46287"]]
    _, moved = tables.first_order(found)
    assert [row[0] for row in moved] == bounds.STUDY["filters"]
    assert float(moved[0][1]) == pytest.approx(float(moved[0][2]), rel=0.01)
