"""scoRNN: an orthogonal matrix by a scaled Cayley transform."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from roann.lab.limits import HiddenSettings, Width, whole
from roann.lab.models.orthogonal import OrthogonalSystem
from roann.lab.models.recurrence import Source, row
from roann.lab.models.skew import block_angles_, cayley, skew_size


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


SCORNN = row(ScoRnn, ScoRnnConfig(5))
