# %%
# # See what your gradients do
#
# A network learns a long dependence only if a gradient reaches the step where it began. You can
# look at this before you train. This guide draws the gradients of three networks, and says what
# the *certificate* of a `RoaRNN` means.

import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

import roann
from roann.diagnostics import GradientWatcher, gradient_along_time
from roann.lab.figures import certificate_spectrum

QUICK = "--quick" in sys.argv  # short and narrow, to see that the script runs
T, N, UPDATES = (500, 64, 100) if not QUICK else (40, 12, 3)
torch.manual_seed(0)

# %%
# ## Along time
#
# `gradient_along_time` takes a model, its inputs and a loss, and returns the norm of the gradient
# of the loss with respect to the state at each step. It works for `RoaRNN`, for torch's RNN, GRU
# and LSTM, and for anything with a method `step(x, u)`. Here the loss depends on the last output
# alone.

u = torch.randn(T, 8, 2)
models = {"RoaRNN": roann.RoaRNN(2, N, horizon=T), "nn.RNN": nn.RNN(2, N), "nn.LSTM": nn.LSTM(2, N)}
norms = {}
for name, model in models.items():
    norms[name] = gradient_along_time(model, u, lambda output: output[-1].square().sum())
    ratio = norms[name][0] / norms[name][-1]
    print(f"{name:<8} gradient at the first state over the last: {ratio:.1e}")

# %%
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for name, norm in norms.items():
    ax.semilogy(norm / norm[-1], label=name)
ax.set(xlabel="step", ylabel="gradient norm / last", ylim=(1e-12, 1e3))
ax.legend()
figure.savefig("gradients_time.svg")

# %%
# ![Gradient norms of three networks along time](gradients_time.svg)
#
# Where a line leaves the bottom of the picture, the network cannot learn what happened before.
#
# ## The certificate
#
# The picture shows one loss and one direction. The Jacobian of the last state with respect to the
# first holds all directions: its singular values say how much the longest-lived and the
# shortest-lived direction change. `certify` measures them, and compares them with what the theorem
# promises.

certificate = roann.certify(models["RoaRNN"], u[:, :1])
print(certificate)

# %%
# Read it from the top:
#
# - **The hypothesis** is what the theorem needs. The default cap on ‖W‖ (`max_norm`) keeps it true.
# - **this M** is the interval in which every singular value must lie for this number of steps, for
#   any input. It follows from ρ and the cap alone, so training cannot break it.
# - **measured** is what the singular values are, for these inputs. They lie inside, often far
#   inside.
# - **The verdict** says both in words.
#
# The interval is a guarantee, not a forecast. It is about $e^{\pm\rho c}$ with a cap $c$: the
# default cap of 10 is wide. A smaller cap promises more and leaves W less room. `interval()` tells
# you before you have any data:

for c in (1.0, 3.0, 10.0):
    interval = roann.RoaRNN(2, N, horizon=T, max_norm=c).interval()
    print(f"max_norm={c:<4g} every singular value in {interval}")

# %%
# For a system that no theorem covers, the certificate is a measurement:

for name in ("nn.RNN", "nn.LSTM"):
    print(f"{name}: {roann.certify(models[name], u[:, :1]).verdict}")

# %%
# ## During training
#
# Weights grow while they learn. Measure again after training: the values have moved, and the
# interval is the same. `GradientWatcher` records the norms of real training steps inside a `with`
# block, at the price of a second run of each watched layer. Here the network learns to repeat its
# first input.

rnn, readout = models["RoaRNN"], nn.Linear(N, 2)
nn.init.zeros_(readout.weight)
optimizer = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=0.03)


def update():
    u = torch.randn(T, 16, 2)
    loss = nn.functional.mse_loss(readout(rnn(u, last_only=True)[1][0]), u[0])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


for _ in range(UPDATES):
    update()
with GradientWatcher(rnn) as watch:
    update()
states = watch.states[""][0]  # one row for each backward pass
ratio = states[0] / states[-1]
print(f"in one training step: gradient at the first state over the last: {ratio:.2f}")
after = roann.certify(rnn, u[:, :1])
print("inside the interval after training:", after.inside)

# %%
figure = certificate_spectrum(after)
figure.savefig("gradients_spectrum.svg")

# %%
# ![Singular values after training, and the interval of the theorem](gradients_spectrum.svg)
#
# ## What it does not mean
#
# - That the network will learn. Gradients that survive are necessary, not sufficient.
# - That every input matters. The certificate speaks of states. What an input adds to the state is
#   decided by W_i, the gain and training; `plot_memory` of the [estimators](../estimators.md)
#   shows it.
# - Without a cap (`max_norm=None`) and with the paper's first weights the bound holds, but is too
#   wide to be useful. The certificate then calls it *vacuous*: look at the measured spectrum.
#
# With several layers or directions, `layer=` chooses the recurrence to certify.
# [Mathematics](../mathematics.md) has the theorems and their proofs.
