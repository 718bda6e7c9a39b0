"""The contenders over depth: a network as one scan, and as one module per layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.flops import FILTERS
from benchmarks.timing import WORKS, Contender, call
from roann import RoaFNN, RoaLayer

PER_LAYER = "one module per layer"
RHO = 5.0  # the paper's, for its deep networks


def contenders(depth: int, B: int) -> dict[str, list[Contender]]:
    """By work: a network of `depth` maps of width 2 as a scan, and layer by layer."""
    layers = _layers(depth)  # these take so long to make that they are made once

    def gradients(_: Tensor) -> Tensor:
        # Collecting the gradients of all layers is our wish, so it is not in this one's time.
        return torch.stack([layer.weight.grad for layer in layers])  # type: ignore[misc]

    made = {}
    for work in WORKS:
        made[work] = [Contender(f"roann {f}", step(net(depth, f), B, work)) for f in FILTERS]
        run = step(nn.Sequential(*layers), B, work)
        last = Contender(PER_LAYER, run, twin="roann qr")
        made[work].append(replace(last, as_tensor=gradients) if work == "train" else last)
    return made


def net(depth: int, filter: str = "qr", **options: Any) -> RoaFNN:
    """A network of `depth` maps of width 2."""
    rng = torch.Generator().manual_seed(0)
    return RoaFNN([2] * (depth + 1), rho=RHO, filter=filter, generator=rng, **options)


def step(network: nn.Module, B: int, work: str) -> Callable[[], Any]:
    """One call of it: the output without a graph, or ∂ℓ/∂W of a training step."""
    x, g = (torch.randn(B, 2, generator=torch.Generator().manual_seed(k)) for k in (1, 2))
    return call(network, (x,), g, work)


def _layers(depth: int) -> list[RoaLayer]:
    """The same network with a module, and parameters of its own, for every layer."""
    whole = net(depth)
    W, b = whole.get_parameter("weight_0").detach(), whole.get_parameter("bias_0").detach()
    O = whole.get_submodule("filter_0").to_dense()  # type: ignore[operator]
    layers = [RoaLayer(2, 2, rho=RHO, horizon=depth, filter=O[k]) for k in range(depth)]
    for k, layer in enumerate(layers):
        layer.load_state_dict({"weight": W[k], "bias": b[k]}, strict=False)
    return layers
