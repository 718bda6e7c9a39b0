"""ρ learned: a network that finds how long it must remember.

The adding problem over 100 steps: add the two numbers that are marked. The best α is near 1e-3,
but who knows that beforehand? Each row starts from another α and trains the same network three
times: with α as it is, with one α that is learned, and with one for each neuron.

    python examples/learned_rho.py           # about half a minute
    python examples/learned_rho.py --quick   # a few seconds, to see that it runs
"""

import argparse

import torch
from torch import Tensor, nn

from roann import PAPER, RoaRNN

T, N, BATCH = 100, 32, 50


def adding(generator: torch.Generator, batch: int) -> tuple[Tensor, Tensor]:
    """Inputs (T, B, 2) of a number and a mark, and the sum (B, 1) of the two marked numbers."""
    u = torch.rand(T, batch, 2, generator=generator)
    u[:, :, 1] = 0
    rows = torch.arange(batch)
    first = torch.randint(0, T // 2, (batch,), generator=generator)
    second = torch.randint(T // 2, T, (batch,), generator=generator)
    u[first, rows, 1] = u[second, rows, 1] = 1
    return u, (u[first, rows, 0] + u[second, rows, 0]).unsqueeze(1)


def train(alpha: float | Tensor, learn: bool, updates: int) -> tuple[float, RoaRNN]:
    """The mean squared error after training (a guess has 0.167), and the network."""
    g = torch.Generator().manual_seed(0)
    rnn = RoaRNN(2, N, alpha=alpha, learn_rho=learn, generator=g, **PAPER)
    torch.manual_seed(0)
    head = nn.Linear(N, 1)
    # A step of size η on a logit changes α by the factor e^η: a small rate of its own.
    logits = [p for name, p in rnn.named_parameters() if name.startswith("alpha_logit")]
    others = [p for name, p in rnn.named_parameters() if not name.startswith("alpha_logit")]
    optimizer = torch.optim.Adam(
        [{"params": [*others, *head.parameters()], "lr": 0.3}, {"params": logits, "lr": 0.02}]
    )
    everything = [*rnn.parameters(), *head.parameters()]
    stream = torch.Generator().manual_seed(1)
    for _ in range(updates):
        u, target = adding(stream, BATCH)
        optimizer.zero_grad()
        _, h_n = rnn(u, last_only=True)
        nn.functional.mse_loss(head(h_n[0]), target).backward()
        nn.utils.clip_grad_norm_(everything, 1.0)
        optimizer.step()
    with torch.no_grad():
        u, target = adding(torch.Generator().manual_seed(2), 1000)
        return float(nn.functional.mse_loss(head(rnn(u, last_only=True)[1][0]), target)), rnn


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a few updates only")
    updates = 3 if parser.parse_args().quick else 500
    print(f"mean squared error after {updates} updates")
    print("   first α     fixed   learned   per neuron   (and where α ended)")
    for alpha in (1e-5, 1e-3, 1e-2):
        fixed, _ = train(alpha, False, updates)
        one, with_one = train(alpha, True, updates)
        many, with_many = train(torch.full((N,), alpha), True, updates)
        ended = torch.as_tensor(with_many.alpha).detach()
        print(
            f"{alpha:10.0e} {fixed:9.5f} {one:9.5f} {many:12.5f}   "
            f"{float(with_one.alpha.detach()):.1e}, {ended.min():.1e} … {ended.max():.1e}"
        )
