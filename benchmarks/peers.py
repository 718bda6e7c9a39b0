"""The contenders of a sequence case: roaRNN, its plain loop, torch's layers, and guests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import flops
from benchmarks.timing import Contender
from roann import RoaRNN

WORKS = ("forward", "train")
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

    def with_size(self, name: str, n: int) -> Sequences:
        """The same case with another T, B, N or I."""
        sizes: dict[str, Any] = {name: n}
        return replace(self, **sizes)

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


def contenders(case: Sequences, work: str, skipped: dict[str, str]) -> list[Contender]:
    """Everyone who can run here; who cannot is noted in `skipped`, with the reason."""
    u, g = case.input(), case.cotangent()
    made = list(_torch_contenders(case, work, u, g))
    for name, guest in (("JAX lax.scan", _jax), ("torchrecurrent FastRNN", _fastrnn)):
        try:
            made.append(guest(name, case, work, u, g))
        except ImportError as error:
            skipped[name] = f"{error.name} is not installed"
    return [*made, limit(case.count(flops.ROA_DENSE, work))]


def limit(operations: int) -> Contender:
    """`torch.mm` at 1024³; `in_limit` scales its time to that many operations."""
    a, b = torch.rand(2, LIMIT_SIZE, LIMIT_SIZE, generator=torch.Generator().manual_seed(3))
    return Contender("limit", lambda: torch.mm(a, b), flops=operations)


def in_limit(seconds: float, operations: int) -> float:
    """The time of `operations`, from that of one product at 1024³."""
    return seconds * operations / (2 * LIMIT_SIZE**3)


def call(
    module: nn.Module, u: Any, g: Tensor, work: str, *, reads_all: bool = False, **options: Any
) -> Callable[[], Tensor]:
    """One call of a recurrent layer: h_n without a graph, or ∂ℓ/∂W of a training step."""
    parameters = list(module.parameters())
    W: Any = next(p for name, p in module.named_parameters() if "weight_hh" in name)

    def forward() -> Tensor:
        with torch.no_grad():
            h_n = module(u, **options)[1]
        last: Tensor = h_n[0] if isinstance(h_n, tuple) else h_n  # the LSTM's h_n is a pair
        return last[0]

    def train() -> Tensor:
        for p in parameters:
            p.grad = None
        output, h_n = module(u, **options)
        h_n = h_n[0] if isinstance(h_n, tuple) else h_n
        torch.autograd.backward(output if reads_all else h_n, g)
        gradient: Tensor = W.grad
        return gradient

    return forward if work == "forward" else train


def _torch_contenders(case: Sequences, work: str, u: Tensor, g: Tensor) -> Iterator[Contender]:
    ours, twin = "roann qr", {"naive loop": "roann qr"}
    layers: list[tuple[str, nn.Module, flops.Products, int]] = [
        (ours, case.roa("qr"), flops.ROA_DENSE, 1),
        ("roann permutation", case.roa("permutation"), flops.ROA_STRUCTURED, 1),
        ("naive loop", case.roa("qr", backend="reference"), flops.ROA_DENSE, 1),
        ("nn.RNN", nn.RNN(case.I, case.N, nonlinearity="relu"), flops.RNN, 1),
        ("nn.GRU", nn.GRU(case.I, case.N), flops.GRU, 3),
        ("nn.LSTM", nn.LSTM(case.I, case.N), flops.LSTM, 4),
    ]
    for name, layer, products, gates in layers:
        yield Contender(
            name, call(layer, u, g, work, reads_all=case.reads_all), case.count(products, work),
            case.count_input(gates, work), twin.get(name),
        )  # fmt: skip


def _fastrnn(name: str, case: Sequences, work: str, u: Tensor, g: Tensor) -> Contender:
    package = import_module("torchrecurrent")
    layer = package.FastRNN(case.I, case.N, nonlinearity=torch.relu)
    run = call(layer, u, g, work, reads_all=case.reads_all)
    return Contender(name, run, case.count(flops.RNN, work), case.count_input(1, work))


def _jax(name: str, case: Sequences, work: str, u: Tensor, g: Tensor) -> Contender:
    """The same update as a `lax.scan`, its input projection hoisted, compiled as a whole."""
    jax, jnp = import_module("jax"), import_module("jax.numpy")
    rnn = case.roa("qr")
    alpha = float(rnn.alpha)

    def array(t: Tensor) -> Any:
        return jnp.asarray(t.detach().numpy())

    O = array(rnn.get_submodule("filter_l0").to_dense())  # type: ignore[operator]
    params = [array(rnn.get_parameter(f"{p}_l0")) for p in ("weight_hh", "weight_ih", "bias")]
    inputs, cotangent = array(u), array(g)

    def scan(params: Any) -> tuple[Any, Any]:
        W, W_i, b = params

        def step(x: Any, c: Any) -> tuple[Any, Any]:
            x = alpha * jax.nn.relu(x @ W.T + c) + (1 - alpha) * (x @ O.T)
            return x, x if case.reads_all else None

        result: tuple[Any, Any] = jax.lax.scan(
            step, jnp.zeros((case.B, case.N)), inputs @ W_i.T + b
        )
        return result

    def loss(params: Any) -> Any:
        last, states = scan(params)
        return jnp.vdot(states if case.reads_all else last[None], cotangent)

    compiled = jax.jit(scan if work == "forward" else jax.grad(loss))

    def run() -> Any:
        return jax.block_until_ready(compiled(params))[0]  # the last state, or ∂ℓ/∂W

    return Contender(
        name, run, case.count(flops.ROA_DENSE, work), case.count_input(1, work), "roann qr",
        lambda x: torch.tensor(x.tolist()),
    )  # fmt: skip
