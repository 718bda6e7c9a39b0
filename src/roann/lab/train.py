"""The training loop, for any task and model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from roann.lab.black_box import BlackBox
from roann.lab.config import ConfigError, Train
from roann.lab.distributed import ALONE, Ranks
from roann.lab.models.base import Model
from roann.lab.optimizers import OPTIMIZERS
from roann.lab.progress import Progress
from roann.lab.records import Sink, is_number
from roann.lab.tasks.base import Task, mean_scores


class DivergedError(Exception):
    """A loss, gradient or weight that is not finite: a result of a run, not a crash."""


@dataclass
class State:
    """What a checkpoint holds in addition to tensors."""

    step: int = 0  # updates applied.
    measured: int = -1  # the last step whose evaluations and probes are in the records.
    seconds: float = 0.0  # training time so far, over all resumes.
    good_evals: int = 0  # how many evaluations in a row met the stop rule.
    best: float | None = None  # the best primary score of the first evaluation set so far.

    def check(self) -> None:
        """Raise a ValueError unless the values are of a run, as those of a file may not be."""
        for name, low in (("step", 0), ("measured", -1), ("good_evals", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise ValueError(f"its {name} must be a whole number from {low}, not {value!r:.60}")
        if not is_number(self.seconds) or self.seconds < 0:
            raise ValueError(f"its seconds must be a number from 0, not {self.seconds!r:.60}")
        if self.best is not None and not is_number(self.best):
            raise ValueError(f"its best must be a number or null, not {self.best!r:.60}")


class Context(Protocol):
    """What the training loop calls; `roann.lab.run_context.RunContext` is the one of a run."""

    records: Sink
    progress: Progress

    def pause(self, state: State) -> None:
        """Between two updates: commit a checkpoint if one is due; raise if the run must stop."""

    def keep(self, state: State) -> None:
        """After an evaluation better than all before: commit a checkpoint apart from the others."""

    def poll(self) -> None:
        """Within an evaluation: raise if the run must stop."""


def train(
    task: Task,
    model: Model,
    optimizer: torch.optim.Optimizer,
    plan: Train,
    state: State,
    context: Context,
    probe: Callable[[], dict[str, Any]],
    ranks: Ranks = ALONE,
) -> None:
    """Train from `state` to the end of the plan; `state` is right whenever an exception leaves."""
    unit = unit_steps(plan, task)
    last = plan.length * unit
    wall = plan.clock == "wall"
    now = time.perf_counter if wall else lambda: time.process_time() / plan.threads
    start = now() - state.seconds

    def write_leap(step: int, seen: dict[str, Any]) -> None:
        context.records.write("leap", step, epoch(task, step), state.seconds, seen)

    objective = ranks.objective(task, model)
    box = BlackBox(model, plan.black_box or 0, probe, write_leap)
    while True:
        over = state.step >= last
        if plan.max_seconds is not None:
            over |= ranks.share(state.seconds >= plan.max_seconds)  # by the clock of rank 0
        if state.measured < state.step:
            _measure(task, model, plan, state, context, probe, unit, over, ranks)
        state.seconds = now() - start
        if over or (plan.stop_score is not None and state.good_evals >= plan.stop_evals):
            return
        context.pause(state)

        rate = learning_rate(plan, unit, state.step)
        for group in optimizer.param_groups:
            group["lr"] = rate * group["scale"]
        batch = ranks.batch(task, plan.seed, state.step)
        prediction, loss, total = objective(batch.inputs, batch.targets)
        optimizer.zero_grad()
        torch.autograd.backward(total)
        try:
            loss_value, norm = _finite(ranks.mean(loss), model, state.step + 1)
        except DivergedError:
            box.open()
            raise
        box.note(state.step, loss_value, norm)
        if plan.clip_norm is not None and norm > plan.clip_norm:
            for gradient in _gradients(model):
                gradient.mul_(plan.clip_norm / norm)
        if plan.clip_value is not None:
            nn.utils.clip_grad_value_(model.parameters(), plan.clip_value)
        optimizer.step()
        state.step += 1
        state.seconds = now() - start

        if state.step % plan.log_every == 0:
            scores = ranks.scores(task.scores(prediction.detach(), batch.targets))
            values = {"loss": loss_value, "lr": rate, "grad_norm": norm} | scores
            context.records.write(
                "train", state.step, epoch(task, state.step), state.seconds, values
            )
        context.progress.step(state.step, loss_value)


def _measure(
    task: Task,
    model: Model,
    plan: Train,
    state: State,
    context: Context,
    probe: Callable[[], dict[str, Any]],
    unit: int,
    over: bool,
    ranks: Ranks,
) -> None:
    """Evaluate and probe where due. Records come last: an interrupted measurement leaves none."""
    step = state.step
    probed = probe() if step in [at * unit for at in plan.probe_at] else None
    sets: dict[str, dict[str, float]] = {}
    best = False
    if step and (over or step % (plan.eval_every * unit) == 0):
        sets = evaluate(task, model, plan.seed, step, context.poll, ranks)
        sign = 1 if task.better == "lower" else -1
        first = next(iter(sets.values()))[task.primary]
        good = plan.stop_score is not None and sign * first <= sign * plan.stop_score
        state.good_evals = state.good_evals + 1 if good else 0
        best = math.isfinite(first) and (state.best is None or sign * first < sign * state.best)
        state.best = first if best else state.best
        context.progress.scores(sets)
    for name, scores in sets.items():
        context.records.write(
            "eval", step, epoch(task, step), state.seconds, {"set": name} | scores
        )
    if probed is not None:
        context.records.write("probe", step, epoch(task, step), state.seconds, probed)
    state.measured = step
    if best:
        context.keep(state)


@torch.no_grad()
def evaluate(
    task: Task,
    model: Model,
    seed: int,
    step: int,
    poll: Callable[[], None] = lambda: None,
    ranks: Ranks = ALONE,
) -> dict[str, dict[str, float]]:
    """The scores of every evaluation set after `step` updates; ranks take turns at the batches."""
    model.eval()
    sets = {}
    for name, batches in task.evaluate_sets(seed, step).items():
        parts = {}
        with ranks.together():
            for place, batch in enumerate(batches):
                poll()
                if place % ranks.world == ranks.rank:
                    scores = task.scores(model(batch.inputs), batch.targets)
                    parts[place] = scores, batch.examples
        sets[name] = mean_scores(ranks.merge(parts))
    model.train()
    return sets


def make_optimizer(model: Model, plan: Train) -> torch.optim.Optimizer:
    """The optimiser of the plan; parameters with a rate of their own form a group with a scale."""
    scales = model.learning_rate_scales()
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            groups.setdefault(scales.get(name, 1.0), []).append(parameter)
    params = [{"params": p, "scale": s} for s, p in groups.items()]
    row, decay = OPTIMIZERS[plan.optimizer], plan.weight_decay or 0.0
    return row.make(params, lr=plan.lr, weight_decay=decay, **row.options(plan))


def learning_rate(plan: Train, unit: int, step: int) -> float:
    """The learning rate of update `step`: warm-up, the schedule's last factor in force, decay."""
    factor = 1.0
    for at, value in sorted(plan.schedule):
        if step >= at * unit:
            factor = value
    if plan.decay == "cosine":  # half a wave, from 1 to 0 at the end
        factor *= (1 + math.cos(math.pi * step / (plan.length * unit))) / 2
    return plan.lr * factor * min(1.0, (step + 1) / max(plan.warmup, 1))


