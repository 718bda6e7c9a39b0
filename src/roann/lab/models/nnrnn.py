"""nnRNN: a matrix that is not normal, in Schur form."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn

from roann.lab.limits import WIDTH, Fraction, HiddenSettings, NonNegative, OneOf, Range, fail
from roann.lab.models.orthogonal import OrthogonalSystem
from roann.lab.models.recurrence import Source, row
from roann.lab.models.skew import ANGLES, block_angles_, skew_size


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


NNRNN = row(NnRnn, NnRnnConfig(6))
