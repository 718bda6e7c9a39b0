"""uRNN: a unitary recurrent matrix as a product of simple ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

import torch
from torch import Tensor

from roann.lab.limits import Settings, Width
from roann.lab.models.base import Preset, training
from roann.lab.models.modrelu import UnitarySystem
from roann.lab.models.recurrence import Factory, parameter, row, uniform_

DENSE = 256  # up to so many units, one product with W is faster than its factors


@dataclass(frozen=True)
class URnnConfig(Settings):
    """Settings of uRNN.

    Attributes:
        hidden_size: number of complex units, N; the state has 2N real numbers.
    """

    hidden_size: Width = 512


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


def draw_restricted_unitary_(
    theta: Tensor, reflections: Tensor, generator: torch.Generator | None
) -> None:
    """The published first values: θ ~ U(±π), reflections ~ U(±√(6/(2 + 2N)))."""
    uniform_(math.pi, generator, theta)
    uniform_(math.sqrt(6 / (2 + 2 * theta.shape[1])), generator, reflections)


class URnn(UnitarySystem[URnnConfig]):
    r"""uRNN, `Arjovsky, Shah & Bengio 2016 <https://arxiv.org/abs/1511.06464>`_.

        W = D₃ R₂ F⁻¹ D₂ Π R₁ F D₁,   h' = modReLU_b(W h + V x),   h₀ learned

    on complex h, with modReLU_b(z) = z·max(|z| + b, 0)/|z|, b real; D diagonal phases, R
    reflections, F the unitary discrete Fourier transform, Π a fixed random permutation. State and
    output are [Re h; Im h].

    W keeps every norm. The modReLU does not: backwards its singular values are 1 (radial) and
    1 + b/|z| (tangential), or 0 where |z| + b ≤ 0, so that b > 0 expands and b < 0 contracts.
    A large W is applied factor by factor, in O(N log N); a small one is multiplied out once per
    sequence.

    Count: 3N + 4N + N (b) + 2N (h₀) + 2N·I, and 2N·10 + 10 for a readout: 32N + 10 in all,
    16,394 at N = 512. All of it is stored as real numbers. (The lengths and phases of the
    two reflection vectors have no effect; they are counted, as published.)

    Start: phases U(±π), reflections and V Glorot uniform, b ~ U(±0.01), h₀ ~ U(±√(3/(2N))).
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

    def _build(self, **factory: Unpack[Factory]) -> None:
        super()._build(**factory)
        N = self.hidden_size
        self.theta = parameter(3, N, **factory)
        self.reflections = parameter(2, 2, N, **factory)
        permutation = torch.arange(N, device=factory.get("device"))
        self.register_buffer("permutation", permutation)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the first values, Π among them."""
        N, device = self.hidden_size, self.permutation.device
        self.permutation.copy_(torch.randperm(N, generator=generator, device=device))
        draw_restricted_unitary_(self.theta, self.reflections, generator)
        self.reset_cell(generator)

    def unitary(self) -> Callable[[Tensor], Tensor]:
        """[Re h; Im h] ↦ [Re W h; Im W h]."""
        apply = restricted_unitary(self.theta, self.reflections, self.permutation)

        def real_apply(h: Tensor) -> Tensor:
            z = apply(torch.complex(*h.chunk(2, -1)))
            return torch.cat([z.real, z.imag], -1)

        if self.hidden_size > DENSE:
            return real_apply
        matrix = real_apply(torch.eye(self.state_size, dtype=self.b.dtype, device=self.b.device))
        return lambda h: h @ matrix


PRESETS = {
    # github.com/stwisdom/urnn: config_mnist_restricteduRNN*
    "psmnist": Preset(
        "psmnist", URnnConfig(512), 16_394, training("rmsprop", 1e-4, alpha=0.9, batch_size=50)
    ),
    # github.com/amarshah/complex_RNN
    "adding": Preset(
        "adding", URnnConfig(512), settings=training("rmsprop", 1e-3, alpha=0.9, batch_size=20)
    ),
    # github.com/stwisdom/urnn: run_memory_problem.sh
    "copying": Preset(
        "copying", URnnConfig(470), settings=training("rmsprop", 1e-3, alpha=0.9, batch_size=20)
    ),
}
ROW = row(URnn, URnnConfig(4), PRESETS)
