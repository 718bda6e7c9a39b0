"""What the compared systems share: first values, the projection of the inputs, the scan."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from typing import Any, ClassVar, Generic, TypedDict, TypeVar, Unpack

import torch
from torch import Tensor, nn

from roann.lab.models.base import Demand, Row, SequenceSystem, Streams

C = TypeVar("C")

Transition = Callable[[Tensor, Tensor], Tensor]
"""(x[k] (…, S), d[k+1] (…, K)) → x[k+1] (…, S)."""


def scan(f: Transition, drive: Tensor, x: Tensor) -> Tensor:
    """The states x[1] … x[T] (T, B, S) of x[k+1] = f(x[k], d[k+1]), d of shape (T, B, K).

    `unbind` rather than indexing: the gradient of d is then stacked once, where T separate
    indexings would add up T tensors of the size of d.
    """
    return torch.stack(list(accumulate(drive.unbind(0), f, initial=x))[1:])


class Factory(TypedDict, total=False):
    """Where and in which type a system makes its tensors; as in torch, the defaults if not said."""

    device: torch.device | str | None
    dtype: torch.dtype | None


class Source:
    """Where a system takes its parameters from: every call draws one, in the order of the calls.

    Args:
        generator: the source of the random numbers; torch's own if not given.
        device, dtype: of the parameters, as in torch.
    """

    def __init__(
        self, generator: torch.Generator | None = None, **factory: Unpack[Factory]
    ) -> None:
        self.generator, self.factory = generator, factory

    def empty(self, *shape: int) -> Tensor:
        """A tensor with no values yet, not a parameter."""
        return torch.empty(shape, **self.factory)

    def drawn(self, init: Callable[..., object], *shape: int) -> nn.Parameter:
        """Drawn by a function with the signature of those in `torch.nn.init`."""
        made = nn.Parameter(self.empty(*shape))
        init(made, generator=self.generator)
        return made

    def constant(self, value: float, *shape: int) -> nn.Parameter:
        """All entries equal."""
        return nn.Parameter(self.empty(*shape).fill_(value))

    def normal(self, std: float, *shape: int) -> nn.Parameter:
        """N(0, std²)."""
        return self.drawn(partial(nn.init.normal_, std=std), *shape)

    def uniform(self, bound: float, *shape: int) -> nn.Parameter:
        """U(±bound)."""
        return self.drawn(partial(nn.init.uniform_, a=-bound, b=bound), *shape)

    def linear(self, n_in: int, n_out: int) -> tuple[nn.Parameter, nn.Parameter]:
        """W and b of an affine map, as torch.nn.Linear: U(±1/√n_in)."""
        return self.uniform(n_in**-0.5, n_out, n_in), self.uniform(n_in**-0.5, n_out)


class ConfiguredSystem(SequenceSystem, Generic[C]):
    """Abstract: a system made from its settings.

    Args:
        input_size: I.
        config: the settings of the system, kept as its `config`.
        generator: the source of the first values; torch's own if not given.
        device, dtype: of parameters and buffers, as in torch.
    """

    def __init__(
        self,
        input_size: int,
        config: C,
        generator: torch.Generator | None = None,
        **factory: Unpack[Factory],
    ) -> None:
        super().__init__()
        self.input_size, self.config = input_size, config
        self.build(Source(generator, **factory))

    @abstractmethod
    def build(self, new: Source) -> None:
        """Make all parameters and buffers with their first values; set state and output size."""


class DrivenSystem(ConfiguredSystem[C]):
    """Abstract: a system whose inputs enter by a map of their own.

        d[k] = drive(u[k]),    x[k+1] = f(x[k], d[k+1])

    `drive` is one product over all times; `transition` makes f, so that whatever depends on
    parameters alone (a matrix exponential, say) is computed once per sequence and not kept.

    Attributes:
        input_map: the names of V and b where `drive` is V u + b, or of V alone.
    """

    input_map: ClassVar[Sequence[str]] = ("V", "b")

    def drive(self, u: Tensor) -> Tensor:
        """From inputs (…, I) to what the transition takes, (…, K); V u + b by default."""
        V, *b = (getattr(self, name) for name in self.input_map)
        driven: Tensor = u @ V.mT
        return driven + b[0] if b else driven

    @abstractmethod
    def transition(self) -> Transition:
        """The map f from (x, d) to the next x, for the present parameters."""

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x = self.start(u, state)
        states = scan(self.transition(), self.drive(u), x)
        return self.read(states), states[-1]

    def last(self, u: Tensor, state: Tensor | None = None) -> Tensor:
        """The output (B, H) after the whole of u; states are not stacked."""
        x = self.start(u, state)
        return self.read(reduce(self.transition(), self.drive(u).unbind(0), x))

    def step(self, x: Tensor, u: Tensor) -> Tensor:
        return self.transition()(x, self.drive(u))


def row(
    system: Callable[[int, Any, torch.Generator], SequenceSystem],
    small: Any,
    horizon: str = "horizon",
) -> Row:
    """The `Row` of a system; `horizon` names a setting that is the task's horizon if not given."""

    def build(config: Any, demand: Demand, streams: Streams) -> SequenceSystem:
        if hasattr(config, horizon) and getattr(config, horizon) is None:
            config = replace(config, **{horizon: demand.horizon})
        return system(demand.input_size, config, streams("weights"))

    return Row("sequence", type(small), build, small)
