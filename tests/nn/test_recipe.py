"""Default layers learn at the first try: two long tasks, one learning rate, every seed."""

import pytest
import torch
import torch.nn.functional as F

from roann import RoaRNN

SYMBOLS, RECALLED, LAG, LENGTH = 8, 10, 150, 400
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("seed", [100, 101, 102])]


class Net(torch.nn.Module):
    """A default layer and a linear readout that starts at zero."""

    def __init__(self, inputs, outputs, horizon, generator):
        super().__init__()
        self.rnn = RoaRNN(inputs, 128, horizon=horizon, generator=generator)
        self.readout = torch.nn.Linear(128, outputs)
        for p in self.readout.parameters():
            torch.nn.init.zeros_(p)

    def forward(self, u):
        return self.readout(self.rnn(u)[0])


def step_of_success(net, batch, loss, solved, steps):
    """The step from which `solved` holds on sequences apart; None if it never does."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    apart = batch(500)
    for k in range(1, steps + 1):
        u, y = batch(100)
        optimizer.zero_grad()
        loss(net(u), y).backward()
        optimizer.step()
        if k % 50 == 0:
            with torch.no_grad():
                if solved(net(apart[0]), apart[1]):
                    return k
    return None


def test_adding(seed):
    """T = 400: below 0.01 within 1,500 steps."""
    g = torch.Generator().manual_seed(seed)

    def batch(B):
        half, rows = LENGTH // 2, torch.arange(B)
        first = torch.randint(half, (B,), generator=g)
        second = torch.randint(half, LENGTH, (B,), generator=g)
        values, marks = torch.rand(LENGTH, B, generator=g), torch.zeros(LENGTH, B)
        marks[first, rows] = marks[second, rows] = 1
        return torch.stack([values, marks], -1), values[first, rows] + values[second, rows]

    def loss(out, y):
        return F.mse_loss(out[-1, :, 0], y)

    net = Net(2, 1, LENGTH, g)
    assert step_of_success(net, batch, loss, lambda out, y: loss(out, y) < 0.01, 1500)


def test_copying(seed):
    """A lag of 150: above 99 % within 300 steps."""
    g = torch.Generator().manual_seed(seed)

    def batch(B):
        symbols = torch.randint(1, SYMBOLS + 1, (RECALLED, B), generator=g)
        shown = torch.zeros(LAG + 2 * RECALLED, B, dtype=torch.long)
        shown[:RECALLED], shown[LAG + RECALLED] = symbols, SYMBOLS + 1
        wanted = torch.zeros_like(shown)
        wanted[-RECALLED:] = symbols
        return F.one_hot(shown, SYMBOLS + 2).float(), wanted

    def loss(out, y):
        return F.cross_entropy(out.flatten(0, 1), y.flatten())

    def solved(out, y):
        return (out[-RECALLED:].argmax(-1) == y[-RECALLED:]).float().mean() > 0.99

    net = Net(SYMBOLS + 2, SYMBOLS + 1, LAG + RECALLED, g)
    assert step_of_success(net, batch, loss, solved, 300)
