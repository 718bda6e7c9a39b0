# %%
# # Coming from nn.LSTM
#
# You have a model with `nn.LSTM` and your sequences are long. This guide changes it to `RoaRNN`
# line by line, and compares the two on a task of pure memory.
#
# | `nn.LSTM` | `RoaRNN` |
# |---|---|
# | `nn.LSTM(I, N)` | `RoaRNN(I, N, horizon=T)`, T the length of your sequences |
# | state `(h, c)` | state `h` |
# | `num_layers`, `bias`, `batch_first`, `dropout`, `bidirectional` | the same |
# | padded and packed sequences | the same |
# | `proj_size` | none: use `nn.Linear` on the output |
# | four gates: about $4N^2$ parameters | about $N^2$: take twice the width |
# | forgets by its forget gate | forgets by interference, over about a horizon; it has no gate |
# | Adam at 0.001 to 0.003, clipping | Adam at 0.03, no clipping to start with |
# | random readout | a readout that starts at zero |

import sys

import matplotlib.pyplot as plt
import torch
from torch import nn

import roann

QUICK = "--quick" in sys.argv  # short and narrow, to see that the script runs
T, N, UPDATES = (300, 64, 200) if not QUICK else (20, 8, 3)

# %%
# ## Before and after
#
# The two classes differ in three places: the layer, its state, the readout.


class WithLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, N)
        self.readout = nn.Linear(N, 4)

    def forward(self, u):
        _, (h_n, _) = self.rnn(u)
        return self.readout(h_n[-1])


class WithRoa(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = roann.RoaRNN(4, 2 * N, horizon=T)
        self.readout = nn.Linear(2 * N, 4)
        nn.init.zeros_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)

    def forward(self, u):
        _, h_n = self.rnn(u)
        return self.readout(h_n[-1])


for model in (WithLSTM(), WithRoa()):
    print(f"{type(model).__name__:<9} {sum(p.numel() for p in model.parameters())} parameters")

# %%
# ## A test of memory
#
# The first input is one of four symbols, and noise follows. At the end: which symbol was it? For
# the LSTM we try three learning rates and set the bias of its forget gate to 1, as is usual; for
# the `RoaRNN` we take the one that the guide says.


def batch(size):
    symbol = torch.randint(0, 4, (size,))
    u = 0.1 * torch.randn(T, size, 4)
    u[0] = nn.functional.one_hot(symbol, 4)
    return u, symbol


def train(make, lr):
    torch.manual_seed(0)
    model = make()
    if make is WithLSTM:
        with torch.no_grad():
            model.rnn.bias_hh_l0[N : 2 * N] = 1
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    losses = []
    for _ in range(UPDATES):
        u, symbol = batch(32)
        loss = nn.functional.cross_entropy(model(u), symbol)
        optimizer.zero_grad()
        loss.backward()
        if make is WithLSTM:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        u, symbol = batch(500)
        return losses, (model(u).argmax(1) == symbol).float().mean().item()


curves = {}
for make, lr in ((WithLSTM, 0.001), (WithLSTM, 0.003), (WithLSTM, 0.01), (WithRoa, 0.03)):
    curves[f"{make.__name__}, {lr}"], accuracy = train(make, lr)
    print(f"{make.__name__:<9} Adam {lr:<6} accuracy {accuracy:.2f}")

# %%
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for name, losses in curves.items():
    ax.plot(losses, label=name)
ax.set(xlabel="update", ylabel="cross-entropy")
ax.legend()
figure.savefig("from_lstm.svg")

# %%
# ![Training losses of the four runs](from_lstm.svg)
#
# This task is made of what `RoaRNN` is good at. On short sequences, or where the network must
# forget at a signal, an LSTM may be better: [when not to use it](when_not.md).
#
# ## From nn.RNN
#
# `nn.RNN` is even nearer: the same state, the same return value. `RoaRNN.from_torch` takes over
# its weights. With α = 1, the default there, the two are the same function:

rnn = nn.RNN(4, 8)
same = roann.RoaRNN.from_torch(rnn)
u, _ = batch(3)
print("the same output:", torch.allclose(rnn(u)[0], same(u)[0], atol=1e-6))

# %%
# Differences that remain: the default φ of a `RoaRNN` is ReLU, not tanh, and it has one bias, not
# two. Give `from_torch` a `horizon` to start our recurrence from these weights.
