"""modReLU networks with a complex unitary recurrent matrix: uRNN and full-capacity uRNN."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

from roann.lab.limits import HiddenSettings, NonNegative, Width
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row
from roann.lab.models.skew import cayley, skew_hermitian

C = TypeVar("C", bound=HiddenSettings)
DENSE = 256  # up to so many units, one product with W is faster than its factors


def complex_modrelu(z: Tensor, b: Tensor) -> Tensor:
    """z·max(|z| + b, 0)/|z| of complex z = [Re; Im] (…, 2N), b (N,); 0 at z = 0.

    Written z·max(1 + b/|z|, 0), with |z| taken as 1 where it vanishes or |z|⁻³ would overflow
    (below 2e-13 in float32): the value there is 0 or as small, and the gradient finite, where
    √(Re² + Im²) alone would give NaN. b = 0 is the identity, exactly.
    """
    vanishing = torch.finfo(z.dtype).tiny ** (2 / 3)
    pairs = z.reshape(*z.shape[:-1], 2, -1)
    square = pairs.square().sum(-2)
    inverse = torch.where(square > vanishing, square, 1.0).rsqrt()
    return (pairs * torch.relu(1 + b * inverse).unsqueeze(-2)).reshape(z.shape)


class UnitarySystem(DrivenSystem[C]):
    """Abstract: h' = modReLU_b(W h + V x) on complex h = [Re; Im], with a learned h₀.

    State and output are the 2N real numbers [Re h; Im h].
    """

    input_map = ("V",)

    def build(self, new: Source) -> None:
        """V Glorot uniform, as (I, 2N), b ~ U(±0.01) and h₀ ~ U(±√(3/(2N)))."""
        N = self.config.hidden_size
        self.state_size = self.output_size = 2 * N
        self.V = new.drawn(nn.init.xavier_uniform_, 2 * N, self.input_size)
        self.b = new.uniform(0.01, N)
        self.h_0 = new.uniform(math.sqrt(3 / (2 * N)), 2 * N)

    @abstractmethod
    def unitary(self) -> Callable[[Tensor], Tensor]:
        """The map [Re h; Im h] ↦ [Re W h; Im W h], for the present parameters."""

    def transition(self) -> Transition:
        """h, d ↦ modReLU_b(W h + d)."""
        W, b = self.unitary(), self.b
        return lambda h, d: complex_modrelu(W(h) + d, b)

    def initial_state(self, batch: int) -> Tensor:
        """The learned h₀."""
        return self.h_0.expand(batch, -1)


class URnnConfig(HiddenSettings):
    """Settings of uRNN."""

    hidden_size: Width = 512  # number of complex units, N; the state has 2N real numbers.


def restricted_unitary(
    theta: Tensor, reflections: Tensor, permutation: Tensor
) -> Callable[[Tensor], Tensor]:
    """z (…, N) ↦ D₃ R₂ F⁻¹ D₂ Π R₁ F D₁ z, complex, in O(N log N).

    Args:
        theta: (3, N), the angles of D₁, D₂, D₃ = diag e^{iθ}.
        reflections: (2, 2, N), [Re v; Im v] of R₁, R₂ = I − 2vv*/‖v‖².
        permutation: (N,), (Π z)_i = z[p_i].
    """
    D_1, D_2, D_3 = torch.polar(torch.ones_like(theta), theta)
    v = torch.complex(reflections[:, 0], reflections[:, 1])
    v_1, v_2 = v * (math.sqrt(2) / reflections.square().sum((1, 2)).sqrt()).unsqueeze(-1)

    def reflect(z: Tensor, v: Tensor) -> Tensor:
        return z - (z * v.conj()).sum(-1, keepdim=True) * v

    def apply(z: Tensor) -> Tensor:
        z = reflect(torch.fft.fft(D_1 * z, norm="ortho"), v_1)
        z = torch.fft.ifft(D_2 * z.index_select(-1, permutation), norm="ortho")
        out: Tensor = D_3 * reflect(z, v_2)
        return out

    return apply


def draw_restricted_unitary(N: int, new: Source) -> tuple[nn.Parameter, nn.Parameter]:
    """The published first values: θ ~ U(±π), reflections ~ U(±√(6/(2 + 2N)))."""
    return new.uniform(math.pi, 3, N), new.uniform(math.sqrt(6 / (2 + 2 * N)), 2, 2, N)


class URnn(UnitarySystem[URnnConfig]):
    r"""uRNN, `Arjovsky, Shah & Bengio 2016 <https://arxiv.org/abs/1511.06464>`_.

        W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁,   h' = modReLU_b(W h + V x),   h₀ learned

    on complex h, with modReLU_b(z) = z·max(|z| + b, 0)/|z|, b real; D diagonal phases, R
    reflections, F the unitary discrete Fourier transform, Π a fixed random permutation.

    W keeps every norm. The modReLU does not: backwards its singular values are 1 (radial) and
    1 + b/|z| (tangential), or 0 where |z| + b ≤ 0, so that b > 0 expands and b < 0 contracts.
    A large W is applied by factors, in O(N log N); a small one is multiplied out per sequence.

    Count: 3N + 4N + N (b) + 2N (h₀) + 2N·I, and 2N·10 + 10 for a readout: 32N + 10 in all,
    16,394 at N = 512. All of it is stored as real numbers. (The lengths and phases of the
    two reflection vectors have no effect; they are counted, as published.)

    Public versions put an ε into |z| (the map then contracts), draw h₀ anew at every call, or give
    NaN gradients at z = 0; see `complex_modrelu`.

    Example:
        >>> system = URnn(1, URnnConfig(hidden_size=8), dtype=torch.float64)
        >>> z = torch.randn(3, 16, dtype=torch.float64)
        >>> bool((system.unitary()(z).norm(dim=1) - z.norm(dim=1)).abs().max() < 1e-13)
        True
    """

    head_init = "xavier_uniform"
    permutation: Tensor

    def build(self, new: Source) -> None:
        N, device = self.config.hidden_size, new.empty().device
        permutation = torch.randperm(N, generator=new.generator, device=device)
        theta, reflections = draw_restricted_unitary(N, new)
        super().build(new)
        self.theta, self.reflections = theta, reflections
        self.register_buffer("permutation", permutation)

    def unitary(self) -> Callable[[Tensor], Tensor]:
        apply = restricted_unitary(self.theta, self.reflections, self.permutation)

        def real_apply(h: Tensor) -> Tensor:
            z = apply(torch.complex(*h.chunk(2, -1)))
            return torch.cat([z.real, z.imag], -1)

        if self.config.hidden_size > DENSE:
            return real_apply
        matrix = real_apply(torch.eye(self.state_size, dtype=self.b.dtype, device=self.b.device))
        return lambda h: h @ matrix


URNN = row(URnn, URnnConfig(4))


class FullCapacityURnnConfig(URnnConfig):
    """Settings of the full-capacity uRNN: those of uRNN, and a rate."""

    # step size λ of the unitary matrix, as a multiple of the learning rate.
    unitary_rate: NonNegative = 0.01


class FullCapacityURnn(UnitarySystem[FullCapacityURnnConfig]):
    r"""Full-capacity uRNN, `Wisdom et al. 2016 <https://arxiv.org/abs/1611.00035>`_.

        h' = modReLU_b(W h + V x),   h₀ learned,   W any unitary matrix
        W ← (I + (λ/2)A)⁻¹ (I − (λ/2)A) W,   A = G Wᴴ − W Gᴴ,   G = ∂L/∂Re W + i ∂L/∂Im W

    on complex h = [Re; Im], modReLU as in `URnn`.

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

    W starts as a random uRNN product; b starts at 0 in the published psMNIST run. Public
    code keeps W as a free 2N×2N real matrix and takes only the upper blocks of its gradient for G:
    its step is about half as long and not along the gradient.

    Example:
        >>> system = FullCapacityURnn(1, FullCapacityURnnConfig(8), dtype=torch.float64)
        >>> _ = nn.init.normal_(system.K)
        >>> W = system.recurrent_matrix()
        >>> bool((W @ W.mH - torch.eye(8)).abs().max() < 1e-13)
        True
    """

    head_init = "xavier_uniform"
    base: Tensor

    @torch.no_grad()
    def build(self, new: Source) -> None:
        N = self.config.hidden_size
        # Re and Im apart: checkpoints and casts do not all support complex tensors.
        self.register_buffer("base", new.empty(2, N, N))
        theta, reflections = draw_restricted_unitary(N, new)
        permutation = torch.randperm(N, generator=new.generator, device=self.base.device)
        eye = torch.eye(N, dtype=self.base.dtype, device=self.base.device)
        self.set_base(restricted_unitary(theta, reflections, permutation)(eye).mT)
        super().build(new)
        self.K = new.constant(0, N, N)

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
        return {"K": self.config.unitary_rate}


FC_URNN = row(FullCapacityURnn, FullCapacityURnnConfig(4))
