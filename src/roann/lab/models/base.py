"""What a compared system is, and what a model for a task is: a system and a readout head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from roann._checks import fail

Streams = Callable[[str], torch.Generator]
"""From a name ("weights", "filter", "head") to the generator of that random stream of the seed."""

Chain = nn.Module | list[Callable[[Tensor], Tensor]]
"""What diagnostics follow: a layer of ours, a system with a `step`, or maps one after the other."""

HeadInit = Literal["normal", "uniform", "kaiming_normal", "xavier_normal", "xavier_uniform", "zero"]


class Demand(Protocol):
    """What a model must know of a task; every `roann.lab.tasks` task offers it."""

    @property
    def input_size(self) -> int:
        """I."""

    @property
    def output_size(self) -> int:
        """O."""

    @property
    def horizon(self) -> int | None:
        """The denominator of α, None if it is the model's own depth."""

    @property
    def readout(self) -> Literal["last", "all", "none"]:
        """Which states are read."""


class Trainable(nn.Module, ABC):
    """Abstract: what a training loop asks of a system or a model, besides its outputs."""

    def penalty(self) -> Tensor | None:
        """A term to add to any task's loss (nnRNN's, for instance), or None."""
        return None

    def learning_rate_scales(self) -> dict[str, float]:
        """Parameter name → factor on the learning rate, for those that do not take the full one."""
        return {}

    def effective_parameters(self) -> int:
        """Degrees of freedom that are trained; override where fewer than are stored."""
        return count_parameters(self)


class SequenceSystem(Trainable):
    """A recurrent system with a flat state x of S numbers, driven by inputs u of I numbers.

    x[k+1] = step(x[k], u[k+1]), output[k] = read(x[k]) of H numbers. `forward` does the whole
    sequence at once, as fast as the system allows, and must equal the scan of `step`.

    Attributes:
        input_size: I.
        state_size: S.
        output_size: H, what a head reads (not the O of the task).
        head_init: how the readout head of this system starts, a name in `heads.HEAD_INITS`.
        head_hidden: number of hidden units of the readout head; 0 for a linear one.
        head_reads: number of outputs that the head reads for one answer, at even distances up to
            the last.
    """

    input_size: int
    state_size: int
    output_size: int
    head_init: HeadInit = "uniform"
    head_hidden: int = 0
    head_reads: int = 1

    @abstractmethod
    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """From u (T, B, I) and x[0] (B, S) to the outputs (T, B, H) and x[T] (B, S)."""

    @abstractmethod
    def step(self, x: Tensor, u: Tensor) -> Tensor:
        """From x (…, S) and u (…, I) to the next x (…, S); plain torch, safe under torch.func."""

    def read(self, x: Tensor) -> Tensor:
        """The output (…, H) in a state (…, S): by default its first H numbers."""
        return x[..., : self.output_size]

    def initial_state(self, batch: int) -> Tensor:
        """x[0] (B, S): zero by default."""
        like = next(chain(self.parameters(), self.buffers())).real
        return like.new_zeros(batch, self.state_size)

    def start(self, u: Tensor, state: Tensor | None) -> Tensor:
        """x[0] (B, S) of a sequence: `state`, or the system's own; refuses shapes that do not fit.

        Override it to prepare the parameters as well.
        """
        if u.dim() != 3 or u.shape[0] == 0 or u.shape[2] != self.input_size:
            fail("u", f"shape (T ≥ 1, B, {self.input_size})", tuple(u.shape))
        if state is not None and state.shape != (u.shape[1], self.state_size):
            fail("state", f"shape ({u.shape[1]}, {self.state_size})", tuple(state.shape))
        return self.initial_state(u.shape[1]) if state is None else state

    def chain(self) -> Chain:
        """What diagnostics follow step by step: override it where a layer inside is the whole."""
        return self

    def last(self, u: Tensor, state: Tensor | None = None) -> Tensor:
        """The output (B, H) after the whole of u.

        Override it where a system can do this without keeping (or differentiating) all outputs.
        """
        return self.read(self.forward(u, state)[1])


class Model(Trainable):
    """A model for a task: inputs to predictions. The training loop sees nothing else."""

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor:
        """From the inputs of a `Batch` to predictions (T, B, O) or (B, O)."""

    def enter(self, inputs: Tensor) -> Tensor:
        """From the inputs to what enters the chain: the inputs themselves, by default."""
        return inputs

    def chain(self) -> Chain:
        """What diagnostics follow, each map safe under torch.func: by default one map, the model.

        Of a feed-forward model, `forward` equals `enter`, then the chain, then `read`.
        """
        return [self]

    def read(self, output: Tensor) -> Tensor:
        """From what the chain gives to predictions: the same, by default."""
        return output


class SequenceModel(Model):
    """A sequence system and its readout head.

    Args:
        system: the recurrent system; diagnostics take `model.system.step`.
        head: from H to O; from R·H if it reads R outputs for one answer.
        readout: "last" gives one answer after the last step, "all" one at every step.
    """

    def __init__(
        self, system: SequenceSystem, head: nn.Module, readout: Literal["last", "all"]
    ) -> None:
        super().__init__()
        self.system = system
        self.head = head
        self.readout = readout

    def forward(self, inputs: Tensor) -> Tensor:
        """From u (T, B, I) to (B, O) for "last", (T, B, O) for "all"."""
        if self.readout == "last" and self.system.head_reads == 1:
            answer: Tensor = self.head(self.system.last(inputs))
            return answer
        return self.read(self.system(inputs)[0])

    def chain(self) -> Chain:
        return self.system.chain()

    def read(self, output: Tensor) -> Tensor:
        """From the outputs (T, B, H) of the system to (B, O) for "last", (T, B, O) for "all"."""
        if self.readout == "last":
            T, R = len(output), self.system.head_reads
            if T < R:
                fail("inputs", f"at least {R} steps, for as many reads", T)
            output = output[[T * (r + 1) // R - 1 for r in range(R)]].transpose(0, 1).flatten(1)
        prediction: Tensor = self.head(output)
        return prediction

    def penalty(self) -> Tensor | None:
        return self.system.penalty()

    def learning_rate_scales(self) -> dict[str, float]:
        return {f"system.{k}": s for k, s in self.system.learning_rate_scales().items()}


def count_parameters(module: nn.Module) -> int:
    """How many trainable numbers a module stores."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


@dataclass(frozen=True)
class Row:
    """One system in the table of names.

    Attributes:
        kind: "sequence" for a system over time, "depth" for a feed-forward model.
        config: the class of its settings: a frozen dataclass that checks itself, all defaults set.
        build: from settings, a task's demand and random streams to the system (or depth model).
        small: settings so small that every property can be tested in a moment.
    """

    kind: Literal["sequence", "depth"]
    config: type[Any]
    build: Callable[[Any, Demand, Streams], SequenceSystem | Model]
    small: Any
