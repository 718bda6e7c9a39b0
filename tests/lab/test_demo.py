"""The demonstration, in small: it trains, prints, draws and writes."""

import pytest

from roann.lab import demo, run
from roann.lab.cli import main


def test_demo_end_to_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(demo, "LAG", 40)
    out = tmp_path / "demo"
    assert main(["demo", "--out", str(out), "--steps", "2", "--quiet"]) == 0
    printed = capsys.readouterr().out
    for word in ("roa ", "vanilla-rnn", "lstm", "(guessing)", "recall", "report.html"):
        assert word in printed
    assert (out / "demo.png").read_bytes()[:4] == b"\x89PNG"
    assert "Remembering" in (out / "report.html").read_text()
    # Finished runs are kept.
    assert main(["demo", "--out", str(out), "--steps", "2", "--quiet"]) == 0
    for name in demo.MODELS:
        assert run.result_of(out / name)["steps"] == 2


@pytest.mark.parametrize(
    ("log_value", "text"), [(0.0, "1"), (-2302.6, "1e-1000"), (None, "0"), (2.0, "7.4")]
)
def test_powers_of_ten(log_value, text):
    assert demo._power(log_value) == text
