"""LSTM, from torch itself."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings
from roann.lab.models.recurrence import Source, row
from roann.lab.models.torch_layers import TorchSystem


class LstmConfig(HiddenSettings):
    """Settings of an LSTM."""


class Lstm(TorchSystem[LstmConfig]):
    r"""LSTM, S. Hochreiter and J. Schmidhuber, `Long short-term memory
    <https://doi.org/10.1162/neco.1997.9.8.1735>`_, 1997; the gate f is of F. A. Gers,
    J. Schmidhuber and F. Cummins, Learning to forget, 2000.

        i, f, o = σ(W h + W_i u + b_i + b_h),    g = tanh(W h + W_i u + b_i + b_h)
        c' = f ⊙ c + i ⊙ g,    h' = o ⊙ tanh c'

    each of i, f, g, o with its own rows of W, W_i, b_i, b_h, in this order. State (h, c), output h.
    ∂c'/∂c along c alone is diag f: the path on which gradients survive.

    Count: 4N² + 4N·I + 8N, and 10N + 10 for a readout: 267,786 at N = 256. The table's 270k, quoted
    from Helfrich et al. 2018, is this rounded, with one bias too; see Note [Two biases].

    Start, as in the paper: W of each gate orthogonal, all else U(±1/√N); no forget bias of 1.

    Example:
        >>> system = Lstm(1, LstmConfig(8), dtype=torch.float64)
        >>> gates = system.core.weight_hh_l0.unflatten(0, (4, 8))
        >>> bool((gates @ gates.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    layer = nn.LSTM

    def build(self, new: Source) -> None:
        super().build(new)
        self.state_size = 2 * self.output_size

    def forward(self, u: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        h, c = self.start(u, state).unsqueeze(0).chunk(2, -1)
        output, (h, c) = self.core(u, (h.contiguous(), c.contiguous()))
        return output, torch.cat([h[0], c[0]], dim=-1)


LSTM = row(Lstm, LstmConfig(4))
