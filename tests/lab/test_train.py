"""The loop: it adds nothing to plain PyTorch, ends when it should, and never steps into a NaN."""

import json
import math
import time
from collections.abc import Iterable
from typing import Any

import pytest
import tiny_runs
import torch
from torch import Tensor, nn

from roann.lab import records
from roann.lab.config import ConfigError, Train
from roann.lab.models.base import Model
from roann.lab.probe import probe
from roann.lab.progress import Progress
from roann.lab.records import Records
from roann.lab.run import Stop, build, execute
from roann.lab.tasks.base import Batch, Task
from roann.lab.train import (
    DivergedError,
    State,
    evaluate,
    learning_rate,
    make_optimizer,
    train,
    unit_steps,
)


class Context:
    """A context that writes records and does nothing else."""

    def __init__(self, folder) -> None:
        self.records = Records(folder / "metrics.jsonl")
        self.path = self.records.path
        self.progress = Progress("test", 0, "mse", 1.0)

    def pause(self, state: State) -> None:
        return

    def keep(self, state: State) -> None:
        self.kept = state.step

    def poll(self) -> None:
        return

    def lines(self, kind: str) -> list[dict[str, Any]]:
        self.records.flush()
        return [line for line in records.read(self.path) if line["kind"] == kind]


class Line(Task):
    """y = 2 x, ten points in batches of four, four and two."""

    primary, better = "mse", "lower"

    def __init__(self) -> None:
        self.name, self.readout, self.horizon, self.epoch_steps = "line", "none", None, 3
        self.input_size = self.output_size = 1
        self.batch_size, self.trivial = 4, {"mse": 1.0}
        x = torch.linspace(-1, 1, 10).unsqueeze(-1)
        self.batches = [Batch(part, 2 * part) for part in x.split(4)]

    def global_batch(self, seed: int, step: int) -> Batch:
        return self.batches[step % 3]

    def evaluate_sets(self, seed: int, step: int) -> dict[str, Iterable[Batch]]:
        return {"all": self.batches, "first": self.batches[:1]}

    def loss(self, prediction: Tensor, targets: Tensor) -> Tensor:
        return (prediction - targets).square().mean()

    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        return {"mse": float(self.loss(prediction, targets))}


class Slope(Model):
    """y = a x + b, with a gradient and a penalty that tests may bend."""

    def __init__(self, bend: float = 1.0, pull: float | None = None) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.ones(1))
        self.bend, self.pull = bend, pull

    def forward(self, inputs: Tensor) -> Tensor:
        # b + bend (b − b): bend moves the gradient and never the value.
        return self.a * inputs + self.b + self.bend * (self.b - self.b.detach())

    def penalty(self) -> Tensor | None:
        return None if self.pull is None else self.pull * self.a.sum()

    def learning_rate_scales(self) -> dict[str, float]:
        return {"b": 0.1}


def trained(folder, model: Model, **plan: Any) -> tuple[Context, State]:
    settings = Train(**{"lr": 0.1, "length": 9, "eval_every": 3, "log_every": 1, **plan})
    context, state = Context(folder), State()
    optimizer = make_optimizer(model, settings)
    train(Line(), model, optimizer, settings, state, context, lambda: {"norm_W": 1.0})
    return context, state


