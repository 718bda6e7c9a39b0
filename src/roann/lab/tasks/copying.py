"""Copying memory: recall S symbols after a lag of L blanks (Section IV-A, Fig. 2)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from roann.lab.limits import Batches, Length, OneOf, Range, Settings, Width
from roann.lab.tasks.base import Batch, EndlessTask

SYMBOLS = 8  # 1 … 8
BLANK = 0
MARKER = 9


# Where the marker stands, as offsets (first, last + 1) from the first recalled step.
LAYOUTS: dict[str, tuple[int, int | None]] = {
    # The marker coincides with the first recalled symbol: the paper, expRNN.
    "paper": (0, 1),
    # One step earlier, so that a step is free to think: uRNN, FC-uRNN, SRNN.
    "marker-before": (-1, 0),
    # From one step earlier to the end: TCN.
    "marker-through": (-1, None),
}


class CopyingConfig(Settings):
    """Settings of the copying memory task."""

    lag: Length = 400  # number L of blanks between the symbols and their recall.
    symbols: Annotated[int, Range(1, 10_000)] = 10  # number S of symbols to recall.
    batch_size: Width = 128  # number of sequences in a batch.
    # where the marker is: paper (at the first recalled symbol), marker-before (one step earlier) or
    # marker-through (from there to the end).
    layout: Annotated[str, OneOf(LAYOUTS)] = "paper"
    # one-hot (ten inputs) or scalar (one input, 0 to 9).
    encoding: Annotated[str, OneOf(("one-hot", "scalar"))] = "one-hot"
    eval_batches: Batches = 1  # number of batches in an evaluation.


class Copying(EndlessTask):
    """S symbols, L blanks, a marker, blanks; the answer is L + S blanks, then the S symbols.

    Inputs are (L + 2S, B, 10) one-hot or (L + 2S, B, 1), targets (L + 2S, B) classes 0 … 8 with 0
    the blank. α = ρ / (L + S). Over all steps a model that recalls nothing is right most of the
    time, so the score to look at is the accuracy on the S recall steps.
    """

    name = "copying"
    primary = "recall_accuracy"
    better = "higher"
    output_size = SYMBOLS + 1
    readout = "all"

    def __init__(self, config: CopyingConfig, device: torch.device | str = "cpu") -> None:
        super().__init__(config, device)
        self.length = config.lag + 2 * config.symbols
        self.input_size = 10 if config.encoding == "one-hot" else 1
        self.horizon = config.lag + config.symbols
        chance = math.log(SYMBOLS)
        self.trivial = {
            "cross_entropy": config.symbols * chance / self.length,
            "recall_cross_entropy": chance,
            "recall_accuracy": 1 / SYMBOLS,
        }

    @torch.no_grad()
    def scores(self, prediction: Tensor, targets: Tensor) -> dict[str, float]:
        """Cross-entropy over all steps and over the recall, and the accuracy of the recall."""
        recalled, symbols = prediction[-self.config.symbols :], targets[-self.config.symbols :]
        return {
            "cross_entropy": float(self.loss(prediction, targets)),
            "recall_cross_entropy": float(self.loss(recalled, symbols)),
            "recall_accuracy": float((recalled.argmax(-1) == symbols).double().mean()),
        }

    def draw(self, rng: torch.Generator) -> Batch:
        """Fresh sequences."""
        S, B = self.config.symbols, self.config.batch_size
        symbols = torch.randint(1, SYMBOLS + 1, (S, B), generator=rng).to(self.device)
        first, end = LAYOUTS[self.config.layout]
        recall = self.length - S
        marker = slice(recall + first, self.length if end is None else recall + end)
        targets = torch.zeros(self.length, B, dtype=torch.long, device=self.device)
        targets[recall:] = symbols
        if self.config.encoding == "scalar":
            inputs = torch.zeros(self.length, B, 1, device=self.device)
            inputs[:S, :, 0] = symbols.float()
            inputs[marker] = MARKER
            return Batch(inputs, targets)
        inputs = torch.zeros(self.length, B, MARKER + 1, device=self.device)
        inputs[:, :, BLANK] = 1
        inputs[:S] = one_hot(symbols, MARKER + 1).float()
        inputs[marker, :, BLANK] = 0
        inputs[marker, :, MARKER] = 1
        return Batch(inputs, targets)
