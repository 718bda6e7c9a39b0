"""The one fitting loop: Adam, warm-up and cosine, bounded gradient norm, best weights.

Note [Repeatable to the bit]
----------------------------
Nothing here draws from a global generator. Every epoch has a generator of its own, seeded from the
seed of the estimator, the number of the network and the number of the epoch; it shuffles the rows
and draws dropout. So two fits with one `random_state` agree bit for bit, on one machine and with
one number of threads, and `partial_fit` continues after a pickle as it would have without.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from roann.estimators.callbacks import Callback, Epoch, Progress
from roann.estimators.network import Network
from roann.estimators.series import Prepared

MOST = 2**25  # numbers in the states of a batch of answers
Loss = Callable[[Tensor, Tensor], Tensor]
Score = Callable[[Tensor, Tensor], float]


def generator_of(*numbers: int) -> torch.Generator:
    """A generator for these numbers, independent of that for others."""
    state = np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state))


@dataclass(frozen=True)
class Recipe:
    """How to train; see `RoaClassifier`."""

    learning_rate: float
    weight_decay: float
    epochs: int
    batch_size: int
    warmup: int
    max_grad_norm: float
    patience: int | None
    constant: bool = False

    def rate(self, step: int, total: int) -> float:
        """The learning rate of a step, counted from 0: warm-up, then cosine to 0."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        if self.constant:
            return self.learning_rate * warm
        return self.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / max(1, total)))


@dataclass
class Data:
    """Series, targets, and which rows train and which validate."""

    series: Prepared
    targets: Tensor
    train: Tensor
    valid: Tensor
    loss: Loss
    score: Score


@dataclass
class Member:
    """One network of an estimator, with what it needs to be trained further."""

    number: int
    seed: int
    network: Network
    optimizer: torch.optim.Optimizer
    epochs: int = 0
    steps: int = 0
    rows: list[Epoch] = field(default_factory=list)

    @classmethod
    def of(cls, network: Network, number: int, seed: int, recipe: Recipe) -> Member:
        """A network with a fresh optimizer; weight decay leaves biases and norms alone."""
        wide = [p for p in network.parameters() if p.dim() > 1]
        thin = [p for p in network.parameters() if p.dim() <= 1]
        groups = [
            {"params": wide, "weight_decay": recipe.weight_decay},
            {"params": thin, "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, foreach=False)
        return cls(number, seed, network, optimizer)


def train(member: Member, data: Data, recipe: Recipe, callbacks: Sequence[Callback]) -> None:
    """Train a network; at the end it has the weights of its best epoch, if rows validate."""
    began, best, since = time.monotonic(), math.inf, 0
    kept: dict[str, Any] | None = None
    first, fixed = member.epochs, None
    validated = len(data.valid) > 0
    per_epoch = max(1, math.ceil(len(data.train) / recipe.batch_size))
    for _ in range(recipe.epochs):
        total = recipe.epochs * per_epoch
        loss, rate = _epoch(member, data, recipe, (member.epochs - first) * per_epoch, total, fixed)
        member.epochs += 1
        found = evaluate(member.network, data, data.valid, recipe.batch_size)
        seconds = time.monotonic() - began
        row = Epoch(member.number, member.epochs, loss, *found, rate, seconds)
        member.rows.append(row)
        value = loss if found[0] is None else found[0]
        better = value < best
        best, since = (value, 0) if better else (best, since + 1)
        if better and validated:
            kept = copy.deepcopy(member.network.state_dict())
        progress = Progress(row, first + recipe.epochs, member.network, better)
        stop = [bool(callback(progress)) for callback in callbacks]
        fixed = progress.next_rate
        if any(stop) or (validated and recipe.patience is not None and since >= recipe.patience):
            break
    if kept is not None:
        member.network.load_state_dict(kept)


def _epoch(
    member: Member, data: Data, recipe: Recipe, step: int, total: int, fixed: float | None
) -> tuple[float, float]:
    """One pass over the training rows: mean loss and last learning rate."""
    network = member.network.train()
    generator = generator_of(member.seed, member.number, member.epochs)
    losses, rate = 0.0, 0.0
    for batch in data.series.shuffled(data.train, recipe.batch_size, generator):
        at = member.steps if recipe.constant else step
        rate = recipe.rate(at, total) if fixed is None else fixed
        for group in member.optimizer.param_groups:
            group["lr"] = rate
        loss = data.loss(network(batch, generator), data.targets[batch.rows])
        member.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        norm = nn.utils.clip_grad_norm_(network.parameters(), recipe.max_grad_norm, foreach=False)
        if not bool(torch.isfinite(norm)):
            raise FloatingPointError(
                f"the gradient is not finite in epoch {member.epochs + 1}; lower learning_rate, "
                "or look for extreme values in X and y"
            )
        member.optimizer.step()
        losses += float(loss.detach()) * len(batch.rows)
        member.steps, step = member.steps + 1, step + 1
    return losses / len(data.train), rate


@torch.no_grad()
def evaluate(
    network: Network, data: Data, rows: Tensor, batch_size: int
) -> tuple[float | None, float | None]:
    """Loss and score on some rows; None without any."""
    if not len(rows):
        return None, None
    network.eval()
    answers, targets = [], []
    order = rows[torch.argsort(data.series.lengths[rows], descending=True, stable=True)]
    for part in torch.split(order, batch_size):
        batch = data.series.batch(part)
        answers.append(network(batch))
        targets.append(data.targets[batch.rows])
    answer, target = torch.cat(answers), torch.cat(targets)
    return float(data.loss(answer, target)), data.score(answer, target)


@torch.no_grad()
def answers(networks: Sequence[Network], series: Prepared) -> list[Tensor]:
    """The outputs of each network, (n, outputs), in the order of the series.

    In float64, so that the answer for a series does not depend on which others it is asked with:
    the size of a batch decides in which order sums are rounded.
    """
    found = []
    width = networks[0].norm.normalized_shape[0] * int(series.lengths.max())
    batch_size = max(1, min(256, MOST // width))
    for network in networks:
        # Devices of the type "mps" have no float64.
        dtype = torch.float32 if series.inputs.device.type == "mps" else torch.float64
        exact = copy.deepcopy(network).to(dtype).eval()
        out = torch.empty(len(series), network.plan.outputs, dtype=dtype)
        for batch in series.in_order(batch_size):
            out[batch.rows] = exact(batch.to(dtype)).cpu()
        found.append(out)
    return found