OPTIMIZERS = {  # by name: torch's class, its arguments, and ours
    "adam": (torch.optim.Adam, {}, {}),
    "sgd": (torch.optim.SGD, {}, {}),
    "nag": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}, {"momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {"alpha": 0.8}, {"alpha": 0.8}),
    "adagrad": (torch.optim.Adagrad, {"weight_decay": 0.1}, {"weight_decay": 0.1}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("task", ["double-moon", "copying", "adding"])
def test_the_loop_is_plain_pytorch_bit_by_bit(tmp_path, task, name):
    theirs, arguments, ours = OPTIMIZERS[name]
    experiment = tiny_runs.experiment(task, optimizer=name, length=8, **ours)
    folder = tiny_runs.ran(tmp_path / "run", task, optimizer=name, length=8, **ours)
    data, model = build(experiment)
    optimizer = theirs(model.parameters(), lr=0.01, **arguments)
    losses = []
    for step in range(8):
        batch = data.batch(0, step)
        loss = data.loss(model(batch.inputs), batch.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    _, tensors = tiny_runs.world(folder)
    for key, value in [*model.named_parameters(), *model.named_buffers()]:
        assert torch.equal(tensors[f"model.{key}"], value)
    logged = [line for line in tiny_runs.lines(folder) if line["kind"] == "train"]
    assert [line["step"] for line in logged] == [2, 4, 6, 8]
    assert [line["loss"] for line in logged] == losses[1::2]


def test_the_learning_rate_warms_up_and_then_keeps_to_its_schedule():
    plan = Train(lr=0.5, warmup=4, schedule=((2, 0.1), (1, 0.5)), unit="epoch")
    rates = [learning_rate(plan, 10, step) for step in (0, 1, 3, 4, 9, 10, 19, 20, 1000)]
    assert rates == [0.125, 0.25, 0.5, 0.5, 0.5, 0.25, 0.25, 0.05, 0.05]
    assert learning_rate(Train(lr=0.5), 1, 0) == 0.5


def test_the_learning_rate_falls_to_zero_along_a_cosine():
    plan = Train(lr=0.5, length=2, decay="cosine", unit="epoch")
    rates = [learning_rate(plan, 6, step) for step in (0, 4, 6, 8, 12)]
    assert rates == pytest.approx([0.5, 0.375, 0.25, 0.125, 0.0])  # (1 + cos 60°) / 2 = 3/4
    both = Train(lr=0.5, length=2, decay="cosine", schedule=((1, 0.1),), warmup=2, unit="epoch")
    assert learning_rate(both, 6, 0) == pytest.approx(0.25)
    assert learning_rate(both, 6, 8) == pytest.approx(0.0125)


def test_the_rates_reach_the_optimiser_by_group(tmp_path):
    model = Slope()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    context, _ = trained(tmp_path, model, optimizer="sgd", length=1, warmup=2)
    gradient = {name: p.grad for name, p in model.named_parameters()}
    torch.testing.assert_close(model.a.detach(), start["a"] - 0.05 * gradient["a"])
    torch.testing.assert_close(model.b.detach(), start["b"] - 0.005 * gradient["b"])
    assert context.lines("train")[0]["lr"] == 0.05


def test_records_say_when_and_what(tmp_path):
    context, _ = trained(tmp_path, Slope(), length=7, probe_at=(0, 2, 7))
    assert [line["step"] for line in context.lines("train")] == [1, 2, 3, 4, 5, 6, 7]
    assert [line["epoch"] for line in context.lines("train")][2:5] == [1.0, 4 / 3, 5 / 3]
    assert [line["step"] for line in context.lines("probe")] == [0, 2, 7]
    evals = context.lines("eval")
    assert [(e["step"], e["set"]) for e in evals] == [
        (step, name) for step in (3, 6, 7) for name in ("all", "first")
    ]
    assert all(line["seconds"] >= 0 and "mse" in line for line in evals)
    first = context.lines("train")[0]
    assert first.keys() >= {"loss", "mse", "lr", "grad_norm"}
    x, y = Line().batches[0].inputs, Line().batches[0].targets
    error = 1 - y
    assert first["loss"] == pytest.approx(error.square().mean().item())
    # b moves the value once and the bend once more: its gradient is doubled.
    by_hand = math.hypot((2 * error * x).mean().item(), (4 * error).mean().item())
    assert first["grad_norm"] == pytest.approx(by_hand)


def test_epochs_are_a_unit(tmp_path):
    context, state = trained(tmp_path, Slope(), unit="epoch", length=4, eval_every=2, probe_at=(1,))
    assert state.step == 12
    assert [line["step"] for line in context.lines("eval")] == [6, 6, 12, 12]
    assert [line["step"] for line in context.lines("probe")] == [3]


def test_a_task_without_epochs_cannot_be_trained_by_them():
    task, _ = build(tiny_runs.experiment("adding"))
    with pytest.raises(ConfigError, match='use unit = "iteration"'):
        unit_steps(Train(unit="epoch"), task)


def test_a_set_is_scored_by_its_examples_not_by_its_batches():
    model = Slope()
    x = torch.cat([b.inputs for b in Line().batches])
    whole = (model.b.detach() - 2 * x).square().mean().item()
    assert evaluate(Line(), model, 0, 0)["all"]["mse"] == pytest.approx(whole, rel=1e-6)
    assert model.training


def test_the_penalty_pulls_but_is_not_the_loss(tmp_path):
    free, pulled = Slope(), Slope(pull=3.0)
    logged = []
    for name, model in (("free", free), ("pulled", pulled)):
        (tmp_path / name).mkdir()
        logged.append(trained(tmp_path / name, model, length=1)[0].lines("train")[0])
    assert logged[0]["loss"] == logged[1]["loss"]
    torch.testing.assert_close(pulled.a.grad, free.a.grad + 3.0)


def test_clipping_keeps_the_direction(tmp_path):
    (tmp_path / "free").mkdir()
    free, clipped = Slope(), Slope()
    norm = trained(tmp_path / "free", free, length=1)[0].lines("train")[0]["grad_norm"]
    line = trained(tmp_path, clipped, length=1, clip_norm=norm / 4)[0].lines("train")[0]
    assert line["grad_norm"] == norm
    torch.testing.assert_close(clipped.a.grad, free.a.grad / 4)
    torch.testing.assert_close(clipped.b.grad, free.b.grad / 4)


def test_clipping_cuts_every_entry(tmp_path):
    (tmp_path / "free").mkdir()
    free, clipped = Slope(), Slope()
    trained(tmp_path / "free", free, length=1)
    most = float(free.a.grad.abs().max()) / 2
    trained(tmp_path, clipped, length=1, clip_value=most)
    torch.testing.assert_close(clipped.a.grad, free.a.grad.clamp(-most, most))
    torch.testing.assert_close(clipped.b.grad, free.b.grad.clamp(-most, most))


def test_the_stop_rule_wants_good_scores_in_a_row(tmp_path):
    scores = [line["mse"] for line in _evals(tmp_path, {})]
    assert scores == sorted(scores, reverse=True)  # it learns, so a threshold is passed once
    between = (scores[3] + scores[2]) / 2
    stopped = _evals(tmp_path, {"stop_score": between, "stop_evals": 3})
    assert [line["step"] for line in stopped] == [1, 2, 3, 4, 5, 6]
    assert [line["mse"] for line in stopped] == scores[:6]


def _evals(folder, plan: dict[str, Any]) -> list[dict[str, Any]]:
    context, _ = trained(folder, Slope(), optimizer="sgd", length=12, eval_every=1, **plan)
    return [line for line in context.lines("eval") if line["set"] == "all"]


def test_time_is_up_means_a_last_evaluation(tmp_path):
    context, state = trained(tmp_path, Slope(), length=10**9, max_seconds=1e-9, eval_every=10**6)
    assert state.step == 1
    assert [line["step"] for line in context.lines("eval")] == [1, 1]


def test_the_processor_s_clock_does_not_count_waiting(tmp_path):
    class Slow(Slope):
        def forward(self, inputs: Tensor) -> Tensor:
            time.sleep(0.01)
            return super().forward(inputs)

    took = {}
    for clock in ("wall", "processor"):
        (tmp_path / clock).mkdir()
        _, state = trained(tmp_path / clock, Slow(), length=20, clock=clock)
        took[clock] = state.seconds
    assert took["wall"] >= 20 * 0.01
    assert took["processor"] <= took["wall"] - 20 * 0.005


@pytest.mark.parametrize("bend", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_not_stepped_into(tmp_path, bend):
    model = Slope(bend)
    start = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(DivergedError, match="the loss of update 1 is nan"):
        trained(tmp_path, model)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), start, strict=True))


def test_a_gradient_that_is_not_finite_is_not_stepped_into_and_is_named(tmp_path):
    class Kinked(Slope):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs * self.a + (self.b - self.b.detach()).sqrt()  # slope ∞ at 0, value 0

    model = Kinked()
    start = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(DivergedError, match="the gradient of b in update 1 is not finite"):
        trained(tmp_path, model)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), start, strict=True))


