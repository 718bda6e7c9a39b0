# %%
# # Your first long sequence
#
# You train a layer that must remember two numbers over 200 steps. This takes fifty lines and about
# half a minute. You need torch, `roann` and matplotlib.

import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

import roann

QUICK = "--quick" in sys.argv  # a few updates only, to see that the script runs
T, N, UPDATES = (200, 128, 300) if not QUICK else (30, 16, 5)
torch.manual_seed(0)

# %%
# ## The data
#
# The *adding problem* is the usual first test of memory. Each of the T steps shows a random number
# and a mark. Two steps are marked, one in each half. At the end the network must give the sum of
# the two marked numbers. It can only do so if it holds the first number over many steps of noise.


def adding(batch):
    """Inputs (T, batch, 2) and targets (batch, 1)."""
    u = torch.rand(T, batch, 2)
    u[:, :, 1] = 0
    first = torch.randint(0, T // 2, (batch,))
    second = torch.randint(T // 2, T, (batch,))
    for marked in (first, second):
        u[marked, torch.arange(batch), 1] = 1
    return u, (u * u[:, :, 1:]).sum(0)[:, :1]


u, target = adding(3)
print("inputs", tuple(u.shape), "targets", tuple(target.shape))

# %%
# ## The network
#
# `RoaRNN` has the interface of `torch.nn.RNN` and one extra argument, `horizon`: the number of
# steps gradients must survive. Set it to the length of your sequences.
#
# The answer is read from the last state by a linear layer. Let this layer start at zero: a random
# one must first be unlearned. `last_only=True` leaves out the states in between, which nobody
# reads here.


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = roann.RoaRNN(2, N, horizon=T)
        self.readout = nn.Linear(N, 1)
        nn.init.zeros_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, u):
        _, h_n = self.rnn(u, last_only=True)
        return self.readout(h_n[0])


net = Network()

# %%
# ## Training
#
# Adam with a learning rate of 0.03 is the setting to start from. The loop is the one you know.

optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
losses = []
for _ in range(UPDATES):
    u, target = adding(50)
    loss = nn.functional.mse_loss(net(u), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

with torch.no_grad():
    u, target = adding(1000)
    error = nn.functional.mse_loss(net(u), target).item()
    guess = nn.functional.mse_loss(torch.ones_like(target), target).item()
print(f"mean squared error on new sequences: {error:.4f}")
print(f"if you always answer 1, the mean:    {guess:.4f}")

# %%
# Look at the curve before you change anything. The loss first stays on the plateau where the
# network answers with the mean. Then it falls quickly: the network has found the marked numbers.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.semilogy(losses, label="training loss")
ax.axhline(guess, color="gray", linestyle="--", label="always answer 1")
ax.set(xlabel="update", ylabel="mean squared error")
ax.legend()
figure.savefig("first_sequence.svg")

# %%
# ![The training loss falls from the plateau of the mean](first_sequence.svg)
#
# ## Keep it
#
# One file holds weights, filters and settings. It contains no pickle, so files from others are
# safe to load.

roann.save(net.rnn, "first_sequence.safetensors")
rnn = roann.load("first_sequence.safetensors")
print("the same layer:", torch.equal(rnn(u)[0], net.rnn(u)[0]))

# %%
# ## Next
#
# - The loss stays on the plateau? [Choose the settings](choose.md).
# - You want to know whether gradients reach the first step? [See your gradients](gradients.md).
# - You have labelled series and want no training loop? [Classify your own series](classify.md).
