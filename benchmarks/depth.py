"""The contenders over depth: a network as one scan, and as one module per layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.peers import WORKS
from benchmarks.timing import Contender
from roann import RoaFNN, RoaLayer

PER_LAYER = "one module per layer"
RHO = 5.0  # the paper's, for its deep networks


def contenders(depth: int, B: int) -> dict[str, list[Contender]]:
    """By work: a network of `depth` maps of width 2 as a scan, and layer by layer."""
    layers = _layers(depth)  # these take so long to make that they are made once
    return {
        work: [
            Contender("roann qr", whole(depth, B, work, "qr")),
            Contender("roann permutation", whole(depth, B, work, "permutation")),
            _layer_by_layer(layers, B, work),
        ]
        for work in WORKS
    }


def whole(depth: int, B: int, work: str, filter: str) -> Callable[[], Tensor]:
    """One call of a `RoaFNN`: the output without a graph, or ∂ℓ/∂W of a training step."""
    net = _net(depth, filter)
    run, W = _call(net, B, work), net.get_parameter("weight_0")
    if work == "forward":
        return run

    def train() -> Tensor:
        run()
        assert W.grad is not None
        return W.grad

    return train


def _net(depth: int, filter: str) -> RoaFNN:
    rng = torch.Generator().manual_seed(0)
    return RoaFNN([2] * (depth + 1), rho=RHO, filter=filter, generator=rng)


def _layers(depth: int) -> list[RoaLayer]:
    """The same network with a module, and parameters of its own, for every layer."""
    net = _net(depth, "qr")
    W, b = net.get_parameter("weight_0").detach(), net.get_parameter("bias_0").detach()
    O = net.get_submodule("filter_0").to_dense()  # type: ignore[operator]
    layers = [RoaLayer(2, 2, rho=RHO, horizon=depth, filter=O[k]) for k in range(depth)]
    for k, layer in enumerate(layers):
        layer.load_state_dict({"weight": W[k], "bias": b[k]}, strict=False)
    return layers


def _layer_by_layer(layers: list[RoaLayer], B: int, work: str) -> Contender:
    def result(y: Tensor) -> Tensor:
        # Collecting the gradients of all layers is our wish, so it is not in this one's time.
        if work == "forward":
            return y
        return torch.stack([layer.weight.grad for layer in layers])  # type: ignore[misc]

    run = _call(nn.Sequential(*layers), B, work)
    return Contender(PER_LAYER, run, twin="roann qr", as_tensor=result)


def _call(net: nn.Module, B: int, work: str) -> Callable[[], Tensor]:
    x = torch.randn(B, 2, generator=torch.Generator().manual_seed(1))
    g = torch.randn(B, 2, generator=torch.Generator().manual_seed(2))
    parameters = list(net.parameters())

    def forward() -> Tensor:
        with torch.no_grad():
            y: Tensor = net(x)
        return y

    def train() -> Tensor:
        for p in parameters:
            p.grad = None
        y: Tensor = net(x)
        torch.autograd.backward(y, g)
        return y.detach()

    return forward if work == "forward" else train
