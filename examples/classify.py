# %%
# # Classify your own series
#
# You have labelled series of unequal length, and some values are missing. `RoaClassifier` takes
# them as they are: no padding, no cutting, no filling. You need the extras `[estimators]` and
# `[lab]`.

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import confusion_matrix

from roann.estimators import RoaClassifier

QUICK = "--quick" in sys.argv  # few epochs only, to see that the script runs
EPOCHS, SERIES = (60, 300) if not QUICK else (2, 30)
random = np.random.default_rng(0)

# %%
# ## The data
#
# Replace this cell by your own. Each series is a noisy sensor with two short pulses, up or down.
# The class is their order, and the order is all that tells the classes apart: the pulses come at
# any time, and what lies between them is of any length.
#
# `X` is a list of arrays `(T_i,)`. With C channels they are `(T_i, C)`. Arrays `(n, T)` and `(n,
# T, C)`, tensors and data frames are fine too: see [what X may
# be](../estimators.md#what-x-may-be).

ORDERS = {"up, down": (1, -1), "down, up": (-1, 1), "up, up": (1, 1)}


def series(signs):
    length = random.integers(60, 161)
    x = 0.3 * random.normal(size=length)
    starts = random.integers(0, length // 2 - 6), random.integers(length // 2, length - 6)
    for start, sign in zip(starts, signs):
        x[start : start + 6] += 2 * sign
    return x


y = np.array(list(ORDERS) * (SERIES // 3))
X = [series(ORDERS[name]) for name in y]
half = len(X) // 2
print(f"{len(X)} series, {min(map(len, X))} to {max(map(len, X))} steps")

# %%
figure, axes = plt.subplots(1, 3, figsize=(8, 2), sharey=True, layout="constrained")
for ax, x, name in zip(axes, X, y):
    ax.plot(x, linewidth=0.8)
    ax.set(title=name, xlabel="step")
figure.savefig("classify_series.svg")

# %%
# ![One series of each class](classify_series.svg)
#
# ## Fit
#
# There is little to choose. The horizon is the longest training series, values are scaled by the
# training data, the learning rate warms up and falls. `random_state` makes the fit repeatable.

model = RoaClassifier(hidden_size=32, max_epochs=EPOCHS, random_state=0)
model.fit(X[:half], y[:half])
print(f"accuracy on new series: {model.score(X[half:], y[half:]):.2f}")
print(model.classes_)
print(confusion_matrix(y[half:], model.predict(X[half:])))

# %%
# Compare with something simple, always. A random forest on five statistics of each series does not
# see the order. With the places of the smallest and the largest value it does: if you know which
# feature matters, you may not need a network.


def statistics(X):
    return [[x.mean(), x.std(), x.min(), x.max(), len(x)] for x in X]


def places(X):
    return [[*row, x.argmin(), x.argmax()] for row, x in zip(statistics(X), X)]


for features in (statistics, places):
    forest = RandomForestClassifier(random_state=0).fit(features(X[:half]), y[:half])
    print(f"random forest on {features.__name__}: {forest.score(features(X[half:]), y[half:]):.2f}")

# %%
# ## Missing values
#
# Write NaN for a missing value. It is replaced by the last value seen, and the network is told
# which values were seen and how long ago. Here a fifth of all values is lost.

gaps = [np.where(random.random(len(x)) < 0.2, np.nan, x) for x in X]
holed = RoaClassifier(hidden_size=32, max_epochs=EPOCHS, random_state=0)
holed.fit(gaps[:half], y[:half])
print(f"accuracy with a fifth missing: {holed.score(gaps[half:], y[half:]):.2f}")

# %%
# ## Look at the fit
#
# `plot_history` shows whether training has ended too early or too late. `memory(x)` is the gradient
# norm of an answer at each step of a series. It says where a small change of the input would change
# the answer, which need not be where the pulses are. Here it reaches every step, from the first to
# the last. Where it is zero, the network cannot have learned anything.

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
model.plot_history(ax=left)
example = X[half]
right.plot(example, color="lightgray")
right.set(xlabel="step", ylabel="value")
twin = right.twinx()
twin.plot(model.memory([example])[0], color="C3")
twin.set(ylabel="gradient norm", ylim=(0, None))
right.set_title("series (gray), gradient norm (red)", fontsize="medium")
figure.savefig("classify_fit.svg")

# %%
# ![Loss by epoch; the gradient norm over one series](classify_fit.svg)
#
# ## Next
#
# - Few series? Compare with fixed features: [when not to use it](when_not.md).
# - Samples at irregular times? Pass `times=`: [irregular time stamps](irregular.md).
# - Settings, callbacks and what else the estimators do: [Estimators](../estimators.md).
