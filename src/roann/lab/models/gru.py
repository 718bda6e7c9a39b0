"""GRU, from torch itself."""

from __future__ import annotations

from torch import nn

from roann.lab.limits import HiddenSettings
from roann.lab.models.recurrence import row
from roann.lab.models.torch_layers import TorchSystem


class GruConfig(HiddenSettings):
    """Settings of a GRU."""


class Gru(TorchSystem[GruConfig]):
    r"""GRU, K. Cho, B. van Merriënboer, D. Bahdanau and Y. Bengio, `On the properties of neural
    machine translation: encoder–decoder approaches <https://arxiv.org/abs/1409.1259>`_, 2014.

        r, z = σ(W h + W_i u + b_i + b_h),    n = tanh(W_i u + b_i + r ⊙ (W h + b_h))
        h' = (1 − z) ⊙ n + z ⊙ h

    each of r, z, n with its own rows of W, W_i, b_i, b_h, in this order. torch's r acts after the
    matrix, on W h + b_h; in Cho et al. it acts before, W(r ⊙ h): another function.

    Count: 3N² + 3N·I + 6N, and 10N + 10 for a readout: 201,482 at N = 256. The table's 200k, quoted
    from Chang et al. 2017, is this rounded, with one bias too; see Note [Two biases]. Here b_h of n
    stands inside the gate, so both biases matter.

    Example:
        >>> system = Gru(1, GruConfig(8), dtype=torch.float64)
        >>> gates = system.core.weight_hh_l0.unflatten(0, (3, 8))
        >>> bool((gates @ gates.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    layer = nn.GRU


GRU = row(Gru, GruConfig(4))
