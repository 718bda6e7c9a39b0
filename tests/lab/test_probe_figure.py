"""`roann probe --figure`: what it draws, and what it says when it cannot."""

import json
import math

import pytest
import tiny_runs

from roann.lab.cli import main
from roann.lab.figures.spectra import probed

HEADS = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}
MODELS = {
    "adding": {"name": "dilated-cnn", "hidden_size": 3, "dilations": [1, 2]},
    "double-moon": {"name": "highway", "layers": 6, "width": 3},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return {
        task: str(tiny_runs.ran(place / task, task, model, length=1))
        for task, model in MODELS.items()
    }


@pytest.mark.parametrize("task", MODELS)
@pytest.mark.parametrize("kind", HEADS)
def test_any_model_is_drawn_with_the_same_command(runs, task, kind, tmp_path, capsys):
    file = tmp_path / "new" / f"seen.{kind}"
    assert main(["probe", runs[task], "--figure", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["figure"] == str(file)
    assert len(found["gradient_by_step"]) == found["maps"] + 1
    first = file.read_bytes()
    assert first.startswith(HEADS[kind])
    assert main(["probe", runs[task], "--figure", str(file)]) == 0
    assert f"figure: {file}" in capsys.readouterr().out
    assert file.read_bytes() == first


def test_spectrum_and_gradient_are_both_in_the_figure(runs, tmp_path, capsys):
    for task, words in {
        "adding": ("Singular values over 12 steps", "Gradient along time", "dilated-cnn"),
        "double-moon": ("Singular values over 5 layers", "Gradient along depth", "highway"),
    }.items():
        file = tmp_path / f"{task}.svg"
        assert main(["probe", runs[task], "--figure", str(file)]) == 0
        text = file.read_text(encoding="utf-8")
        assert all(word in text for word in words)
    capsys.readouterr()


def test_without_a_figure_nothing_is_drawn(runs, capsys):
    assert main(["probe", runs["adding"], "--json"]) == 0
    assert "figure" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a.bmp", "--figure must end in .svg, .png or .pdf, got 'a.bmp'."),
        ("plain", "--figure must end in .svg, .png or .pdf, got 'plain'."),
        ("file/a.svg", "File exists"),
        ("folder.svg", "Is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_answered_in_words(runs, name, says, tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "folder.svg").mkdir()
    assert main(["probe", runs["adding"], "--figure", str(tmp_path / name)]) == 2
    out, err = capsys.readouterr()
    assert says in err
    assert out == ""
    assert "Traceback" not in err


def test_a_model_that_cannot_be_measured_is_not_drawn(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("roann.lab.probe.probe", lambda task, model, seed: {"norm_W": 1.0})
    file = tmp_path / "a.svg"
    assert main(["probe", runs["adding"], "--figure", str(file)]) == 4
    out, err = capsys.readouterr()
    assert "nothing to draw, the model at step 1 cannot be measured" in err
    assert out == ""
    assert not file.exists()


def test_extremes_alone_are_said_and_drawn(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("roann.lab.probe.LARGEST", 1)
    file = tmp_path / "a.svg"
    assert main(["probe", runs["adding"], "--figure", str(file)]) == 0
    assert "extreme log singular values over 12 maps: -inf and -inf" in capsys.readouterr().out
    assert "dilated-cnn, extremes only (all are 0)" in file.read_text(encoding="utf-8")


def test_the_figure_of_half_a_probe_has_one_panel():
    cloud = {"step": 3, "maps": 2, "sigma": [0.5, None]}
    flow = {"step": 3, "gradient_at": [0, 1, 2], "gradient_by_step": [0.0, None, 2.0]}
    left, right = probed("a", cloud), probed("a", flow)
    assert [axes.get_ylabel() for axes in left.axes] == ["ln σ of the Jacobian"]
    assert [axes.get_ylabel() for axes in right.axes] == ["‖∂loss / ∂x‖"]
    (line,) = right.axes[0].get_lines()
    assert line.get_xydata().tolist() == [[2.0, 2.0]]
    low, high = right.axes[0].get_xlim()
    assert low < 0 < 2 < high  # steps without a gradient are on the axis
    with pytest.raises(ValueError, match="record must hold singular values or gradients"):
        probed("a", {"step": 0, "norm_W": math.pi})
