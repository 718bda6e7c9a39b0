"""modReLU networks with an orthogonal matrix: expRNN, scoRNN, and nnRNN, whose W is not normal."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import partial
from typing import Annotated, TypeVar

import torch
from torch import Tensor, nn

from roann.lab.limits import (
    WIDTH,
    Fraction,
    HiddenSettings,
    NonNegative,
    OneOf,
    Range,
    Width,
    fail,
    whole,
)
from roann.lab.models.base import Preset, adam, rmsprop
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row
from roann.lab.models.skew import ANGLES, block_angles_, cayley, skew, skew_size

C = TypeVar("C", bound=HiddenSettings)


def modrelu(z: Tensor, b: Tensor) -> Tensor:
    """sign(z)·max(|z| + b, 0), real. Its slope is 1 where |z| > −b, else 0; at z = 0 it is 0."""
    return torch.sign(z) * torch.relu(torch.abs(z) + b)


class OrthogonalSystem(DrivenSystem[C]):
    """Abstract: h' = modrelu_b(W h + W_i x), W made by `recurrent_matrix` from a skew matrix A.

    A has a tenth of the learning rate. See Note [Only free numbers are stored] in `skew`.
    """

    input_map = ("W_i",)
    W_i: nn.Parameter
    b: nn.Parameter
    A: nn.Parameter

    def skew_matrix(self) -> Tensor:
        """A (N, N), from its free entries."""
        return skew(self.A, self.state_size)

    @abstractmethod
    def recurrent_matrix(self) -> Tensor:
        """W (N, N), for the present parameters."""

    def transition(self) -> Transition:
        """h, d ↦ modrelu_b(W h + d)."""
        W_t, b = self.recurrent_matrix().mT, self.b
        return lambda h, d: modrelu(h @ W_t + d, b)

    def learning_rate_scales(self) -> dict[str, float]:
        return {"A": 0.1}


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


EXPRNN_PRESETS = [
    # github.com/ndminhkhoi46/asRNN: Hyperparameter.md
    Preset("psmnist", ExpRnnConfig(), 136_970, rmsprop(5e-4, alpha=0.9, batch_size=128, epochs=70)),
    # github.com/lezcano/expRNN: 1_copying.py
    Preset("copying", ExpRnnConfig(190, "henaff"), None, rmsprop(2e-4, alpha=0.99, batch_size=128)),
]
EXPRNN = row(ExpRnn, ExpRnnConfig(5), EXPRNN_PRESETS)


class ScoRnnConfig(HiddenSettings):
    """Settings of scoRNN."""

    hidden_size: Width = 512  # number of hidden units, N.
    # number ρ of −1 on the diagonal of the sign matrix D̃; ⌊N/2⌋ if not given.
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

    Example:
        >>> system = ScoRnn(1, ScoRnnConfig(hidden_size=8), dtype=torch.float64)
        >>> W = system.recurrent_matrix()
        >>> bool((W @ W.mT - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    head_init = "xavier_uniform"
    D: Tensor

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        A = new.drawn(partial(block_angles_, n=N, kind="cayley"), skew_size(N))
        self.W_i = new.uniform(0.01, N, self.input_size)
        self.b = new.constant(0, N)
        self.A = A
        signs, negative = new.empty(N).fill_(1), self.config.negative
        signs[N - (N // 2 if negative is None else negative) :] = -1
        self.register_buffer("D", signs)

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


class NnRnnConfig(HiddenSettings):
    """Settings of nnRNN."""

    hidden_size: Annotated[int, Range(2, WIDTH)] = 512  # number of hidden units, N; must be even.
    # how the skew matrix of P is first drawn: "cayley" or "henaff".
    angles: Annotated[str, OneOf(ANGLES)] = "cayley"
    # weight δ of the penalty δ Σ (γ − 1)², which keeps the moduli γ near 1.
    modulus_penalty: NonNegative = 0.1
    # L2 penalty on T: half of this times ‖T‖² is added to the loss.
    triangle_decay: NonNegative = 1e-4
    # learning rate of P, as a fraction of the learning rate of the rest.
    orthogonal_rate: Fraction = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden_size % 2:
            fail("hidden_size", "an even number (N/2 planes)", self.hidden_size)


def above_blocks(n: int, device: torch.device) -> Tensor:
    """The indices (2, n(n−2)/2) of the entries strictly above the 2×2 blocks of the diagonal."""
    i, j = torch.triu_indices(n, n, 1, device=device)
    outside = i // 2 < j // 2
    return torch.stack([i[outside], j[outside]])


class NnRnn(OrthogonalSystem[NnRnnConfig]):
    r"""nnRNN, `Kerg et al. 2019 <https://arxiv.org/abs/1905.12080>`_.

        W = P (Λ + T) Pᵀ,   h' = modrelu_b(W h + W_i x),   loss + δ Σ (γ_i − 1)²

    P = exp(skew), Λ = diag of the blocks γ_i [cos θ_i, −sin θ_i; sin θ_i, cos θ_i], T strictly
    above these blocks: the eigenvalues of W are γ_i e^{±iθ_i} whatever T is, and T = 0, γ = 1 is an
    orthogonal network. The Jacobian is D W with D ∈ {0, 1}.

    Count: N(N−1)/2 (P) + N(N−2)/2 (T) + N/2 (θ) + N/2 (γ) + N·I + N, and 10N + 10 for a readout:
    268,042 at N = 512. Public code masks T inside the blocks too: N/2 more (268,298, as a plain
    RNN), but then γ and θ are no longer the eigenvalues. It also never uses its chosen start
    of P, and stores N angles of which it reads half; here neither.

    Example:
        >>> system = NnRnn(1, NnRnnConfig(hidden_size=8), dtype=torch.float64)
        >>> _ = nn.init.normal_(system.T)
        >>> moduli = torch.linalg.eigvals(system.recurrent_matrix()).abs()
        >>> bool((moduli - 1).abs().max() < 1e-12)
        True
    """

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        A = new.drawn(partial(block_angles_, n=N, kind=self.config.angles), skew_size(N))
        theta = new.drawn(partial(nn.init.uniform_, a=0, b=2 * math.pi), N // 2)
        self.W_i = new.drawn(nn.init.kaiming_normal_, N, self.input_size)
        self.b = new.uniform(0.01, N)
        self.A, self.theta = A, theta
        self.gamma = new.constant(1, N // 2)
        self.T = new.constant(0, N * (N - 2) // 2)

    def schur_form(self) -> Tensor:
        """Λ + T."""
        N, even = self.state_size, torch.arange(0, self.state_size, 2, device=self.T.device)
        c, s = self.gamma * torch.cos(self.theta), self.gamma * torch.sin(self.theta)
        i, j = above_blocks(N, self.T.device)
        rows = torch.cat([i, even, even, even + 1, even + 1])
        columns = torch.cat([j, even, even + 1, even, even + 1])
        entries = torch.cat([self.T, c, -s, s, c])
        return entries.new_zeros(N, N).index_put((rows, columns), entries)

    def orthogonal_matrix(self) -> Tensor:
        """P = exp(A)."""
        P: Tensor = torch.linalg.matrix_exp(self.skew_matrix())
        return P

    def recurrent_matrix(self) -> Tensor:
        """W = P (Λ + T) Pᵀ."""
        P = self.orthogonal_matrix()
        return P @ self.schur_form() @ P.mT

    def penalty(self) -> Tensor:
        """δ Σ (γ − 1)² + ½ decay ‖T‖²."""
        drift = self.config.modulus_penalty * (self.gamma - 1).square().sum()
        return drift + 0.5 * self.config.triangle_decay * self.T.square().sum()

    def learning_rate_scales(self) -> dict[str, float]:
        return {"A": self.config.orthogonal_rate}


_LAG_200 = rmsprop(5e-4, alpha=0.99, batch_size=10)  # the same source, for copying; P at 1e-6
NNRNN_PRESETS = [
    # github.com/KyleGoyette/nnRNN: README; the supplement says lr 1.5e-4, δ = 0.15.
    Preset("psmnist", NnRnnConfig(), 268_042, rmsprop(2e-4, alpha=0.99, batch_size=100)),
    Preset("copying", NnRnnConfig(128, "cayley", 1e-4, 1e-6, 0.002), None, _LAG_200),
]
NNRNN = row(NnRnn, NnRnnConfig(6), NNRNN_PRESETS)
