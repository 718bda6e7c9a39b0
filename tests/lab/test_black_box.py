"""What is kept around a loss spike, and the best checkpoint."""

import json
from itertools import pairwise

import pytest
import tiny_runs
import torch
from test_train import Context, Line, Slope
from torch import Tensor

from roann.lab.config import Train
from roann.lab.run import BEST, RESULT
from roann.lab.tasks.base import Batch
from roann.lab.train import DivergedError, State, make_optimizer, train


class Jolt(Line):
    """y = 2 x, but for some steps whose answers are far away."""

    def __init__(self, jolts: dict[int, float]) -> None:
        super().__init__()
        self.jolts = jolts

    def global_batch(self, seed: int, step: int) -> Batch:
        batch = super().global_batch(seed, step)
        return Batch(batch.inputs, batch.targets + self.jolts.get(step, 0.0))


def ran(folder, jolts: dict[int, float], size: int | None, length: int) -> tuple[Context, Slope]:
    """Trained with one weight's value as what a probe sees."""
    folder.mkdir()
    model, context = Slope(), Context(folder)
    plan = Train(optimizer="sgd", lr=1e-3, length=length, black_box=size, log_every=1)

    def probe() -> dict[str, object]:
        return {"norm_W": model.a.item(), "sigma": [3.0, model.b.item(), -4.0], "maps": 7}

    train(Jolt(jolts), model, make_optimizer(model, plan), plan, State(), context, probe)
    return context, model


def test_the_steps_around_a_leap_are_probed_with_their_own_weights(tmp_path):
    context, model = ran(tmp_path / "box", {20: 100.0}, 6, 40)
    plain, other = ran(tmp_path / "none", {20: 100.0}, None, 40)
    leaps = context.lines("leap")
    assert [line["step"] for line in leaps] == [17, 18, 19, 20, 21, 22]
    assert plain.lines("leap") == []
    # The loss and gradient of a step are recorded with the update that follows from it.
    updates = {line["step"] - 1: line for line in plain.lines("train")}
    for line in leaps:
        assert line["loss"] == updates[line["step"]]["loss"]
        assert line["grad_norm"] == updates[line["step"]]["grad_norm"]
        assert line["sigma_max"] == 3.0
        assert line["sigma_min"] == -4.0
    seen = [line["norm_W"] for line in leaps]
    _, at_20 = ran(tmp_path / "short", {}, None, 20)
    assert seen[3] == at_20.a.item()
    assert len(set(seen)) == 6
    # Plain descent moves a by the learning rate times its gradient, and b by a tenth of that.
    for line, after in pairwise(leaps):
        a = after["norm_W"] - line["norm_W"]
        b = 0.1 * ((1e-3 * line["grad_norm"]) ** 2 - a**2) ** 0.5
        assert line["moved"] == pytest.approx(((a**2 + b**2) / 2) ** 0.5, rel=1e-3)
    assert "moved" not in leaps[-1]  # the box was opened before that update
    # Looking changes nothing.
    assert torch.equal(model.a, other.a)
    assert torch.equal(model.b, other.b)
    assert len(context.lines("train")) == 40


def test_a_leap_counts_again_only_after_the_loss_has_come_back(tmp_path):
    """One leap that lasts ten steps is one, and one much later is another."""
    long = dict.fromkeys(range(20, 30), 100.0) | {50: 100.0}
    context, _ = ran(tmp_path / "box", long, 6, 70)
    assert [line["step"] for line in context.lines("leap")] == [*range(17, 23), *range(47, 53)]


def test_all_that_is_kept_is_from_before_where_numbers_end(tmp_path):
    class Breaking(Slope):
        calls = 0

        def forward(self, inputs: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(inputs) * (torch.nan if self.calls == 10 else 1.0)

    model, context = Breaking(), Context(tmp_path)
    plan = Train(optimizer="sgd", lr=1e-3, length=30, black_box=4)
    with pytest.raises(DivergedError, match="update 10 "):
        train(
            Line(), model, make_optimizer(model, plan), plan, State(), context, lambda: {"maps": 1}
        )
    leaps = context.lines("leap")
    assert [line["step"] for line in leaps] == [5, 6, 7, 8]
    assert leaps[0].keys() == {"kind", "step", "epoch", "seconds", "loss", "grad_norm", "moved"}


@pytest.mark.parametrize("task", ["double-moon", "copying"])
def test_the_best_checkpoint_is_that_of_the_best_evaluation(tmp_path, task):
    folder = tiny_runs.ran(tmp_path / "run", task, lr=0.3, length=40, eval_every=2)
    result = json.loads((folder / RESULT).read_text())
    best = next(iter(result["best"].values()))
    step, tensors = tiny_runs.world(folder, BEST)
    assert 0 < step == best["step"] <= 40
    shorter = tiny_runs.ran(tmp_path / "upto", task, lr=0.3, length=step, eval_every=2)
    _, then = tiny_runs.world(shorter)
    assert all(torch.equal(tensors[name], value) for name, value in then.items())
