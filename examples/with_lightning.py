# %%
# # Train with Lightning
#
# The task is that of [Train in several processes](processes.md), and Lightning has the loop. Again
# the layer needs nothing: put it into a `LightningModule`. Start the script with `python`, or in
# two processes with
#
# ```bash
# torchrun --standalone --nproc-per-node 2 examples/with_lightning.py
# ```

import os
import sys
import warnings

import matplotlib.pyplot as plt
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from roann import RoaRNN

QUICK = "--quick" in sys.argv  # fewer updates, to see that the script runs
UPDATES = 500 if not QUICK else 3
STEPS, BATCH = 100, 32

# %%
# ## Data and module
#
# Each process gets other examples of the data set. `batch_first=True` suits the loader.


class Sequences(Dataset):
    def __len__(self):
        return UPDATES * BATCH

    def __getitem__(self, index):
        return torch.rand(STEPS, 1, generator=torch.Generator().manual_seed(index))


class Recall(pl.LightningModule):
    """Says after the last step what the first input was."""

    def __init__(self):
        super().__init__()
        self.rnn = RoaRNN(1, 128, horizon=STEPS, batch_first=True)
        self.head = nn.Linear(128, 1)
        self.losses = []

    def forward(self, u):
        return self.head(self.rnn(u)[0][:, -1])

    def training_step(self, u, index):
        loss = nn.functional.mse_loss(self(u), u[:, 0])
        self.losses.append(self.trainer.strategy.reduce(loss.detach(), reduce_op="mean").item())
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.03)


# %%
# ## The loop
#
# The seed gives every process the same weights and filter. Without a sampler of yours, Lightning
# deals out the examples in a random order; with this one, all processes together have the batches
# of one.

warnings.filterwarnings("ignore", ".*does not have many workers.*")  # none is needed here
rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
pl.seed_everything(0, verbose=False)
model = Recall()
trainer = pl.Trainer(
    accelerator="cpu",
    devices=world,
    strategy="ddp" if world > 1 else "auto",
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
sampler = DistributedSampler(Sequences(), world, rank, shuffle=False)
trainer.fit(model, DataLoader(Sequences(), batch_size=BATCH // world, sampler=sampler))

# %%
if trainer.is_global_zero:
    print(f"first loss {model.losses[0]:.4f}")
    print(f"last loss {model.losses[-1]:.4f}")
    figure, ax = plt.subplots(figsize=(6, 2.5), layout="constrained")
    ax.semilogy(model.losses)
    ax.set(xlabel="update", ylabel="loss, mean of all processes")
    figure.savefig("with_lightning.svg")

# %%
# ![The loss by update](with_lightning.svg)
