# %%
# # Put a filter around your own network
#
# You have blocks of your own, and too many of them to train. `Roa(block)` turns each x → f(x) into
# x → α f(x) + (1 − α) O x. It works for any module that keeps the shape of its input, or changes
# the width alone: linear blocks, convolutions, recurrent cells.

import math
import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

from roann import Roa

QUICK = "--quick" in sys.argv  # fewer blocks and updates, to see that the script runs
DEPTH, UPDATES = (100, 120) if not QUICK else (20, 3)
WIDTH = 16

# %%
# ## A hundred blocks
#
# The data are two spirals. The network is a linear layer, a hundred blocks of two linear layers
# each, and a linear layer. The only difference between the two networks is one line.


def spirals(generator, n):
    """Points (n, 2) of two arms, and the arm (n,) of each."""
    turn = 1.5 * math.pi * torch.rand(n, generator=generator).sqrt()
    arm = torch.randint(0, 2, (n,), generator=generator)
    angle = turn + math.pi * arm
    points = (turn * torch.stack([angle.cos(), angle.sin()])).T / (1.5 * math.pi)
    return points + 0.01 * torch.randn(n, 2, generator=generator), arm


def block():
    return nn.Sequential(
        nn.Linear(WIDTH, 2 * WIDTH), nn.Tanh(), nn.Linear(2 * WIDTH, WIDTH), nn.Tanh()
    )


def network(wrapped):
    torch.manual_seed(0)
    blocks = [block() for _ in range(DEPTH)]
    if wrapped:
        filters = torch.Generator().manual_seed(0)
        blocks = [Roa(f, rho=2.0, horizon=DEPTH, generator=filters) for f in blocks]
    return nn.Sequential(nn.Linear(2, WIDTH), *blocks, nn.Linear(WIDTH, 2))


# %%
# `horizon` is the number of such blocks in a row. `rho` is how much all of them together may do.


def train(net):
    """Accuracy on new points, and the first gradient norm of every layer."""
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    stream = torch.Generator().manual_seed(1)
    gradients = None
    for _ in range(UPDATES):
        x, arm = spirals(stream, 128)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), arm).backward()
        if gradients is None:
            gradients = [next(layer.parameters()).grad.double().norm().item() for layer in net]
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        x, arm = spirals(torch.Generator().manual_seed(2), 1000)
        return (net(x).argmax(1) == arm).float().mean().item(), gradients


results = {}
for name, wrapped in (("plain", False), ("wrapped", True)):
    accuracy, gradients = results[name] = train(network(wrapped))
    print(f"{name:<8} accuracy {accuracy:.3f}, gradient norm at the first layer {gradients[0]:.1e}")

# %%
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for name, (_, gradients) in results.items():
    ax.semilogy([max(g, 1e-46) for g in gradients], label=name)
ax.set(xlabel="block", ylabel="first gradient norm")
ax.legend()
figure.savefig("wrap.svg")

# %%
# ![Gradient norms by block, plain and wrapped](wrap.svg)
#
# Gradients that underflow to zero are drawn at the bottom.
#
# ## Convolutions
#
# The filter acts along the features. For images they are dimension 1:

image = Roa(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()), horizon=100, dim=1)
print("image", tuple(image(torch.randn(2, 8, 32, 32)).shape))

# %%
# ## Recurrent cells
#
# A cell f(u, x) is filtered along its state. You keep its gates, and the state no longer fades. An
# LSTM's h and c get the same filter.


def first_state(cell, steps=500 if not QUICK else 30):
    """The gradient norm of the last state's sum with respect to the first state."""
    torch.manual_seed(0)
    start = torch.randn(1, 64, requires_grad=True)
    x = start
    for u in torch.randn(steps, 1, 2):
        x = cell(u, x)
    (gradient,) = torch.autograd.grad(x.sum(), start)
    return gradient.norm().item()


torch.manual_seed(0)
gru = nn.GRUCell(2, 64)
for name, cell in (("plain", gru), ("wrapped", Roa(gru, horizon=500))):
    print(f"GRU cell, {name:<8} gradient norm at the first state {first_state(cell):.1e}")

# %%
# ## What is guaranteed
#
# If f is Lipschitz with constant λ, a block changes the length of a gradient by a factor between 1
# − α − αλ and 1 − α + αλ. Over `horizon` blocks that is about $e^{\pm\rho\lambda}$, shrunk by
# $e^{-\rho}$. `Roa` does not know your λ and does not bound it: measure, as in [See what your
# gradients do](gradients.md).
#
# If your blocks are linear layers of one width and nothing else, [`RoaFNN`](deep.md) is faster.