def unit_steps(plan: Train, task: Task) -> int:
    """How many updates a unit of the plan has."""
    if plan.unit == "iteration":
        return 1
    if task.epoch_steps is None:
        raise ConfigError(
            f"[train] unit: the task {task.name!r} draws data without end and has no epochs; "
            'use unit = "iteration".'
        )
    return task.epoch_steps


def epoch(task: Task, step: int) -> float | None:
    """Passes over the data after `step` updates, or None where data have no end."""
    return None if task.epoch_steps is None else step / task.epoch_steps


def _gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def _finite(loss: Tensor, model: nn.Module, update: int) -> tuple[float, float]:
    """The loss and the norm of the gradient; an error that names the first that is not finite."""
    gradients = _gradients(model)
    norm = torch.nn.utils.get_total_norm(gradients)
    # One transfer from the device for both.
    loss_value, norm_value = torch.stack([loss.detach(), norm.to(loss)]).tolist()
    if not math.isfinite(loss_value):
        raise DivergedError(f"the loss of update {update} is {loss_value}")
    if not math.isfinite(norm_value):
        for name, p in model.named_parameters():
            if p.grad is not None and not bool(torch.isfinite(p.grad).all()):
                raise DivergedError(f"the gradient of {name} in update {update} is not finite")
        # Every entry is finite, only the sum of their squares is not in this precision.
        wide = [g.to(torch.complex128 if g.is_complex() else torch.float64) for g in gradients]
        norm_value = float(torch.nn.utils.get_total_norm(wide))
    return loss_value, norm_value
