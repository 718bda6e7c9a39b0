"""The contenders of a sequence case: roaRNN, its plain loop, torch's layers, and guests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
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

    def count_input(self, gates: int, work: str) -> int:
        """Operations of the input projection."""
        return flops.projection(gates, work, T=self.T, B=self.B, N=self.N, I=self.I)


def recurrent(
    layer: nn.Module, u: Any, g: Tensor, work: str, reads_all: bool = False, **options: Any
) -> Callable[[], Any]:
    """One call of a recurrent layer: h_n without a graph, or ∂ℓ/∂W of a training step."""

    def read(found: Any) -> Any:
        if reads_all and work == "train":
            return found[0]
        return found[1][0] if isinstance(found[1], tuple) else found[1]  # the LSTM's is a pair

    return call(layer, (u,), g, work, read, "weight_hh", **options)


def contenders(case: Sequences, work: str, skipped: dict[str, str]) -> list[Contender]:
    """Everyone who can run here; who cannot is noted in `skipped`, with the reason."""
    u, g = case.input(), case.cotangent()
    rnn = nn.RNN(case.I, case.N, nonlinearity="relu")
    layers: list[tuple[str, nn.Module, flops.Products, int]] = [
        *((f"roann {name}", case.roa(name), of, 1) for name, of in flops.FILTERS.items()),
        ("naive loop", case.roa("qr", backend="reference"), flops.ROA_DENSE, 1),
        ("nn.RNN", rnn, flops.RNN, 1),
        ("nn.GRU", nn.GRU(case.I, case.N), flops.GRU, 3),
        ("nn.LSTM", nn.LSTM(case.I, case.N), flops.LSTM, 4),
    ]
    try:
        guest = import_module("torchrecurrent").FastRNN(case.I, case.N, nonlinearity=torch.relu)
        layers.append(("torchrecurrent FastRNN", guest, flops.RNN, 1))
    except ImportError as error:
        skipped["torchrecurrent FastRNN"] = f"{error.name} is not installed"
    made = []
    for name, layer, products, gates in layers:
        counts = case.count(products, work), case.count_input(gates, work)
        run = recurrent(layer, u, g, work, case.reads_all)
        made.append(Contender(name, run, *counts, "roann qr" if name == "naive loop" else None))
    try:
        made.append(_jax(case, work, u, g))
    except ImportError as error:
        skipped["JAX lax.scan"] = f"{error.name} is not installed"
    return [*made, limit(case.count(flops.ROA_DENSE, work))]


def limit(operations: int) -> Contender:
    """`torch.mm` at 1024³; `in_limit` scales its time to that many operations."""
    a, b = torch.rand(2, LIMIT_SIZE, LIMIT_SIZE, generator=torch.Generator().manual_seed(3))
    return Contender("limit", lambda: torch.mm(a, b), flops=operations)


def in_limit(seconds: float, operations: int) -> float:
    """The time of `operations`, from that of one product at 1024³."""
    return seconds * operations / (2 * LIMIT_SIZE**3)


def _jax(case: Sequences, work: str, u: Tensor, g: Tensor) -> Contender:
    """The same update as a `lax.scan`, its input projection hoisted, compiled as a whole."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    rnn = case.roa("qr")
    alpha = float(rnn.alpha)

    def array(t: Tensor) -> Any:
        return jnp.asarray(t.detach().numpy())

    O = array(rnn.get_submodule("filter_l0").to_dense())  # type: ignore[operator]
    params = [array(rnn.get_parameter(f"{p}_l0")) for p in ("weight_hh", "weight_ih", "bias")]
    inputs, cotangent = array(u), array(g)

    def scan(params: Any) -> Any:
        W, W_i, b = params

        def step(x: Any, c: Any) -> tuple[Any, Any]:
            x = alpha * jax.nn.relu(x @ W.T + c) + (1 - alpha) * (x @ O.T)
            return x, x if case.reads_all else None

        return jax.lax.scan(step, jnp.zeros((case.B, case.N)), inputs @ W_i.T + b)

    def loss(params: Any) -> Any:
        last, states = scan(params)
        return jnp.vdot(states if case.reads_all else last[None], cotangent)

    compiled = jax.jit(scan if work == "forward" else jax.grad(loss))

    def run() -> Any:
        return jax.block_until_ready(compiled(params))[0]  # the last state, or ∂ℓ/∂W

    counts = case.count(flops.ROA_DENSE, work), case.count_input(1, work)
    return Contender("JAX lax.scan", run, *counts, "roann qr", lambda x: torch.tensor(x.tolist()))
