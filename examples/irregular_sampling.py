"""Sequences sampled at irregular times: a layer that reads the clock against one that does not.

A sine of unknown frequency and phase is seen at 50 random times, different for every sequence.
What will it be one unit of time after the last of them? Without time stamps the samples look like
noise. `RoaODE` turns its state by the time that really passed.

    python examples/irregular_sampling.py           # about half a minute
    python examples/irregular_sampling.py --quick   # a few seconds, to see that it runs
"""

import argparse
import math

import torch
from torch import Tensor, nn

from roann import RoaEuler, RoaODE

T, N, BATCH, DT = 50, 64, 64, 2.0


def draw(generator: torch.Generator, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Samples (T, B, 1), the intervals before them (T, B), and the value to predict (B, 1)."""
    intervals = 2 * torch.rand(T, batch, generator=generator)
    times = intervals.cumsum(0) - intervals.sum(0)  # the last sample is at time 0
    frequency = 0.5 + 2 * torch.rand(batch, generator=generator)
    phase = 2 * math.pi * torch.rand(batch, generator=generator)
    samples = torch.sin(frequency * times + phase)
    return samples.unsqueeze(-1), intervals, torch.sin(frequency + phase).unsqueeze(-1)


def score(layer: type[RoaODE | RoaEuler], stamped: bool, updates: int) -> float:
    """Train, and return the share of the variance that stays unexplained."""
    ode = layer(
        1, N, "tanh", rho=8.0, horizon=T / DT, dt=DT, filter="rotations", init="scaled_normal",
        gain=1.0, max_norm=None, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    torch.manual_seed(0)
    head = nn.Linear(N, 1)
    parameters = [*ode.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, updates)

    def predict(samples: Tensor, intervals: Tensor) -> Tensor:
        # Without time stamps every interval is the mean one.
        _, h_n = ode(samples, intervals=intervals if stamped else torch.ones(T), last_only=True)
        return head(h_n[0])

    stream = torch.Generator().manual_seed(1)
    for _ in range(updates):
        samples, intervals, target = draw(stream, BATCH)
        optimizer.zero_grad()
        nn.functional.mse_loss(predict(samples, intervals), target).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        samples, intervals, target = draw(torch.Generator().manual_seed(2), 1000)
        error = nn.functional.mse_loss(predict(samples, intervals), target)
    return float(error / target.var())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few updates only")
    updates = 3 if parser.parse_args().quick else 200
    print("unexplained variance of the forecast (0 is perfect, 1 is a guess)")
    print(f"  with time stamps, isometric:  {score(RoaODE, True, updates):.3f}")
    print(f"  with time stamps, euler:      {score(RoaEuler, True, updates):.3f}")
    print(f"  without time stamps:          {score(RoaODE, False, updates):.3f}")
