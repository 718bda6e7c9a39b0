"""Vanilla RNN, from torch itself."""

from __future__ import annotations

from typing import Annotated

from torch import nn

from roann.lab.limits import HiddenSettings, OneOf
from roann.lab.models.recurrence import row
from roann.lab.models.torch_layers import TorchSystem


class VanillaRnnConfig(HiddenSettings):
    """Settings of a vanilla RNN."""

    # activation function φ: "relu" (the paper's) or "tanh".
    nonlinearity: Annotated[str, OneOf(("relu", "tanh"))] = "relu"


class VanillaRnn(TorchSystem[VanillaRnnConfig]):
    r"""Vanilla RNN, J. L. Elman, `Finding structure in time
    <https://doi.org/10.1207/s15516709cog1402_1>`_, 1990.

        h' = φ(W h + W_i u + b_i + b_h)

    The Jacobian is D W, with D = diag φ'. φ is the paper's ReLU, or tanh.

    Count: N² + N·I + 2N, and 10N + 10 for a readout: 68,874 at N = 256. The table's 68k, quoted
    from Chang et al. 2017, fits one bias: 68,618, rounded down; see Note [Two biases].

    Example:
        >>> system = VanillaRnn(1, VanillaRnnConfig(8), dtype=torch.float64)
        >>> W = system.core.weight_hh_l0
        >>> bool((W @ W.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    layer = nn.RNN


VANILLA_RNN = row(VanillaRnn, VanillaRnnConfig(5))
