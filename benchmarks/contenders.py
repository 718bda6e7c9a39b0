"""Who is timed: the layers of roann, their plain loop, and the layers of torch.

Operations are counted in products of (B, N) with (N, N), 2·B·N·N each. Per step the dense roaRNN
has two in the forward pass (W x and O x), two in the backward pass (Wᵀ and Oᵀ on adjoints) and one
for the gradient of W. The rest is of lower order, or done once per call as the cap on ‖W‖ is, and
not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.peak import peak
from benchmarks.timing import Contender, call
from roann import RoaFNN, RoaLayer, RoaRNN

Products = Mapping[str, int]
"""N × N products per step, by work."""
DENSE, ONE = {"forward": 2, "train": 5}, {"forward": 1, "train": 3}
FILTERS: dict[str, Products] = {"qr": DENSE, "permutation": ONE, "broad": ONE}
"""The filters that are measured; a new one is a row here."""
PARTS: dict[str, dict[str, Any]] = {
    "broad, no gain": {"gain": 1.0},
    "broad, no cap": {"max_norm": None},
    "broad, cap acts": {"max_norm": 1.0},
}
"""The default layer without one of its parts, and with weights that exceed the cap: their cost."""
TORCH: dict[str, tuple[Callable[..., nn.Module], Products]] = {
    "nn.RNN": (lambda I, N: nn.RNN(I, N, nonlinearity="relu"), ONE),
    "nn.GRU": (nn.GRU, {"forward": 3, "train": 9}),
    "nn.LSTM": (nn.LSTM, {"forward": 4, "train": 12}),
}
LIMIT_SIZE = 1024
PER_LAYER = "one module per layer"
RHO = 5.0  # the paper's, for its deep networks


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences, the roaRNN for them, and what the loss reads."""

    T: int
    B: int
    N: int
    I: int
    rho: float
    horizon: int
    reads_all: bool = False  # the loss reads all states, or only the last one

    def sizes(self) -> dict[str, int]:
        """T, B, N, I for the record."""
        return {k: v for k, v in asdict(self).items() if k in "TBNI"}

    def roa(self, filter: str = "qr", **options: Any) -> RoaRNN:
        """The roaRNN of this case; equal arguments give equal weights."""
        options |= {"filter": filter, "generator": torch.Generator().manual_seed(0)}
        return RoaRNN(self.I, self.N, rho=self.rho, horizon=self.horizon, **options)

    def input(self) -> Tensor:
        """u (T, B, I)."""
        return torch.rand(self.T, self.B, self.I, generator=torch.Generator().manual_seed(1))

    def cotangent(self) -> Tensor:
        """∂ℓ/∂output (T, B, N), or ∂ℓ/∂h_n (1, B, N): given, so that no loss costs time."""
        shape = (self.T if self.reads_all else 1, self.B, self.N)
        return torch.randn(shape, generator=torch.Generator().manual_seed(2))

    def count(self, products: Products, work: str) -> int:
        """Operations in N × N products of one call.

        Example:
            >>> Sequences(T=1, B=1, N=3, I=1, rho=1.0, horizon=1).count(DENSE, "train")
            90
        """
        return 2 * self.T * self.B * self.N * self.N * products[work]


def recurrent(
    layer: nn.Module, u: Any, g: Tensor, work: str, reads_all: bool = False, **options: Any
) -> Callable[[], Any]:
    """One call of a recurrent layer: h_n without a graph, or ∂ℓ/∂W of a training step."""

    def read(found: Any) -> Any:
        if reads_all and work == "train":
            return found[0]
        return found[1][0] if isinstance(found[1], tuple) else found[1]  # the LSTM's is a pair

    return call(layer, (u,), g, work, read, **options)


def over_time(case: Sequences, work: str) -> list[Contender]:
    """The layers of roann, the plain loop, those of torch, the processor's peak, and the limit."""
    everyone: dict[str, tuple[nn.Module, Products]] = {
        **{f"roann {name}": (case.roa(name), count) for name, count in FILTERS.items()},
        **{f"roann {name}": (case.roa("broad", **o), ONE) for name, o in PARTS.items()},
        "naive loop": (case.roa(backend="reference"), DENSE),
        **{name: (make(case.I, case.N), count) for name, (make, count) in TORCH.items()},
    }
    u, g = case.input(), case.cotangent()
    made = []
    for name, (layer, products) in everyone.items():
        twin = "roann qr" if name == "naive loop" else None
        run = recurrent(layer, u, g, work, case.reads_all)
        made.append(Contender(name, run, case.count(products, work), twin))
    # Both with their times scaled to as many operations as the dense roaRNN has.
    flops, fastest = case.count(DENSE, work), peak(torch.get_num_threads())
    if fastest is not None:
        run, operations = fastest
        made.append(Contender("peak", run, flops, scale=flops / operations))
    a, b = torch.rand(2, LIMIT_SIZE, LIMIT_SIZE, generator=torch.Generator().manual_seed(3))
    scale = flops / (2 * LIMIT_SIZE**3)
    return [*made, Contender("limit", lambda: torch.mm(a, b), flops, scale=scale)]


def over_depth(depth: int, B: int) -> dict[str, list[Contender]]:
    """By work: a network of `depth` maps of width 2 as one scan, and layer by layer."""
    layers = _layers(depth)  # these take so long to make that they are made once

    def gradients(_: Tensor) -> Tensor:
        # Collecting the gradients of all layers is our wish, so it is not in this one's time.
        return torch.stack([layer.weight.grad for layer in layers])  # type: ignore[misc]

    made = {}
    for work in ("forward", "train"):
        scans = [Contender(f"roann {f}", deep(fnn(depth, f), B, work)) for f in FILTERS]
        last = Contender(PER_LAYER, deep(nn.Sequential(*layers), B, work), twin="roann qr")
        made[work] = [*scans, replace(last, as_tensor=gradients) if work == "train" else last]
    return made


def fnn(depth: int, filter: str = "qr", **options: Any) -> RoaFNN:
    """A network of `depth` maps of width 2."""
    rng = torch.Generator().manual_seed(0)
    return RoaFNN([2] * (depth + 1), rho=RHO, filter=filter, generator=rng, **options)


def deep(network: nn.Module, B: int, work: str) -> Callable[[], Any]:
    """One call of it: the output without a graph, or ∂ℓ/∂W of a training step."""
    x, g = (torch.randn(B, 2, generator=torch.Generator().manual_seed(k)) for k in (1, 2))
    return call(network, (x,), g, work)


def _layers(depth: int) -> list[RoaLayer]:
    """The same network with a module, and parameters of its own, for every layer."""
    whole = fnn(depth)
    W, b = whole.get_parameter("weight_0").detach(), whole.get_parameter("bias_0").detach()
    O = whole.get_submodule("filter_0").to_dense()  # type: ignore[operator]
    layers = [RoaLayer(2, 2, rho=RHO, horizon=depth, filter=O[k]) for k in range(depth)]
    for k, layer in enumerate(layers):
        layer.load_state_dict({"weight": W[k], "bias": b[k]}, strict=False)
    return layers
