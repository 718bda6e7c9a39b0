"""expRNN: an orthogonal recurrent matrix as the exponential of a skew one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Unpack

import torch
from torch import Tensor, nn

from roann.lab.limits import OneOf, Settings, Width
from roann.lab.models.base import Preset, training
from roann.lab.models.modrelu import OrthogonalSystem
from roann.lab.models.recurrence import Factory, parameter, row, uniform_
from roann.lab.models.skew import ANGLES, block_angles_, exponential, skew, skew_size


@dataclass(frozen=True)
class ExpRnnConfig(Settings):
    """Settings of expRNN.

    Attributes:
        hidden_size: number of hidden units, N.
        angles: how A is first drawn: "cayley" (published for MNIST) or "henaff" (for copying).
    """

    hidden_size: Width = 512
    angles: Annotated[str, OneOf(ANGLES)] = "cayley"


class ExpRnn(OrthogonalSystem[ExpRnnConfig]):
    r"""expRNN, `Lezcano-Casado & Martínez-Rubio 2019 <https://arxiv.org/abs/1901.08428>`_.

        A = U − Uᵀ (U strictly upper),   W = exp(A),   h' = modrelu_b(W h + W_i x)

    with modrelu_b(z) = sign(z)·max(|z| + b, 0) and no other bias. W is orthogonal with
    determinant +1; it is computed once per sequence and never kept, so that neither an update nor
    `load_state_dict` can leave a stale one. The Jacobian is D W, D ∈ {0, 1} (D = I if b ≥ 0):
    every singular value of a step is 0 or 1.

    Count: N(N−1)/2 + N·I + N, and 10N + 10 for a readout: 136,970 at N = 512, the table's 137k.
    The entries of U are stored as one vector, so the stored number is the effective one.

    Start: U by planes (see `skew.block_angles_`), W_i Kaiming normal, b ~ U(±0.01). The bias of the
    published readout for copying starts at 0; the one here starts U(±1/√N).
    Public code writes h @ B, so that its A is the negative of this one.

    Example:
        >>> system = ExpRnn(1, ExpRnnConfig(hidden_size=8), dtype=torch.float64)
        >>> W = system.recurrent_matrix()
        >>> bool((W @ W.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    head_init = "kaiming_normal"

    def _build(self, **factory: Unpack[Factory]) -> None:
        super()._build(**factory)
        self.A = parameter(skew_size(self.state_size), **factory)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        block_angles_(self.A, self.state_size, self.config.angles, generator)
        nn.init.kaiming_normal_(self.W_i, generator=generator)
        uniform_(0.01, generator, self.b)

    def recurrent_matrix(self) -> Tensor:
        """W = exp(A)."""
        return exponential(skew(self.A, self.state_size))

    def learning_rate_scales(self) -> dict[str, float]:
        """A tenth for A."""
        return {"A": 0.1}


PRESETS = {
    # github.com/ndminhkhoi46/asRNN: Hyperparameter.md
    "psmnist": Preset(
        "psmnist",
        ExpRnnConfig(512, "cayley"),
        136_970,
        training("rmsprop", 5e-4, alpha=0.9, batch_size=128, epochs=70),
    ),
    # github.com/lezcano/expRNN: 1_copying.py
    "copying": Preset(
        "copying",
        ExpRnnConfig(190, "henaff"),
        settings=training("rmsprop", 2e-4, alpha=0.99, batch_size=128),
    ),
}
ROW = row(ExpRnn, ExpRnnConfig(5), PRESETS)
