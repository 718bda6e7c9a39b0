"""Shuffling RNN: a fixed permutation of the state."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, Layers, Width
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


class ShufflingRnnConfig(HiddenSettings):
    """Settings of the Shuffling RNN."""

    hidden_size: Width = 1024  # number of hidden units, N.
    width: Width = 32  # width h of the hidden layers of the input network f_r.
    layers: Layers = 5  # number l of hidden layers of f_r.


class ShufflingRnn(DrivenSystem[ShufflingRnnConfig]):
    r"""Shuffling RNN, `Rotman & Wolf 2021 <https://arxiv.org/abs/2007.07324>`_.

        β(x) = f_r(x) ⊙ σ(W_s x + b_s),    h' = ReLU(P h + β(x))

    with (P h)_i = h_{i−1 mod N}, one cycle, and f_r a network of l hidden ReLU layers of width h
    with a linear output. The Jacobian is D P with D ∈ {0, 1}: all singular values are 0 or 1, and
    those of k steps too.

    β does not see the state, so it is one call over all times, and a step is a shift, a sum and a
    maximum. (A running sum and a running maximum would do all steps at once; measured on a
    CPU, their indexing costs more than the loop.)

    Count: (I+1)h + (l−1)(h²+h) + N(h+1) + N(I+1), and 10N + 10 for a readout. The table's 50k
    cannot be resolved, because no sizes were published for psMNIST: N = 1024, h = 32, l = 5 gives
    50,378 (the default), N = 1024, h = 36, l = 1 gives 50,258.

    For copying, the published network has an embedding of width h before f_r and σ; there is none
    here, the inputs enter as the task gives them.

    Example:
        >>> system = ShufflingRnn(2, ShufflingRnnConfig(8, 3, 1))
        >>> x, u = torch.rand(8), torch.randn(2)
        >>> sigma = torch.linalg.svdvals(torch.func.jacrev(system.step)(x, u))
        >>> bool((sigma * (1 - sigma)).abs().max() < 1e-6)
        True
    """

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        sizes = [self.input_size, *[self.config.width] * self.config.layers, N]
        maps = [new.linear(n_in, n_out) for n_in, n_out in pairwise(sizes)]
        self.W_r, self.b_r = (nn.ParameterList(part) for part in zip(*maps, strict=True))
        self.W_s, self.b_s = new.linear(self.input_size, N)

    def drive(self, u: Tensor) -> Tensor:
        """β(u)."""
        y = u
        for W, b in zip(self.W_r[:-1], self.b_r[:-1], strict=True):
            y = torch.relu(y @ W.mT + b)
        gate = torch.sigmoid(u @ self.W_s.mT + self.b_s)
        beta: Tensor = (y @ self.W_r[-1].mT + self.b_r[-1]) * gate
        return beta

    def transition(self) -> Transition:
        """h, β ↦ ReLU(P h + β)."""
        return lambda h, beta: torch.relu(h.roll(1, -1) + beta)


SHUFFLING = row(ShufflingRnn, ShufflingRnnConfig(5, 3, 2))
