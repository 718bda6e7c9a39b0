# %%
# # Choose ρ, horizon, filter, width and learning rate
#
# The defaults are meant to work. This guide measures how far you can move each setting before
# training suffers, on two small tasks that ask for opposite things:
#
# - *adding* (T = 40): find two marked numbers in noise and add them. It needs states that stand
#   still. The score is the mean squared error; a guess has 1/6, so lower is better.
# - *copying* (20 blanks): repeat ten symbols in order. It needs states that tell times apart. The
#   score is the share of symbols recalled; a guess has 1/8, so higher is better.
#
# Each number is the median of three seeds after a short training. Read the ranges, not the digits.

import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

import roann
from roann.lab.tasks import TASKS

QUICK = "--quick" in sys.argv  # a few updates only, to see that the script runs
torch.set_num_threads(1)  # small matrices: more threads wait more than they work
SEEDS, UPDATES = ((0, 1, 2), {"adding": 150, "copying": 80}) if not QUICK else (
    (0,), {"adding": 2, "copying": 2})  # fmt: skip
ROWS = {
    "adding": {"length": 40, "batch_size": 20, "eval_batches": 8},
    "copying": {"lag": 20, "batch_size": 20, "eval_batches": 2},
}
BASE = {"lr": 0.03, "width": 128, "rho": 0.3, "horizon": 1.0, "filter": "broad"}

# %%
# `score` trains one network with one setting changed. The horizon is given in lengths of the task.


def score(task_name, seed, **changed):
    setting = BASE | changed
    row = TASKS[task_name]
    task = row.build(row.config(**ROWS[task_name]))
    torch.manual_seed(seed)
    rnn = roann.RoaRNN(
        task.input_size, setting["width"], rho=setting["rho"], filter=setting["filter"],
        horizon=setting["horizon"] * task.horizon,
    )  # fmt: skip
    readout = nn.Linear(setting["width"], task.output_size)
    nn.init.zeros_(readout.weight)
    nn.init.zeros_(readout.bias)
    optimizer = torch.optim.Adam([*rnn.parameters(), *readout.parameters()], lr=setting["lr"])

    def answer(u):
        output, h_n = rnn(u)
        return readout(output if task.readout == "all" else h_n[0])

    for step in range(UPDATES[task_name]):
        batch = task.batch(seed, step)
        optimizer.zero_grad()
        task.loss(answer(batch.inputs), batch.targets).backward()
        optimizer.step()
    with torch.no_grad():
        found = [
            task.scores(answer(batch.inputs), batch.targets)[task.primary]
            for batch in task.evaluate_sets(seed, 0)["eval"]
        ]
    return sum(found) / len(found)


def median(task_name, **changed):
    found = sorted(score(task_name, seed, **changed) for seed in SEEDS)
    return found[len(found) // 2]


# %%
# ## Measure
#
# One setting is varied at a time. The others are the defaults.

VALUES = {
    "lr": (0.001, 0.01, 0.03, 0.1, 0.3),
    "rho": (0.1, 0.3, 1.0, 3.0),
    "horizon": (0.3, 1.0, 3.0, 10.0),
    "width": (32, 64, 128),
    "filter": ("broad", "still", "slow", "spread", "qr"),
}
measured = {}
print("setting  value   error, adding  recall, copying")
for name, values in VALUES.items():
    for value in values:
        key = (name, value) if value != BASE[name] else "base"
        if key not in measured:
            measured[key] = [median(task, **{name: value}) for task in ROWS]
        measured[name, value] = adding, copying = measured[key]
        print(f"{name:<8} {value!s:<7} {adding:13.4f}  {copying:15.2f}")

# %%
figure, axes = plt.subplots(2, 5, figsize=(10, 4), sharey="row", layout="constrained")
for column, (name, values) in zip(axes.T, VALUES.items()):
    for ax, which in zip(column, (0, 1)):
        heights = [measured[name, value][which] for value in values]
        colors = ["C1" if value == BASE[name] else "C0" for value in values]
        ax.bar([str(value) for value in values], heights, color=colors)
        ax.tick_params(axis="x", labelsize=7, rotation=30)
    column[0].set_title(name)
    column[0].set_yscale("log")
    column[0].minorticks_off()
    column[0].axhline(1 / 6, color="gray", linestyle="--")
    column[1].axhline(1 / 8, color="gray", linestyle="--")
axes[0, 0].set_ylabel("adding: error")
axes[1, 0].set_ylabel("copying: recall")
figure.savefig("choose.svg")

# %%
# ![Scores by learning rate, ρ, horizon, width and filter](choose.svg)
#
# Orange bars are the defaults, dashed lines a guess.
#
# ## What the numbers say
#
# - **Learning rate.** 0.01 to 0.1 learn both tasks, and 0.03, which the long runs use, is the best.
#   0.001 has learned nothing yet. 0.3 loses the task that must integrate.
# - **ρ and horizon.** A `rho` of a third, or of three times the default, changes little; ten times
#   the default loses what must be recalled. A `horizon` that is wrong by three either way changes
#   little, too. If you are not sure how long the memory must be, guess long.
# - **Width.** It is the first thing to raise. Memory is stored in the state, and what must be kept
#   at the same time must fit.
# - **Filter.** `"still"` integrates and cannot tell times apart; `"spread"` tells times apart and
#   cannot integrate; `"broad"`, the default, does both.
#   On permuted MNIST, where one answer depends on every pixel, `"spread"` ends above `"broad"`
#   with all else equal (`results/recipe/psmnist-34k*`).
#
# ## Decide
#
# | what you know | what to set |
# |---|---|
# | nothing yet | `RoaRNN(I, 128, horizon=T)`, Adam 0.03, a readout that starts at zero |
# | the loss stays on a plateau | more width; more updates; three times the rate, or a third |
# | the loss jumps | a third of the learning rate, or a gradient norm of at most 1 |
# | the same data come again every epoch | Adam at 0.01, lowered towards the end |
# | sums, counts, averages over time | `filter="still"`, or stay with `"broad"` |
# | many details must be repeated in order | `filter="spread"` |
# | one answer depends on all steps | a readout of several states: [First steps](../start.md) |
# | the memory is much shorter than the sequence | `horizon` = that memory |
# | the memory is of unknown length | `horizon=T`, or `learn_rho=True`: `examples/learned_rho.py` |
# | a narrow guarantee is wanted | `max_norm=3.0`; see [the certificate](gradients.md) |
# | the network underfits | a readout with a hidden layer, or `num_layers=2` |
# | few neurons, short sequences | `rho=1.0`: more nonlinearity, a wider interval |
# | the paper's layer | `rho=1.0, **roann.PAPER`; it wants other rates: [First steps](../start.md) |
#
# Longer runs, with all seeds, are in `results/recipe`: adding and copying over up to 10,000 steps
# are solved in every seed, with the default ρ and filter and Adam at 0.03; the widths are 128 and
# 190. Change one thing at a time, and on more than one seed.
