"""A very deep network of ordinary blocks, with and without the additive filter around each.

A hundred blocks of two linear layers each must tell two spirals apart. As they are, no gradient
reaches the first of them. `Roa(block)` turns each x -> f(x) into x -> α f(x) + (1 − α) O x.

    python examples/deep_wrapped_network.py           # about half a minute
    python examples/deep_wrapped_network.py --quick   # a few seconds, to see that it runs
"""

import argparse
import math

import torch
from torch import Tensor, nn

from roann import Roa

WIDTH, BATCH = 16, 128


def spirals(generator: torch.Generator, n: int) -> tuple[Tensor, Tensor]:
    """Points (n, 2) of two arms, and the arm (n,) of each."""
    turn = 1.5 * math.pi * torch.rand(n, generator=generator).sqrt()
    arm = torch.randint(0, 2, (n,), generator=generator)
    angle = turn + math.pi * arm
    points = (turn * torch.stack([angle.cos(), angle.sin()])).T / (1.5 * math.pi)
    return points + 0.01 * torch.randn(n, 2, generator=generator), arm


def network(depth: int, wrapped: bool) -> nn.Sequential:
    """A linear layer, `depth` blocks, a linear layer."""
    torch.manual_seed(0)
    blocks: list[nn.Module] = [
        nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH), nn.Tanh()
        )
        for _ in range(depth)
    ]
    if wrapped:
        filters = torch.Generator().manual_seed(0)
        blocks = [Roa(block, rho=2.0, horizon=depth, generator=filters) for block in blocks]
    return nn.Sequential(nn.Linear(2, WIDTH), *blocks, nn.Linear(WIDTH, 2))


def train(net: nn.Sequential, updates: int) -> tuple[float, float]:
    """Accuracy after training, and the norm of the first layer's first gradient."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    stream = torch.Generator().manual_seed(1)
    first = math.nan
    for k in range(updates):
        x, arm = spirals(stream, BATCH)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), arm).backward()
        first = float(net[0].weight.grad.norm()) if k == 0 else first
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        x, arm = spirals(torch.Generator().manual_seed(2), 1000)
        return float((net(x).argmax(1) == arm).float().mean()), first


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer blocks, a few updates")
    depth, updates = (20, 3) if parser.parse_args().quick else (100, 120)
    print(f"{depth} blocks, {updates} updates")
    for name, wrapped in (("plain", False), ("wrapped", True)):
        accuracy, gradient = train(network(depth, wrapped), updates)
        print(f"  {name + ':':<9} accuracy {accuracy:.3f}, first gradient {gradient:.1e}")
