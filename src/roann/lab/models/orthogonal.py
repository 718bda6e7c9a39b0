"""modReLU networks with an orthogonal recurrent matrix: expRNN and scoRNN."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, TypeVar, Unpack

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, OneOf, Width, whole
from roann.lab.models.base import Preset, adam, rmsprop
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, parameter, row, uniform_
from roann.lab.models.skew import ANGLES, block_angles_, cayley, exponential, skew, skew_size

C = TypeVar("C", bound=HiddenSettings)


def modrelu(z: Tensor, b: Tensor) -> Tensor:
    """sign(z)·max(|z| + b, 0), real. Its slope is 1 where |z| > −b, else 0; at z = 0 it is 0."""
    return torch.sign(z) * torch.relu(torch.abs(z) + b)


class OrthogonalSystem(DrivenSystem[C]):
    """Abstract: h' = modrelu_b(W h + W_i x), W made by `recurrent_matrix` from a skew matrix A.

    A has a tenth of the learning rate. See Note [Only free numbers are stored] in `skew`.
    """

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.W_i = parameter(N, self.input_size, **factory)
        self.b = parameter(N, **factory)
        self.A = parameter(skew_size(N), **factory)

    def skew_matrix(self) -> Tensor:
        """A (N, N), from its free entries."""
        return skew(self.A, self.state_size)

    @abstractmethod
    def recurrent_matrix(self) -> Tensor:
        """W (N, N), for the present parameters."""

    def drive(self, u: Tensor) -> Tensor:
        """W_i u."""
        return u @ self.W_i.mT

    def transition(self) -> Transition:
        """h, d ↦ modrelu_b(W h + d)."""
        W_t, b = self.recurrent_matrix().mT, self.b
        return lambda h, d: modrelu(h @ W_t + d, b)

    def learning_rate_scales(self) -> dict[str, float]:
        return {"A": 0.1}


@dataclass(frozen=True)
class ExpRnnConfig(HiddenSettings):
    """Settings of expRNN.

    Attributes:
        angles: how the skew matrix A is first drawn: "cayley" (MNIST) or "henaff" (copying).
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

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        block_angles_(self.A, self.state_size, self.config.angles, generator)
        nn.init.kaiming_normal_(self.W_i, generator=generator)
        uniform_(0.01, generator, self.b)

    def recurrent_matrix(self) -> Tensor:
        """W = exp(A)."""
        return exponential(self.skew_matrix())


EXPRNN_PRESETS = [
    # github.com/ndminhkhoi46/asRNN: Hyperparameter.md
    Preset("psmnist", ExpRnnConfig(), 136_970, rmsprop(5e-4, alpha=0.9, batch_size=128, epochs=70)),
    # github.com/lezcano/expRNN: 1_copying.py
    Preset("copying", ExpRnnConfig(190, "henaff"), None, rmsprop(2e-4, alpha=0.99, batch_size=128)),
]
EXPRNN = row(ExpRnn, ExpRnnConfig(5), EXPRNN_PRESETS)


@dataclass(frozen=True)
class ScoRnnConfig(HiddenSettings):
    """Settings of scoRNN.

    Attributes:
        negative: number ρ of −1 on the diagonal of the sign matrix D̃; ⌊N/2⌋ if not given.
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

    Count: N(N−1)/2 + N·I + N (+ 10N + 10): 136,970 at N = 512, as expRNN. Autograd through
    `solve` gives the paper's gradient V = (I+A)⁻ᵀ G (D̃ + Wᵀ), ∂L/∂A = Vᵀ − V.

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
        signs = torch.ones(N, **factory)
        signs[N - (N // 2 if negative is None else negative) :] = -1
        self.register_buffer("D", signs)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        block_angles_(self.A, self.state_size, "cayley", generator)
        uniform_(0.01, generator, self.W_i)
        nn.init.zeros_(self.b)

    def recurrent_matrix(self) -> Tensor:
        """W = (I + A)⁻¹(I − A) D̃."""
        return cayley(self.skew_matrix()) * self.D


SCORNN_PRESETS = [
    # github.com/ndminhkhoi46/asRNN: Hyperparameter.md (batch 128 there, 50 in the own code)
    Preset("psmnist", ScoRnnConfig(512, 256), 136_970, rmsprop(7e-4, batch_size=50, epochs=70)),
    # github.com/SpartinStuff/scoRNN, where A has an RMSprop of its own.
    Preset("adding", ScoRnnConfig(170, 85), None, adam(1e-3, batch_size=50)),
    Preset("copying", ScoRnnConfig(190, 95), None, rmsprop(1e-3, batch_size=20)),
]
SCORNN = row(ScoRnn, ScoRnnConfig(5), SCORNN_PRESETS)
