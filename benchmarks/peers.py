"""The contenders of a sequence case: roaRNN, its plain loop, and torch's layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import flops
from benchmarks.timing import Contender, call
from roann import RoaRNN

LIMIT_SIZE = 1024


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences and what the loss reads.

    Attributes:
        T: steps.
        B: batch.
        N: state.
        I: input.
        rho: ρ.
        horizon: α = ρ / horizon.
        reads_all: whether the loss reads all states, or only the last one.
    """

    T: int
    B: int
    N: int
    I: int
    rho: float
    horizon: int
    reads_all: bool = False

    def sizes(self) -> dict[str, int]:
        """T, B, N, I for the record."""
        return {k: v for k, v in asdict(self).items() if k in "TBNI"}

    def roa(self, filter: str = "qr", **options: Any) -> RoaRNN:
        """The roaRNN of this case; equal arguments give equal weights."""
        return RoaRNN(
            self.I, self.N, rho=self.rho, horizon=self.horizon, filter=filter,
            generator=torch.Generator().manual_seed(0), **options,
        )  # fmt: skip

    def input(self) -> Tensor:
        """u (T, B, I)."""
        return torch.rand(self.T, self.B, self.I, generator=torch.Generator().manual_seed(1))

    def cotangent(self) -> Tensor:
        """∂ℓ/∂output (T, B, N), or ∂ℓ/∂h_n (1, B, N): given, so that no loss costs time."""
        shape = (self.T if self.reads_all else 1, self.B, self.N)
        return torch.randn(shape, generator=torch.Generator().manual_seed(2))

    def count(self, products: flops.Products, work: str) -> int:
        """Operations in N × N products."""
        return flops.recurrent(products, work, T=self.T, B=self.B, N=self.N)


def recurrent(
    layer: nn.Module, u: Any, g: Tensor, work: str, reads_all: bool = False, **options: Any
) -> Callable[[], Any]:
    """One call of a recurrent layer: h_n without a graph, or ∂ℓ/∂W of a training step."""

    def read(found: Any) -> Any:
        if reads_all and work == "train":
            return found[0]
        return found[1][0] if isinstance(found[1], tuple) else found[1]  # the LSTM's is a pair

    return call(layer, (u,), g, work, read, "weight_hh", **options)


def contenders(case: Sequences, work: str) -> list[Contender]:
    """The layers of roann, the plain loop, those of torch, and the limit."""
    u, g = case.input(), case.cotangent()
    layers: list[tuple[str, nn.Module, flops.Products]] = [
        *((f"roann {name}", case.roa(name), products) for name, products in flops.FILTERS.items()),
        ("naive loop", case.roa("qr", backend="reference"), flops.ROA_DENSE),
        ("nn.RNN", nn.RNN(case.I, case.N, nonlinearity="relu"), flops.RNN),
        ("nn.GRU", nn.GRU(case.I, case.N), flops.GRU),
        ("nn.LSTM", nn.LSTM(case.I, case.N), flops.LSTM),
    ]
    made = []
    for name, layer, products in layers:
        run, twin = recurrent(layer, u, g, work, case.reads_all), None
        if name == "naive loop":
            twin = "roann qr"
        made.append(Contender(name, run, case.count(products, work), twin))
    # `torch.mm` at 1024³; `in_limit` scales its time to as many operations as the roaRNN has.
    a, b = torch.rand(2, LIMIT_SIZE, LIMIT_SIZE, generator=torch.Generator().manual_seed(3))
    operations = case.count(flops.ROA_DENSE, work)
    return [*made, Contender("limit", lambda: torch.mm(a, b), operations)]


def in_limit(seconds: float, operations: int) -> float:
    """The time of `operations`, from that of one product at 1024³."""
    return seconds * operations / (2 * LIMIT_SIZE**3)
