"""Real series as tasks: padding that does not matter, splits, gaps, files that are absent."""

import json
import os
from pathlib import Path

import pytest
import torch
from made_problems import HEAD, recordings, write_problem

from roann.lab import fsdd
from roann.lab.__main__ import main
from roann.lab.data import DataError
from roann.lab.models import MODELS, build_model
from roann.lab.models.roa import RoaConfig
from roann.lab.tasks.series import IGNORED, Archive, ArchiveConfig, DigitsConfig, SpokenDigits
from roann.lab.train import evaluate

REAL = Path(os.environ.get("ROANN_DATA") or Path(__file__).parents[3] / "shared" / "data")
EXPERIMENTS = Path(__file__).parents[2] / "experiments"


@pytest.fixture
def folder(tmp_path):
    write_problem(tmp_path)
    return tmp_path


def archive(folder, **options):
    settings = {"problem": "Made", "batch_size": 4, "data_dir": str(folder)} | options
    return Archive(ArchiveConfig(**settings))


def test_sizes_come_from_the_training_file(folder):
    task = archive(folder)
    assert (task.input_size, task.output_size, task.horizon) == (2, 2, 24)
    assert task.epoch_steps == 5  # 22 series in batches of 4
    assert task.trivial["accuracy"] == pytest.approx(2 / 3)


def test_a_series_is_scored_at_its_last_step_alone(folder):
    task = archive(folder)
    (batch,) = task.evaluate_sets(0, 0)["test"]
    assert batch.inputs.shape == (30, 3, 2)  # longest first
    counts = (batch.targets != IGNORED).nonzero()
    assert sorted(counts.tolist()) == [[3, 2], [6, 1], [29, 0]]
    classes = ["down", "up"]
    assert batch.targets[29, 0] == classes.index("up")
    assert batch.targets[3, 2] == batch.targets[6, 1] == classes.index("down")
    perfect = torch.zeros(30, 3, 2)
    perfect[:, 0, 1] = perfect[:, 1:, 0] = 50.0
    assert task.scores(perfect, batch.targets) == {"cross_entropy": 0.0, "accuracy": 1.0}
    perfect[29, 0] = torch.tensor([50.0, 0.0])
    assert task.scores(perfect, batch.targets)["accuracy"] == pytest.approx(2 / 3)


def test_channels_are_scaled_by_the_training_series(folder):
    task = archive(folder)
    steps = torch.cat(task._train.series)
    assert torch.allclose(steps[:, 0].mean(), torch.tensor(0.0), atol=1e-6)
    assert torch.allclose(steps[:, 0].std(correction=0), torch.tensor(1.0), atol=1e-6)
    assert not steps[:, 1].any()  # a constant channel stays at zero


@pytest.mark.parametrize("name", ["roa", "lstm"])
def test_the_scores_of_a_set_do_not_depend_on_the_padding(folder, name):
    """One series at a time, nothing is padded."""
    config = RoaConfig(8) if name == "roa" else MODELS[name].config(8)
    together, alone = archive(folder), archive(folder, eval_batch_size=1)
    model = build_model(name, config, together, seed=0)
    torch.nn.init.normal_(model.head.weight, generator=torch.Generator().manual_seed(0))
    a, b = (evaluate(task, model, 0, 0)["test"] for task in (together, alone))
    assert a == pytest.approx(b, abs=1e-6)


def test_an_epoch_has_every_series_at_most_once_and_others_each_time(folder):
    task, left_out = archive(folder), set()
    for epoch in range(12):
        steps = range(epoch * task.epoch_steps, (epoch + 1) * task.epoch_steps)
        seen = torch.cat([task.chosen(0, step) for step in steps]).tolist()
        assert len(set(seen)) == len(seen) == 20
        left_out |= set(range(22)) - set(seen)
    assert len(left_out) > 10


def test_a_batch_holds_series_of_similar_length(folder):
    task = archive(folder)
    spans = [task._lengths[task.chosen(0, step)] for step in range(task.epoch_steps)]
    assert sum(int(span.max() - span.min()) for span in spans) < 30  # at random, about 60


def test_every_fifth_of_a_class_validates(folder):
    task = archive(folder, split="validation")
    assert list(task.evaluate_sets(0, 0)) == ["validation", "test"]
    (held,) = task.evaluate_sets(0, 0)["validation"]
    assert held.examples == 4
    lengths = sorted(int(t) + 1 for t, _ in (held.targets != IGNORED).nonzero())
    # Series k has length k + 3, and classes alternate: the fifths are k = 8, 9, 18 and 19.
    assert lengths == [11, 12, 21, 22]
    assert len(task._train.labels) == 18


