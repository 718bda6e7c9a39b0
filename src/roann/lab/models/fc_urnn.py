"""Full-capacity uRNN: any unitary recurrent matrix, kept unitary by Cayley steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor, nn

from roann.lab.limits import NonNegative, Settings, Width
from roann.lab.models.base import Preset, training
from roann.lab.models.modrelu import UnitarySystem
from roann.lab.models.recurrence import Factory, parameter, row
from roann.lab.models.skew import cayley, skew_hermitian
from roann.lab.models.urnn import draw_restricted_unitary_, restricted_unitary


@dataclass(frozen=True)
class FullCapacityURnnConfig(Settings):
    """Settings of the full-capacity uRNN.

    Attributes:
        hidden_size: number of complex units, N; the state has 2N real numbers.
        unitary_rate: step size λ of the unitary matrix, as a multiple of the learning rate.
    """

    hidden_size: Width = 512
    unitary_rate: NonNegative = 0.01


class FullCapacityURnn(UnitarySystem[FullCapacityURnnConfig]):
    r"""Full-capacity uRNN, `Wisdom et al. 2016 <https://arxiv.org/abs/1611.00035>`_.

        h' = modReLU_b(W h + V x),   h₀ learned,   W any unitary matrix
        W ← (I + (λ/2)A)⁻¹ (I − (λ/2)A) W,   A = G Wᴴ − W Gᴴ,   G = ∂L/∂Re W + i ∂L/∂Im W

    on complex h = [Re; Im], modReLU as in `roann.lab.models.urnn`.

    Note [The Cayley step as an ordinary parameter]: W = (I + K/2)⁻¹(I − K/2) B, where the buffer B
    is unitary and K is the skew-Hermitian matrix of the real parameter `K` (N, N). At K = 0,
    dL = −½⟨A, dK⟩, and the N² directions of `skew_hermitian` are orthogonal and of length √2, so
    one step of SGD at rate λ from K = 0 gives K = λA: the published step, to the letter. At the
    next forward pass in training mode, `rebase_` moves that step into B and sets K to zero.
    So any optimiser of torch trains it, W never leaves the unitary group, and a checkpoint between
    the two is complete. RMSprop here divides the N² components of A by their RMS; the published
    psMNIST run divides the entries of G before projecting.

    Count: N² + N + 2N + 2N·I, and 2N·10 + 10 for a readout: 274,954 at N = 512, which the table
    rounds down to 270k. N² is the real dimension of U(N), and what is stored.

    Start: W as a random uRNN product, V Glorot uniform, b ~ U(±0.01) (0 in the published psMNIST
    run), h₀ ~ U(±√(3/(2N))).
    Public code keeps W as a free 2N×2N real matrix and takes only the upper blocks of its gradient
    for G: its step is about half as long and not along the gradient.

    Example:
        >>> system = FullCapacityURnn(1, FullCapacityURnnConfig(8), dtype=torch.float64)
        >>> _ = nn.init.normal_(system.K)
        >>> W = system.recurrent_matrix()
        >>> bool((W @ W.mH - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    head_init = "xavier_uniform"
    base: Tensor

    def _build(self, **factory: Unpack[Factory]) -> None:
        super()._build(**factory)
        N = self.hidden_size
        self.K = parameter(N, N, **factory)
        # Re and Im apart: complex tensors are not everywhere at home (checkpoints, casts).
        self.register_buffer("base", torch.empty(2, N, N, **factory))

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values, B among them."""
        N, like = self.hidden_size, self.base
        theta, reflections = like.new_empty(3, N), like.new_empty(2, 2, N)
        draw_restricted_unitary_(theta, reflections, generator)
        permutation = torch.randperm(N, generator=generator, device=like.device)
        eye = torch.eye(N, dtype=like.dtype, device=like.device)
        self.set_base(restricted_unitary(theta, reflections, permutation)(eye).mT)
        nn.init.zeros_(self.K)
        self.reset_cell(generator)

    def set_base(self, W: Tensor) -> None:
        """B ← the unitary matrix W (N, N), complex."""
        self.base.copy_(torch.stack([W.real, W.imag]))

    def recurrent_matrix(self) -> Tensor:
        """W, complex (N, N)."""
        return cayley(skew_hermitian(self.K) / 2) @ torch.complex(self.base[0], self.base[1])

    def unitary(self) -> Callable[[Tensor], Tensor]:
        """[Re h; Im h] ↦ [Re W h; Im W h], as one real product."""
        W = self.recurrent_matrix()
        blocks = torch.cat([torch.cat([W.real, -W.imag], 1), torch.cat([W.imag, W.real], 1)])
        return lambda h: h @ blocks.mT

    @torch.no_grad()
    def rebase_(self) -> None:
        """B ← W, K ← 0: the network does not change.

        One Newton step towards the nearest unitary matrix, W(3I − WᴴW)/2, takes away what
        rounding adds at every update; it squares the distance, and costs two products.
        """
        W = self.recurrent_matrix()
        self.set_base(1.5 * W - 0.5 * W @ (W.mH @ W))
        self.K.zero_()

    def start(self, u: Tensor, state: Tensor | None) -> Tensor:
        """x[0]; in training mode, first rebases if an update has moved K."""
        if self.training and bool(self.K.detach().any()):
            self.rebase_()
        return super().start(u, state)

    def learning_rate_scales(self) -> dict[str, float]:
        """λ over the learning rate."""
        return {"K": self.config.unitary_rate}


PRESETS = {
    # github.com/stwisdom/urnn: config_mnist_fulluRNN512*_natGradRMS.yaml; λ = 1e-6.
    "psmnist": Preset(
        "psmnist",
        FullCapacityURnnConfig(512, 0.01),
        274_954,
        training("rmsprop", 1e-4, alpha=0.9, batch_size=50),
    ),
    # The same repository: optimizations.py; λ = 1e-3 on the raw gradient.
    "copying": Preset(
        "copying",
        FullCapacityURnnConfig(128, 1.0),
        settings=training("rmsprop", 1e-3, alpha=0.9, batch_size=20),
    ),
}
ROW = row(FullCapacityURnn, FullCapacityURnnConfig(4), PRESETS)
