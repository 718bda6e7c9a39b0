# %%
# # Train in several processes
#
# Each process takes a part of every batch, and `DistributedDataParallel` averages the gradients. A
# `RoaRNN` needs nothing for it: its filter is a buffer, and DDP sends buffers and weights of the
# first process to all others. Start this script with
#
# ```bash
# torchrun --standalone --nproc-per-node 2 examples/processes.py
# ```
#
# on one machine, or on each of several machines with `--nnodes` and `--rdzv-endpoint`, as in
# [Several processes and machines](../scale.md). Plain `python` starts it in one process.

import os
import sys

import matplotlib.pyplot as plt
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from roann import RoaRNN

QUICK = "--quick" in sys.argv  # fewer updates, to see that the script runs
UPDATES = 500 if not QUICK else 3
STEPS, BATCH = 100, 32


class Recall(nn.Module):
    """Says after the last step what the first input was."""

    def __init__(self):
        super().__init__()
        self.rnn = RoaRNN(1, 128, horizon=STEPS)
        self.head = nn.Linear(128, 1)

    def forward(self, u):
        return self.head(self.rnn(u)[0][-1])


# %%
# ## The loop
#
# Three lines are not those of a loop in one process: the group, the wrapper, and the part of the
# batch. The batch itself is a function of the update, so any number of processes trains on the
# same numbers.

together = "RANK" in os.environ  # started by torchrun
if together:
    dist.init_process_group("gloo")  # "nccl" for GPUs
rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)

torch.manual_seed(0)
model = Recall()
trained = DistributedDataParallel(model) if together else model
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
losses = []
for update in range(UPDATES):
    u = torch.rand(STEPS, BATCH, 1, generator=torch.Generator().manual_seed(update))
    part = u.chunk(world, dim=1)[rank]
    loss = nn.functional.mse_loss(trained(part), part[0])
    optimizer.zero_grad()
    loss.backward()  # gradients of all processes are averaged here
    optimizer.step()
    mean = loss.detach()
    if together:
        dist.all_reduce(mean)
    losses.append(mean.item() / world)

# %%
# ## Results
#
# All processes have the same weights; the first one saves and prints. With two processes the
# numbers are the same, to rounding.

if rank == 0:
    torch.save(model.state_dict(), "recall.pt")
    print(f"first loss {losses[0]:.4f}")
    print(f"last loss {losses[-1]:.4f}")
    figure, ax = plt.subplots(figsize=(6, 2.5), layout="constrained")
    ax.semilogy(losses)
    ax.set(xlabel="update", ylabel="loss, mean of all processes")
    figure.savefig("processes.svg")
if together:
    dist.destroy_process_group()

# %%
# ![The loss by update](processes.svg)
#
# A loop like this ends when one process dies. `roann run FILE --processes 2` starts processes
# again from the last checkpoint; see [what is guaranteed](../scale.md#what-is-guaranteed).