def test_a_missing_value_is_the_last_one_seen(tmp_path):
    write_problem(tmp_path)
    text = HEAD + "?,4,?,8:1,?,?,1:up\n2,2,2,2:1,1,1,1:down\n"
    (tmp_path / "Made_TRAIN.ts").write_text(text)
    task = archive(tmp_path, batch_size=2)
    up = next(x for x, label in zip(*task._train, strict=True) if label == 1)
    mean = (4 + 8 + 4 * 2) / 6
    values = up[:, 0] * task._scale[0] + task._mean[0]
    assert torch.allclose(values, torch.tensor([mean, 4.0, 4.0, 8.0]))


@pytest.mark.parametrize("place", ["", "Made", "ucr/Made"])
def test_where_files_are_found(place, tmp_path, monkeypatch):
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    write_problem(tmp_path / place)
    monkeypatch.setenv("ROANN_DATA", str(tmp_path))
    assert archive(None, data_dir=None).horizon == 24


def test_what_cannot_be_used_is_refused_in_one_sentence(folder, tmp_path):
    with pytest.raises(DataError, match=r"Other_TRAIN.ts is not in .* timeseriesclassification"):
        archive(folder, problem="Other")
    with pytest.raises(DataError, match=r"batch_size: expected at most 22, .*, got 23"):
        archive(folder, batch_size=23)
    with pytest.raises(ValueError, match=r"problem: expected a name .*, got '\.\./x'"):
        archive(folder, problem="../x")
    (folder / "Made_TEST.ts").write_text("@targetLabel true\n@data\n1,2:0.5\n")
    with pytest.raises(DataError, match=r"Made_TEST\.ts has no classes"):
        archive(folder)
    (folder / "Made_TEST.ts").write_text(HEAD + "1,2:up\n")
    with pytest.raises(DataError, match="differ in their numbers of channels"):
        archive(folder)
    (folder / "Made_TEST.ts").write_text("words")
    with pytest.raises(DataError, match="line 1: expected a line with @"):
        archive(folder)


def test_the_views_of_a_recording(monkeypatch):
    monkeypatch.setattr(fsdd, "load_fsdd", lambda folder: recordings())
    found = {}
    for view in ("mel", "frames", "samples"):
        task = SpokenDigits(DigitsConfig(view=view, batch_size=4))
        assert len(task._train.labels) == 20  # those numbered 5 and 6
        (batch,) = task.evaluate_sets(0, 0)["test"]
        assert batch.examples == 50
        assert torch.bincount(batch.targets[batch.targets != IGNORED]).tolist() == [5] * 10
        found[view] = task.input_size, task.horizon
    assert found == {"mel": (40, 19), "frames": (80, 19), "samples": (1, 1500)}


def run(path, folder, capsys, *words):
    out = str(folder / "run")
    assert main(["run", str(path), "--out", out, "-q", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_problem_is_trained_probed_and_reported(folder, capsys):
    """As a user runs it."""
    text = (EXPERIMENTS / "ucr.toml").read_text().replace('"GunPoint"', '"Made"')
    file = folder / "made.toml"
    file.write_text(text)
    words = ["--task.data-dir", str(folder), "--train.length", "40", "--model.hidden-size", "16"]
    words += ["--train.probe-at", "0", "--task.batch-size", "6"]
    result = run(file, folder, capsys, *words)
    assert result["final"]["test"]["accuracy"] == 1
    assert result["final"]["validation"]["accuracy"] == 1
    assert main(["probe", str(folder / "run"), "--json"]) == 0
    probed = json.loads(capsys.readouterr().out)
    assert probed["maps"] == 22  # the longest series of the first set
    assert len(probed["gradient_by_step"]) >= 22
    assert main(["report", str(folder / "run"), "--out", str(folder / "report.html")]) == 0
    assert "UCR and UEA archive, problem = Made" in (folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "least"),
    [
        ("ucr", ["--train.length", "100"], 0.75),
        ("ucr", ["--task.problem", "JapaneseVowels", "--train.length", "30"], 0.9),
        ("digits", [], 0.94),
        ("digits", ["--task.view", "frames", "--train.length", "6"], 0.3),
    ],
)
def test_the_real_sets(name, words, least, tmp_path, capsys, monkeypatch):
    if not (REAL / "ucr").is_dir() or fsdd._inside(REAL) is None:
        pytest.skip("the real series are not here: set ROANN_DATA")
    monkeypatch.setenv("ROANN_DATA", str(REAL))
    result = run(EXPERIMENTS / f"{name}.toml", tmp_path, capsys, *words)
    assert result["final"]["test"]["accuracy"] >= least