def test_a_huge_but_finite_gradient_is_not_called_divergence(tmp_path):
    """1e25 is a number in float32, its square is not."""
    context, state = trained(tmp_path, Slope(bend=1e25), length=1)
    assert state.step == 1
    norm = context.lines("train")[0]["grad_norm"]
    assert 1e24 < norm < 1e26


def test_a_result_holds_what_a_reader_asks(tmp_path):
    folder = tiny_runs.ran(tmp_path / "run", "double-moon", length=10, probe_at=(0, 10))
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["steps"]) == ("finished", 10)
    assert result["cause"] == "all steps done"
    _, model = build(tiny_runs.experiment("double-moon"))
    assert result["parameters"] == sum(p.numel() for p in model.parameters())
    assert result["trivial"] == {"mse": 1.0, "accuracy": 0.5}
    last = [line for line in tiny_runs.lines(folder) if line["kind"] == "eval"][-1]
    assert result["final"]["eval"]["mse"] == last["mse"]
    environment = json.loads((folder / "env.json").read_text())
    assert environment["flush_denormal"] is True
    assert environment["torch"] == torch.__version__
    probes = [line for line in tiny_runs.lines(folder) if line["kind"] == "probe"]
    assert [line["step"] for line in probes] == [0, 10]
    for line in probes:
        assert line["maps"] == 5
        assert len(line["sigma"]) == 1
        assert line["sigma"][0] <= line["bound"]["upper"]
        assert len(line["gradient_by_step"]) == 6
        assert len(line["surface"]["values"]) == 43


