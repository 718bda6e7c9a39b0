"""scoRNN: an orthogonal recurrent matrix by the scaled Cayley transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.lab.limits import Settings, Width, whole
from roann.lab.models.base import Preset, training
from roann.lab.models.modrelu import OrthogonalSystem
from roann.lab.models.recurrence import Factory, parameter, row, uniform_
from roann.lab.models.skew import block_angles_, cayley, skew, skew_size


@dataclass(frozen=True)
class ScoRnnConfig(Settings):
    """Settings of scoRNN.

    Attributes:
        hidden_size: number of hidden units, N.
        negative: number ρ of entries of D̃ that are −1; half of them, rounded down, if not given.
    """

    hidden_size: Width = 512
    negative: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negative is not None:
            whole("negative", self.negative, 0, self.hidden_size)


class ScoRnn(OrthogonalSystem[ScoRnnConfig]):
    r"""scoRNN, `Helfrich, Willmott & Ye 2018 <https://arxiv.org/abs/1707.09520>`_.

        W = (I + A)⁻¹(I − A) D̃,   h' = modrelu_b(W h + W_i x)

    with A skew and D̃ = diag(+1, …, +1, −1, …, −1), ρ times −1, fixed: det W = (−1)^ρ, so that
    matrices out of reach of one Cayley transform (eigenvalue −1) are in reach. The Jacobian is
    D W with D ∈ {0, 1}. If W D̃ comes close to the eigenvalue −1, ‖A‖ grows without bound and
    float32 orthogonality degrades: watch ‖WᵀW − I‖.

    Count: N(N−1)/2 + N·I + N (+ 10N + 10): 136,970 at N = 512, as expRNN. The entries of A are
    stored as one vector, so the stored number is the effective one. Autograd through `solve`
    gives the paper's gradient V = (I+A)⁻ᵀ G (D̃ + Wᵀ), ∂L/∂A = Vᵀ − V.

    Start: A by planes with angles U(0, π/2), W_i ~ U(±0.01), b = 0.

    Example:
        >>> system = ScoRnn(1, ScoRnnConfig(hidden_size=8), dtype=torch.float64)
        >>> W = system.recurrent_matrix()
        >>> bool((W @ W.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    head_init = "xavier_uniform"
    D: Tensor

    def _build(self, **factory: Unpack[Factory]) -> None:
        super()._build(**factory)
        N, negative = self.state_size, self.config.negative
        self.A = parameter(skew_size(N), **factory)
        signs = torch.ones(N, **factory)
        signs[N - (N // 2 if negative is None else negative) :] = -1
        self.register_buffer("D", signs)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values; D̃ stays."""
        block_angles_(self.A, self.state_size, "cayley", generator)
        uniform_(0.01, generator, self.W_i)
        nn.init.zeros_(self.b)

    def recurrent_matrix(self) -> Tensor:
        """W = (I + A)⁻¹(I − A) D̃."""
        return cayley(skew(self.A, self.state_size)) * self.D

    def learning_rate_scales(self) -> dict[str, float]:
        """A tenth for A."""
        return {"A": 0.1}


PRESETS = {
    # github.com/ndminhkhoi46/asRNN: Hyperparameter.md (batch 128 there, 50 in the own code)
    "psmnist": Preset(
        "psmnist",
        ScoRnnConfig(512, 256),
        136_970,
        training("rmsprop", 7e-4, batch_size=50, epochs=70),
    ),
    # github.com/SpartinStuff/scoRNN, where A has an RMSprop of its own.
    "adding": Preset(
        "adding", ScoRnnConfig(170, 85), settings=training("adam", 1e-3, batch_size=50)
    ),
    "copying": Preset(
        "copying", ScoRnnConfig(190, 95), settings=training("rmsprop", 1e-3, batch_size=20)
    ),
}
ROW = row(ScoRnn, ScoRnnConfig(5), PRESETS)
