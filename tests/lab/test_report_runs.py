"""From run directories to scores: what is read, what belongs together, what is best and median."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from made_runs import ADDING, ROA, adding_evals, psmnist_evals, write_many, write_run
from test_tasks_mnist import DIRECTORY, real

from roann.lab.data import load_mnist
from roann.lab.report import ReportError, load_run, load_runs, render, sections_of
from roann.lab.report.exhibits import exhibits_of
from roann.lab.tasks import TASKS, TaskRow
from roann.lab.tasks.adding import Adding, AddingConfig
from roann.lab.tasks.mnist import LINEAR_SOFTMAX


def test_load_run_reads_all_five_parts(tmp_path: Path):
    folder = write_run(
        tmp_path / "a", task=ADDING, model=ROA, evals=adding_evals(0.3, 0), train={"seed": 7}
    )
    run = load_run(folder)
    assert (run.name, run.seed, run.status, run.steps, run.seconds) == (
        "a",
        7,
        "finished",
        3000,
        12.5,
    )
    assert run.task == ADDING
    assert run.model == ROA
    assert run.facts["trivial"] == {"mse": 1 / 6}
    assert run.env["torch"] == "2.13.0+cpu"
    assert run.text == (folder / "config.toml").read_text(encoding="utf-8")


def test_an_unfinished_run_and_a_line_cut_short_are_no_error(tmp_path: Path):
    folder = write_run(
        tmp_path / "a", task=ADDING, model=ROA, evals=adding_evals(0.3, 0, 5), status=None
    )
    with open(folder / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"kind":"eval","step":60')
    run = load_run(folder)
    assert (run.status, run.steps, run.seconds) == ("unfinished", 500, 1.0)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("metrics.jsonl", "{}\n", r"metrics\.jsonl: line 1 is not a record with a kind"),
        ("metrics.jsonl", "nonsense\n", r"metrics\.jsonl: a line is damaged: not JSON"),
        ("result.json", "[]", r"result\.json: must hold a JSON object, got a list"),
        ("result.json", "{", r"result\.json: not JSON"),
        ("env.json", "{", r"env\.json: not JSON"),
        ("config.toml", "[task", r"config\.toml: not valid TOML"),
        ("config.toml", "[model]\nname='a'", r"config\.toml: \[task\] has no name"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path: Path, file: str, content: str, words: str):
    folder = write_run(tmp_path / "a", task=ADDING, model=ROA, evals=[])
    (folder / file).write_text(content, encoding="utf-8")
    with pytest.raises(ReportError, match=words):
        load_run(folder)


def test_a_place_without_runs_says_what_to_give(tmp_path: Path):
    with pytest.raises(ReportError, match="no run directory here or below"):
        load_runs([tmp_path])
    with pytest.raises(ReportError, match=r"no config\.toml, so this is not a run directory"):
        load_run(tmp_path)


def test_runs_are_found_at_any_depth_and_counted_once(tmp_path: Path):
    deep = write_run(tmp_path / "x" / "y" / "a", task=ADDING, model=ROA, evals=[])
    write_run(tmp_path / "b", task=ADDING, model=ROA, evals=[])
    assert [run.name for run in load_runs([tmp_path, deep])] == ["b", "a"]


def test_sections_group_by_task_then_by_all_but_the_seed(tmp_path: Path):
    write_many(tmp_path)
    sections = sections_of(load_runs([tmp_path]))
    assert [section.title for section in sections] == [
        "Double moon",
        "Copying memory, L = 400",
        "Adding problem, T = 200",
        "Adding problem, T = 1,000",
        "Permuted sequential MNIST",
    ]
    labels = {section.title: [arm.label for arm in section.arms] for section in sections}
    assert labels["Copying memory, L = 400"] == ["roa-rnn", "lstm", "vanilla-rnn"]
    assert labels["Adding problem, T = 1,000"] == [
        f"roa-rnn, {name}" for name in ("cycle", "haar", "identity", "permutation", "qr")
    ]
    assert labels["Permuted sequential MNIST"] == [f"roa-rnn, N = {n}" for n in (178, 256, 512)]
    assert labels["Adding problem, T = 200"][0] == "roa-rnn, ρ = 0.003333"
    assert labels["Adding problem, T = 200"][-1] == "roa-rnn, ρ = 10"
    assert [run.seed for run in sections[1].arms[0].runs] == [0, 1, 2, 3, 4]


def test_tasks_of_one_title_are_told_apart(tmp_path: Path):
    for split in ("paper", "validation"):
        task = {"name": "psmnist", "split": split}
        write_run(tmp_path / split, task=task, model=ROA, evals=psmnist_evals(0.97, 0))
    titles = [section.title for section in sections_of(load_runs([tmp_path]))]
    assert titles == [f"Permuted sequential MNIST, split {s}" for s in ("paper", "validation")]


def test_a_task_from_outside_brings_its_words_in_its_row(tmp_path: Path, monkeypatch):
    """Title, blurb and ρ of a task are in its row of the table, and nowhere else."""
    row = TaskRow(AddingConfig, Adding, "My task", "Add <these>.", size=("delay", "D"), rho=0.75)
    for k, rho in enumerate((0.25, 0.5, 1.0, 2.0)):  # so many are drawn against ρ
        task, model = {"name": "mine", "delay": 1200}, ROA | {"rho": rho}
        write_run(tmp_path / f"{k}", task=task, model=model, evals=adding_evals(0.3, k))
    write_run(tmp_path / "adding", task=ADDING, model=ROA, evals=adding_evals(0.3, 0))
    runs = load_runs([tmp_path])
    titles = [section.title for section in sections_of(runs)]
    assert titles == ["Adding problem, T = 200", "mine"]
    monkeypatch.setitem(TASKS, "mine", row)
    _, section = sections_of(runs)
    assert section.title == "My task, D = 1,200"
    (against_rho,) = exhibits_of(section)
    lines = [list(line.get_xdata()) for line in against_rho.figure.axes[0].lines]
    assert [0.75, 0.75] in lines
    assert "Add &lt;these&gt;." in render(runs, title="t")


def test_scores_of_an_arm(tmp_path: Path):
    """Four seeds: solved, collapsed after solving, diverged, never learned."""
    table = [
        ([0.125, 0.9, 0.99], "finished"),
        ([0.125, 0.95, 0.13], "finished"),
        ([0.125, 0.5], "diverged"),
        ([0.125, 0.12, 0.14], "finished"),
    ]
    for seed, (recalls, status) in enumerate(table):
        evals = [
            {"step": 50 * k, "recall_accuracy": r, "cross_entropy": 1 - r}
            for k, r in enumerate(recalls, 1)
        ]
        write_run(
            tmp_path / f"s{seed}", task={"name": "copying", "lag": 400}, model=ROA, evals=evals,
            train={"seed": seed}, status=status,
        )  # fmt: skip
    (section,) = sections_of(load_runs([tmp_path]))
    (arm,) = section.arms
    goal = section.goal
    assert (goal.score, goal.better, goal.set) == ("recall_accuracy", "higher", "eval")
    assert [o.best for o in arm.outcomes] == [0.99, 0.95, 0.5, 0.14]
    assert [o.best_step for o in arm.outcomes] == [150, 100, 100, 150]
    assert [o.last for o in arm.outcomes] == [0.99, 0.13, None, 0.14]
    assert arm.best == 0.99
    assert arm.median("best") == pytest.approx((0.95 + 0.5) / 2)
    assert arm.median("last") == pytest.approx((0.13 + 0.14) / 2)
    assert arm.diverged == 1
    assert arm.collapsed == 1
    assert [o.collapses for o in arm.outcomes] == [0, 1, 0, 0]
    assert goal.progress(0.125) == 0
    assert goal.progress(1.0) == 1


def test_a_median_that_does_not_exist_is_not_invented(tmp_path: Path):
    write_run(tmp_path / "a", task=ADDING, model=ROA, evals=adding_evals(0.3, 0))
    write_run(tmp_path / "b", task=ADDING, model=ROA, evals=[], status=None, train={"seed": 1})
    (section,) = sections_of(load_runs([tmp_path]))
    assert section.arms[0].median("last") is None
    assert section.arms[0].best is not None
    shutil.rmtree(tmp_path / "b")
    write_run(
        tmp_path / "b", task=ADDING, model=ROA, evals=adding_evals(0.3, 1, 3), status="diverged",
        train={"seed": 1},
    )  # fmt: skip
    (section,) = sections_of(load_runs([tmp_path]))
    assert section.arms[0].median("last") is None  # half of them diverged


def test_validation_selects_the_epoch_and_test_is_reported(tmp_path: Path):
    evals = []
    for epoch, (validation, test) in enumerate([(0.90, 0.91), (0.97, 0.95), (0.96, 0.98)], 1):
        at = {"step": 600 * epoch, "epoch": float(epoch), "cross_entropy": 0.1}
        evals.append(at | {"set": "validation", "accuracy": validation})
        evals.append(at | {"set": "test", "accuracy": test})
    write_run(tmp_path / "a", task={"name": "psmnist"}, model=ROA, evals=evals)
    (section,) = sections_of(load_runs([tmp_path]))
    (outcome,) = section.arms[0].outcomes
    assert (outcome.best, outcome.last, outcome.selected) == (0.98, 0.98, 0.95)


def test_labels_say_as_little_as_tells_systems_apart(tmp_path: Path):
    settings = [
        ({"layers": 50, "recycle": False}, {"optimizer": "sgd", "lr": 2.0}),
        ({"layers": 50, "recycle": True}, {"optimizer": "sgd", "lr": 2.0}),
        ({"layers": 900, "recycle": False}, {"optimizer": "sgd", "lr": 0.5}),
        ({"layers": 900, "recycle": False}, {"optimizer": "adam", "lr": 0.1}),
    ]
    for k, (model, train) in enumerate(settings):
        model = {"name": "roa-fnn", "filter": "qr", **model}
        evals = [{"step": 1, "mse": 0.5}]
        write_run(
            tmp_path / f"{k}", task={"name": "double-moon"}, model=model, evals=evals, train=train
        )
    (section,) = sections_of(load_runs([tmp_path]))
    assert [arm.label for arm in section.arms] == [
        "roa-fnn, L = 50, recycle, sgd",
        "roa-fnn, L = 50, sgd",
        "roa-fnn, L = 900, adam",
        "roa-fnn, L = 900, sgd",
    ]


def test_a_size_that_differs_is_told_and_numbers_are_in_order(tmp_path: Path):
    for k, (layers, lr) in enumerate(((50, 30.0), (50, 4.0), (900, 10000.0), (900, 3000.0))):
        model = {"name": "roa-fnn", "layers": layers}
        evals = [{"step": 1, "mse": 0.5}]
        write_run(
            tmp_path / f"{k}",
            task={"name": "double-moon"},
            model=model,
            evals=evals,
            train={"lr": lr},
        )
    (section,) = sections_of(load_runs([tmp_path]))
    assert [arm.label for arm in section.arms] == [
        "roa-fnn, L = 50, lr = 4",
        "roa-fnn, L = 50, lr = 30",
        "roa-fnn, L = 900, lr = 3000",
        "roa-fnn, L = 900, lr = 10000",
    ]


@real
@pytest.mark.slow
def test_a_linear_softmax_on_the_pixels_scores_what_is_drawn():
    images, labels, test_images, test_labels = load_mnist(DIRECTORY)
    inputs, test_inputs = (x.reshape(-1, 784) / 255 for x in (images, test_images))
    readout = torch.nn.Linear(784, 10)
    for parameter in readout.parameters():
        torch.nn.init.zeros_(parameter)
    descent = torch.optim.LBFGS(
        readout.parameters(), max_iter=20, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss():
        descent.zero_grad()
        value = torch.nn.functional.cross_entropy(readout(inputs), labels.long())
        value.backward()
        return value

    best = 0.0
    for _ in range(10):
        descent.step(loss)
        right = readout(test_inputs).argmax(dim=1) == test_labels
        best = max(best, right.double().mean().item())
    assert best == pytest.approx(LINEAR_SOFTMAX, abs=0.001)
