"""expRNN: an orthogonal matrix as an exponential."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, OneOf, Width
from roann.lab.models.orthogonal import OrthogonalSystem
from roann.lab.models.recurrence import Source, row
from roann.lab.models.skew import ANGLES, block_angles_, skew_size


class ExpRnnConfig(HiddenSettings):
    """Settings of expRNN."""

    hidden_size: Width = 512  # number of hidden units, N.
    # how the skew matrix A is first drawn: "cayley" (MNIST) or "henaff" (copying).
    angles: Annotated[str, OneOf(ANGLES)] = "cayley"


class ExpRnn(OrthogonalSystem[ExpRnnConfig]):
    r"""expRNN, `Lezcano-Casado & Martínez-Rubio 2019 <https://arxiv.org/abs/1901.08428>`_.

        A = U − Uᵀ (U strictly upper),   W = exp(A),   h' = modrelu_b(W h + W_i x)

    with modrelu_b(z) = sign(z)·max(|z| + b, 0) and no other bias. W is orthogonal with
    determinant +1; it is computed once per sequence and never kept, so that neither an update nor
    `load_state_dict` can leave a stale one. The Jacobian is D W, D ∈ {0, 1} (D = I if b ≥ 0):
    every singular value of a step is 0 or 1.

    Count: N(N−1)/2 + N·I + N, and 10N + 10 for a readout: 136,970 at N = 512, the table's 137k.

    The bias of the published readout for copying starts at 0; the one here starts U(±1/√N).
    Public code writes h @ B, so that its A is the negative of this one.

    Example:
        >>> system = ExpRnn(1, ExpRnnConfig(hidden_size=8), dtype=torch.float64)
        >>> W = system.recurrent_matrix()
        >>> bool((W @ W.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    head_init = "kaiming_normal"

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        A = new.drawn(partial(block_angles_, n=N, kind=self.config.angles), skew_size(N))
        self.W_i = new.drawn(nn.init.kaiming_normal_, N, self.input_size)
        self.b = new.uniform(0.01, N)
        self.A = A

    def recurrent_matrix(self) -> Tensor:
        """W = exp(A)."""
        W: Tensor = torch.linalg.matrix_exp(self.skew_matrix())
        return W


EXPRNN = row(ExpRnn, ExpRnnConfig(5))
