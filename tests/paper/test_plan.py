"""Every figure's runs are valid, named once, and at full scale the paper's."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from paper import plan
from paper.__main__ import main
from roann.lab.config import RUN_ID, ConfigError
from roann.lab.models import MODELS, build_model
from roann.lab.tasks import TASKS

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
# What permuted sequential MNIST asks of a model; the task itself needs the data.
DIGITS = SimpleNamespace(input_size=1, output_size=10, horizon=784, readout="last")


@pytest.mark.parametrize("scale", ["quick", "full"])
@pytest.mark.parametrize("figure", plan.FIGURES)
def test_every_run_is_valid_and_has_a_name_of_its_own(figure, scale):
    cells = plan.experiments(figure, scale, EXPERIMENTS)
    assert cells
    assert all(RUN_ID.fullmatch(name) for name in cells)
    digests = {cell.digest() for cell in cells.values()}
    assert len(digests) == len(cells)  # no run is done twice


@pytest.mark.parametrize("scale", ["quick", "full"])
@pytest.mark.parametrize("figure", plan.FIGURES)
def test_no_rho_is_larger_than_its_horizon(figure, scale):
    """α = ρ / horizon is at most 1, or the run cannot be made."""
    for name, cell in plan.experiments(figure, scale, EXPERIMENTS).items():
        if cell.model_name == "roa-rnn" and cell.task_name != "psmnist":
            task = TASKS[cell.task_name].build(cell.task)
            assert cell.model.rho <= task.horizon, name


def test_every_experiment_file_is_used():
    used = {entry["file"] for figure in plan.FIGURES for entry in plan.entries(figure)}
    starts = {"ucr", "digits"}  # no part of the reproduction: for users' own data
    assert {path.stem for path in EXPERIMENTS.glob("*.toml")} - starts <= used


@pytest.mark.parametrize("figure", plan.FIGURES)
def test_quick_is_never_more_than_full(figure):
    full = plan.experiments(figure, "full", EXPERIMENTS)
    for name, cell in plan.experiments(figure, "quick", EXPERIMENTS).items():
        assert cell.train.seed == 0
        assert cell.train.length <= full[name].train.length
        for size in ("lag", "length"):
            assert getattr(cell.task, size, 0) <= getattr(full[name].task, size, 0)


def test_all_is_everything_and_quickly_what_is_in_the_paper(capsys):
    def listed(*words):
        assert main(["run", *words, "--dry-run"]) == 0
        return list(dict.fromkeys(x.split("/")[0] for x in capsys.readouterr().out.split()))

    assert listed("--scale", "full") == list(plan.FIGURES)
    assert listed() == ["fig1", "fig3", "fig2", "table1", "fig6", "rho"]
    assert listed("all", "league") == ["fig1", "fig3", "fig2", "table1", "fig6", "rho", "league"]
    assert listed("fig2", "lr") == ["lr", "fig2"]


@pytest.mark.parametrize("figure", [f for f, v in plan.FIGURES.items() if not v.get("own")])
def test_less_than_the_paper_has_a_reason(figure):
    for entry in plan.entries(figure):
        short = entry["change"].get("train.length", 10**9) < entry.get("paper_length", 0)
        assert ("cut" in entry) == (entry["seeds"] < plan.SEEDS or short), entry["name"]


def full(figure):
    return plan.experiments(figure, "full", EXPERIMENTS)


@pytest.mark.parametrize("lag", [400, 2000, 10000])
def test_copying_is_the_papers(lag):
    cell = full("fig2")[f"copying-{lag}-s0"]
    assert (cell.task.lag, cell.task.symbols, cell.task.batch_size) == (lag, 10, 128)
    assert (cell.model.hidden_size, cell.model.rho, cell.model.filter) == (190, 3.0, "qr")
    assert (cell.train.optimizer, cell.train.lr, cell.train.warmup) == ("adam", 0.5, 0)
    assert cell.train.clip_norm is None


@pytest.mark.parametrize(("length", "seeds"), [(200, 5), (1000, 5), (5000, 3)])
def test_adding_is_the_papers(length, seeds):
    cells = {n: c for n, c in full("fig3").items() if n.startswith(f"adding-{length}-s")}
    assert sorted(c.train.seed for c in cells.values()) == list(range(seeds))
    cell = cells[f"adding-{length}-s0"]
    assert (cell.task.length, cell.task.batch_size) == (length, 50)
    assert math.isclose(cell.model.rho, 1 / 200)
    assert (cell.model.hidden_size, cell.train.lr, cell.train.eval_every) == (128, 0.5, 100)


@pytest.mark.parametrize("size", [178, 256, 512])
def test_psmnist_is_the_papers(size):
    cell = full("table1")[f"psmnist-{size}-s0"]
    assert (cell.model.hidden_size, cell.model.rho, cell.task.split) == (size, 0.5, "paper")
    assert (cell.train.unit, cell.train.length, cell.train.lr) == ("epoch", 20, 0.1)
    assert cell.train.schedule == ((10, 0.1),)


def test_the_ablation_changes_the_filter_and_the_identitys_rate_alone():
    cells = full("fig6")
    for task, rate in (("copying", 0.5), ("adding", 0.5), ("psmnist", 0.1)):
        roa, eye = (cells[f"ablation-{task}-{O}-s1"].tables() for O in ("qr", "identity"))
        assert (roa["model"].pop("filter"), eye["model"].pop("filter")) == ("qr", "identity")
        assert roa["train"].pop("lr") == rate
        assert math.isclose(eye["train"].pop("lr"), rate / 10)
        assert roa == eye
    assert cells["ablation-adding-qr-s0"].model.nonlinearity == "tanh"


def test_the_rho_grid_is_the_papers():
    grid = sorted({cell.model.rho for cell in full("rho").values()})
    paper = [1 / 300, 1 / 200, 1 / 100, 1 / 50, 1 / 10, 1 / 2, 1, 2, 3, 5, 10, 50]
    assert grid == pytest.approx(paper)


def test_only_selects_by_part_of_a_name_or_pattern():
    chosen = plan.experiments("fig2", "full", EXPERIMENTS, ["copying-400-s", "2000-rnn-s1"])
    assert list(chosen) == [f"copying-400-s{k}" for k in range(5)] + ["copying-2000-rnn-s1"]
    assert list(plan.experiments("fig2", "full", EXPERIMENTS, ["copying-?00-s3"])) == [
        "copying-400-s3"
    ]


def test_a_missing_experiment_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"double-moon-shallow\.toml: cannot be read: No such"):
        plan.experiments("fig1", "full", tmp_path)


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        ("league-adding-200", 16_897),
        ("league-adding-1000", 16_897),
        ("league-copying-100", 18_953),
        ("league-psmnist-784", 17_930),
    ],
)
def test_the_league_is_of_equals(file, wanted):
    """Wanted: what a roaRNN of 128 neurons trains."""
    task = file.split("-")[1]
    demand = DIGITS if task == "psmnist" else TASKS[task].build(TASKS[task].config())
    cells = plan.experiments("league", "full", EXPERIMENTS, [file])
    every = [name for name, row in MODELS.items() if row.kind == "sequence"]
    names = list(plan.PLAN["systems"][task])
    assert task == "psmnist" or names == every
    rates = {name: cells[f"{file}-{name}-s0"].train.lr for name in names}
    assert rates["eye-rnn"] == pytest.approx(rates["roa-rnn"] / 10)  # as the paper has it
    for name in names:
        cell = cells[f"{file}-{name}-s0"]
        assert cell.model_name == name
        timed = cell.train.max_seconds is not None
        assert timed == (task != "psmnist")
        clock = ("wall", 2) if timed else ("processor", 1)
        assert (cell.train.clock, cell.train.threads) == clock
        count = build_model(name, cell.model, demand, 0).effective_parameters()
        if name != "leaky-esn":  # it trains its readout alone
            assert abs(count / wanted - 1) < 0.1, (name, count)


def test_wall_time_ends_the_timed_figure_alone():
    for figure in plan.FIGURES:
        ends = {c.train.max_seconds for c in full(figure).values() if c.train.clock == "wall"}
        assert (ends - {None} != set()) == plan.FIGURES[figure].get("timed", False), figure
