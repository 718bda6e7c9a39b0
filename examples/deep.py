# %%
# # Very deep networks
#
# Depth is time with other weights at each step. `RoaFNN` applies the same equation from layer to
# layer, so gradients survive thousands of layers. In practice you rarely need so many: this guide
# shows that depth alone is no obstacle, and what to set.

import math
import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

import roann

QUICK = "--quick" in sys.argv  # few layers and updates, to see that the script runs
DEPTH, UPDATES = (10_000, 150) if not QUICK else (50, 3)
torch.manual_seed(0)

# %%
# ## Gradients by layer
#
# `RoaFNN` takes a list of widths. Consecutive layers of one width are one stacked tensor, so a
# deep network has few parameter tensors, and one scan computes all its layers. With `alpha=1.0` it
# is an ordinary network of tanh layers: a fair comparison in the same code.

sizes = [2] * DEPTH + [1]
net = roann.RoaFNN(sizes, rho=5.0)
plain = roann.RoaFNN(sizes, alpha=1.0)
print(f"{DEPTH} layers, {sum(1 for _ in net.parameters())} parameter tensors")

x = torch.randn(100, 2)
by_layer = {}
for name, model in (("RoaFNN", net), ("alpha=1: plain tanh layers", plain)):
    model(x).sum().backward()
    by_layer[name] = model.weight_0.grad.double().flatten(1).norm(dim=1)
    first, last = by_layer[name][0], by_layer[name][-1]
    print(f"{name:<27} gradient norm at the first layer {first:.1e}, at the last {last:.1e}")

# %%
# ## Training
#
# The *double moon*: two half rings that interlock. A network of width two must bend the plane
# layer by layer until a line separates them. Adam takes one learning rate at any depth.


def moons(n):
    """Points (n, 2), and −1 or 1 for the moon of each."""
    angle = math.pi * torch.rand(n)
    radius = 10 + 6 * (torch.rand(n) - 0.5)
    upper = torch.rand(n) < 0.5
    ring = torch.stack([radius * angle.cos(), radius * angle.sin()], 1)
    points = torch.where(upper[:, None], ring, torch.tensor([10.0, 5.0]) - ring)
    return points / 10, torch.where(upper, -1.0, 1.0)[:, None]


def train(model):
    """The loss of each update."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    losses = []
    for _ in range(UPDATES):
        points, label = moons(100)
        loss = nn.functional.mse_loss(model(points), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


curves = {"RoaFNN": train(net), "alpha=1: plain tanh layers": train(plain)}
points, label = moons(1000)
for name, model in (("RoaFNN", net), ("alpha=1: plain tanh layers", plain)):
    with torch.no_grad():
        right = (model(points).sign() == label).float().mean()
    print(f"{name:<27} accuracy on new points {right:.3f}")

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
layers = torch.linspace(0, DEPTH - 2, 40).long()
for name in curves:
    left.semilogy(layers, by_layer[name][layers].clamp_min(1e-46), label=name)
    right.plot(curves[name], label=name)
left.set(xlabel="layer", ylabel="first gradient norm")
right.set(xlabel="update", ylabel="training loss")
right.legend()
figure.savefig("deep.svg")

# %%
# ![Gradient norms by layer, and the training loss](deep.svg)
#
# Gradients that underflow to zero are drawn at the bottom of the left picture.
#
# ## What to set
#
# - `rho` is how much the whole network may change its input, however many layers share the work.
#   The horizon is the depth by default, so you can change the depth and keep `rho`.
# - Adam: one learning rate at any depth. For SGD, gradients shrink with the depth;
#   `torch.optim.SGD(roann.parameter_groups(net, lr))` gives every parameter the rate it needs.
# - `memory="checkpoint"` or `"reversible"` stores fewer activations: [Kernels and
#   memory](../numerics.md).
# - Blocks of your own, such as convolutions: [put a filter around them](wrap.md).