@pytest.mark.parametrize("model", ["roa-rnn", "lstm"])
def test_a_probe_agrees_with_autograd(tmp_path, model):
    """The singular values of ∂x_T/∂x_0, computed once more in the plainest way."""
    settings = {"name": model, "hidden_size": 3}
    folder = tiny_runs.ran(tmp_path / "run", "adding", settings, length=1, probe_at=(0,))
    (line,) = [line for line in tiny_runs.lines(folder) if line["kind"] == "probe"]
    task, built = build(tiny_runs.experiment("adding", settings))
    system = built.system.double()
    u = next(iter(task.evaluate_sets(0, 0)["eval"])).inputs[:, 0].double()

    def last(x: Tensor) -> Tensor:
        for u_k in u:
            x = system.step(x, u_k)
        return x

    J = torch.autograd.functional.jacobian(last, torch.zeros(system.state_size).double())
    expected = torch.linalg.svdvals(J).log()
    # The plain way is right to eps of the largest value only: leave out what that could spoil.
    seen = expected > expected[0] - math.log(1e8)
    assert seen.sum() >= 3
    found = torch.tensor(line["sigma"]).double()
    torch.testing.assert_close(found[seen], expected[seen], rtol=1e-5, atol=1e-6)


def test_of_a_huge_state_only_the_extreme_singular_values_are_measured(monkeypatch):
    task, model = build(tiny_runs.experiment("adding", {"name": "lstm", "hidden_size": 3}))
    whole = probe(task, model, 0)
    monkeypatch.setattr("roann.lab.probe.LARGEST", 2)
    part = probe(task, model, 0)
    extremes = [part["sigma_max"], part["sigma_min"]]
    assert extremes == pytest.approx([whole["sigma"][0], whole["sigma"][-1]], rel=1e-5)
    assert "sigma" not in part
    assert part["gradient_by_step"] == whole["gradient_by_step"]


def test_running_a_finished_run_again_changes_nothing(tmp_path, caplog):
    folder = tiny_runs.ran(tmp_path / "run", "adding", length=4)
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"}
    with caplog.at_level("INFO", "roann"):
        execute(folder, Stop())
    assert "nothing to do, the run has finished" in caplog.text
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p.name != ".lock"} == before
