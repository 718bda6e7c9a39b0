# %%
# # Irregular time stamps
#
# Your samples come when they come: a patient is measured when a nurse has time, a sensor reports
# when something changes. A layer that counts samples does not know how much time has passed.
# `RoaODE` reads the clock.

import math
import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

from roann import RoaEuler, RoaODE

QUICK = "--quick" in sys.argv  # a few updates only, to see that the script runs
T, N, DT = 50, 64, 2.0
UPDATES = 200 if not QUICK else 3

# %%
# ## The data
#
# A sine of unknown frequency and phase is seen at random times, different for every sequence. What
# will it be one unit of time after the last sample? Without time stamps the samples look like
# noise.


def draw(generator, batch):
    """Samples (T, B, 1), the intervals before them (T, B), and the value to predict (B, 1)."""
    intervals = 2 * torch.rand(T, batch, generator=generator)
    times = intervals.cumsum(0) - intervals.sum(0)  # the last sample is at time 0
    frequency = 0.5 + 2 * torch.rand(batch, generator=generator)
    phase = 2 * math.pi * torch.rand(batch, generator=generator)
    samples = torch.sin(frequency * times + phase)
    return samples.unsqueeze(-1), intervals, torch.sin(frequency + phase).unsqueeze(-1)


samples, intervals, target = draw(torch.Generator().manual_seed(0), 4)
times = intervals.cumsum(0)
figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.5), sharey=True, layout="constrained")
left.plot(samples[:, 0, 0], "o-", markersize=3, linewidth=0.5)
left.set(xlabel="number of the sample", title="without time stamps")
right.plot(times[:, 0], samples[:, 0, 0], "o", markersize=3)
right.set(xlabel="time", title="with time stamps")
figure.savefig("irregular_data.svg")

# %%
# ![The same samples by number and by time](irregular_data.svg)
#
# ## Pass the times
#
# `times=` takes time stamps and `intervals=` the time before each sample: `(T,)` for all sequences
# of a batch, or `(T, B)` for each. In both the state turns by the time that really passed:

ode = RoaODE(1, N, horizon=T)
by_times, _ = ode(samples, times=times)
by_intervals, _ = ode(samples, intervals=torch.cat([torch.ones(1, 4), intervals[1:]]))
print("times and intervals agree:", torch.allclose(by_times, by_intervals, atol=1e-4))

# %%
# `dt` is the interval at which the layer behaves like a `RoaRNN` with this `horizon`, in the unit
# of your time stamps. The memory reaches over about `horizon * dt` units of time. Here
# oscillations must be followed, so the recurrence gets a larger `rho` and random rotations in
# place of the defaults.
#
# Three networks are trained. Two read the clock: `RoaODE`, whose steps keep the length of the
# state for any interval, and `RoaEuler`, which takes Euler's steps of the paper's differential
# equation. The third is told that all intervals are equal.


def unexplained(layer, stamped):
    """Train, and return the share of the variance that stays unexplained."""
    ode = layer(
        1, N, "tanh", rho=8.0, horizon=T / DT, dt=DT, filter="rotations", init="scaled_normal",
        gain=1.0, max_norm=None, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    torch.manual_seed(0)
    head = nn.Linear(N, 1)
    parameters = [*ode.parameters(), *head.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, UPDATES)

    def predict(samples, intervals):
        _, h_n = ode(samples, intervals=intervals if stamped else torch.ones(T), last_only=True)
        return head(h_n[0])

    stream = torch.Generator().manual_seed(1)
    for _ in range(UPDATES):
        samples, intervals, target = draw(stream, 64)
        optimizer.zero_grad()
        nn.functional.mse_loss(predict(samples, intervals), target).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        samples, intervals, target = draw(torch.Generator().manual_seed(2), 1000)
        error = nn.functional.mse_loss(predict(samples, intervals), target)
    return float(error / target.var())


scores = {
    "RoaODE": unexplained(RoaODE, True),
    "RoaEuler": unexplained(RoaEuler, True),
    "no time stamps": unexplained(RoaODE, False),
}
print("share of the variance that stays unexplained (0 is perfect, 1 is a guess)")
for name, score in scores.items():
    print(f"{name:<15} {score:.3f}")

# %%
figure, ax = plt.subplots(figsize=(6, 2), layout="constrained")
ax.barh(list(scores), list(scores.values()))
ax.axvline(1, color="gray", linestyle="--")
ax.invert_yaxis()
ax.set(xlabel="unexplained variance of the forecast")
figure.savefig("irregular_scores.svg")

# %%
# ![Unexplained variance of the three networks](irregular_scores.svg)
#
# ## Good to know
#
# - The theorem's bound holds for `RoaODE` at any sampling. `RoaEuler` and `RoaFlow`, which
#   integrates the equation with a solver (extra `[ode]`), have no such guarantee.
# - Intervals that differ from row to row run as a plain loop. Equal ones, `(T,)`, use the fast
#   scan.
# - `RoaODE` has one layer and one direction.
# - The [estimators](../estimators.md#what-x-may-be) take time stamps too: `fit(X, y, times=...)`.
# - A regular grid with gaps needs none of this: write NaN where a value is missing.
