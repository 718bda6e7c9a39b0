"""Steps that add to the state: AntisymmetricRNN, Lipschitz RNN, FastRNN, leaky echo state."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import Fraction, HiddenSettings, NonNegative, OneOf, Range, Width, fail
from roann.lab.models.base import Preset, adagrad, adam
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row
from roann.lab.models.skew import skew, skew_size


class AntisymmetricRnnConfig(HiddenSettings):
    """Settings of the AntisymmetricRNN."""

    epsilon: NonNegative = 0.01  # ε, the step size of the Euler scheme.
    gamma: NonNegative = 0.01  # γ, the damping that keeps the Euler scheme stable.
    gated: bool = False  # whether a learned gate multiplies each update.
    # scale of the initial recurrent weights, drawn from N(0, sigma_w² / N).
    sigma_w: NonNegative = 1.0


class AntisymmetricRnn(DrivenSystem[AntisymmetricRnnConfig]):
    r"""AntisymmetricRNN, `Chang et al. 2019 <https://arxiv.org/abs/1902.09689>`_.

        M = W − Wᵀ − γI
        h' = h + ε tanh(M h + V x + b)                                plain
        h' = h + ε σ(M h + V_z x + b_z) ⊙ tanh(M h + V x + b)         gated, one M in both

    Every eigenvalue of M has the real part −γ. Euler is stable in the linear regime if
    γ ≥ ε(γ² + ω²)/2 for every eigenvalue −γ ± iω, so γ = 0 is unstable. Plain Jacobian: I + εD M.

    Count: N(N−1)/2 + N·I + N (gate: + N·I + N), and 10N + 10 for a readout: 9,674 at N = 128,
    gated 9,930. The upper triangle of W − Wᵀ is stored, so the stored number is the effective one;
    a full W would hold 17,930 numbers and move W − Wᵀ twice as fast under the same SGD.

    Example:
        >>> system = AntisymmetricRnn(1, AntisymmetricRnnConfig(8), dtype=torch.float64)
        >>> real = torch.linalg.eigvals(system.recurrent_matrix()).real
        >>> bool((real + system.config.gamma).abs().max() < 1e-13)
        True
    """

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.A = new.normal(self.config.sigma_w * math.sqrt(2 / N), skew_size(N))
        # With a gate, its rows follow: [V; V_z] and [b; b_z].
        rows = 2 * N if self.config.gated else N
        self.V = new.normal(self.input_size**-0.5, rows, self.input_size)
        self.b = new.constant(0, rows)

    def recurrent_matrix(self) -> Tensor:
        """M = W − Wᵀ − γI."""
        eye = torch.eye(self.state_size, dtype=self.A.dtype, device=self.A.device)
        return skew(self.A, self.state_size) - self.config.gamma * eye

    def transition(self) -> Transition:
        M_t, eps = self.recurrent_matrix().mT, self.config.epsilon

        def plain(h: Tensor, d: Tensor) -> Tensor:
            return torch.add(h, torch.tanh(h @ M_t + d), alpha=eps)

        def gated(h: Tensor, d: Tensor) -> Tensor:
            pre, (d_h, d_z) = h @ M_t, d.chunk(2, -1)
            return torch.addcmul(h, torch.tanh(pre + d_h), torch.sigmoid(pre + d_z), value=eps)

        return gated if self.config.gated else plain


_GATED = adagrad(0.1, batch_size=128, epochs=46)  # github.com/KurochkinAlexey/AntisymmetricRNN
ANTISYMMETRIC_PRESETS = [
    # The paper searched SGD and Adagrad, lr from 0.1 to 1, ε and γ from 0.001 to 1.
    Preset("psmnist", AntisymmetricRnnConfig(128), 9_674, adagrad(0.1, batch_size=128)),
    Preset("psmnist", AntisymmetricRnnConfig(128, gated=True), 9_930, _GATED, "psmnist-gated"),
]
ANTISYMMETRIC = row(AntisymmetricRnn, AntisymmetricRnnConfig(5, gated=True), ANTISYMMETRIC_PRESETS)


class LipschitzRnnConfig(HiddenSettings):
    """Settings of the Lipschitz RNN."""

    epsilon: NonNegative = 0.03  # ε, the step size of the Euler scheme.
    # β, the weight of the skew-symmetric part: 0 symmetric, 0.5 a free matrix, 1 skew.
    beta: Fraction = 0.75
    gamma: NonNegative = 0.001  # γ, the damping.
    # N times the standard deviation of the initial entries of M_A and M_W.
    init_std: NonNegative = 0.1


class LipschitzRnn(DrivenSystem[LipschitzRnnConfig]):
    r"""Lipschitz RNN, `Erichson et al. 2021 <https://arxiv.org/abs/2006.12070>`_.

        S(M) = β(M − Mᵀ) + (1 − β)(M + Mᵀ) − γI,   A = S(M_A),   W = S(M_W)
        h' = h + ε A h + ε tanh(W h + U x + b)

    the forward Euler scheme of ḣ = A h + tanh(W h + U x + b). The symmetric part of A is
    (1 − β)(M + Mᵀ) − γI, so max Re λ(A) ≤ (1 − β) λ_max(M + Mᵀ) − γ. Jacobian: I + εA + εD W.

    Count: 2N² + N·I + N, and 10N + 10 for a readout: 34,314 at N = 128, the table's 34k.

    Public code writes h @ A, so that its skew part has the other sign.

    Example:
        >>> system = LipschitzRnn(1, LipschitzRnnConfig(8, beta=1.0, gamma=0.5))
        >>> A, _ = system.matrices()
        >>> bool((A + A.mT + torch.eye(8)).abs().max() < 1e-6)
        True
    """

    input_map = ("U", "b")

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.M_A = new.normal(self.config.init_std / N, N, N)  # over N, not over √N
        self.M_W = new.normal(self.config.init_std / N, N, N)
        self.U, self.b = new.linear(self.input_size, N)

    def matrices(self) -> tuple[Tensor, Tensor]:
        """A = S(M_A) and W = S(M_W)."""
        beta, gamma = self.config.beta, self.config.gamma
        M = torch.stack([self.M_A, self.M_W])
        damping = gamma * torch.eye(self.state_size, dtype=M.dtype, device=M.device)
        A, W = beta * (M - M.mT) + (1 - beta) * (M + M.mT) - damping
        return A, W

    def transition(self) -> Transition:
        """h, d ↦ (I + εA) h + ε tanh(W h + d), both products in one."""
        A, W = self.matrices()
        eps = self.config.epsilon
        eye = torch.eye(self.state_size, dtype=A.dtype, device=A.device)
        both = torch.cat([eye + eps * A, W]).mT

        def advance(h: Tensor, d: Tensor) -> Tensor:
            linear, pre = (h @ both).chunk(2, -1)
            return torch.add(linear, torch.tanh(pre + d), alpha=eps)

        return advance


LIPSCHITZ_PRESETS = [
    # github.com/erichson/LipschitzRNN: README, driver.py; lr × 0.1 at epoch 90.
    Preset("psmnist", LipschitzRnnConfig(), 34_314, adam(0.0035, batch_size=128, epochs=100)),
]
LIPSCHITZ = row(LipschitzRnn, LipschitzRnnConfig(5), LIPSCHITZ_PRESETS)


class FastRnnConfig(HiddenSettings):
    """Settings of FastRNN."""

    # activation function φ.
    nonlinearity: Annotated[str, OneOf(("tanh", "relu", "sigmoid"))] = "tanh"
    # initial value of a; σ(a) multiplies the update, and σ(−3) = 0.047.
    a: Annotated[float, Range(-100, 100)] = -3.0
    # initial value of c; σ(c) multiplies the state, and σ(3) = 0.953.
    c: Annotated[float, Range(-100, 100)] = 3.0
    learn_scalars: bool = True  # whether a and c are trained; if not and c = −a, this is eyeRNN.


class FastRnn(DrivenSystem[FastRnnConfig]):
    r"""FastRNN, `Kusupati et al. 2018 <https://arxiv.org/abs/1901.02358>`_.

        h' = σ(c) h + σ(a) φ(U h + W x + b)

    a and c are trained scalars; they start at −3 and +3, so that the two weights sum to 1. Frozen
    at a = logit(α), c = logit(1 − α) this is the additive network with the filter O = I (eyeRNN).
    The Jacobian is σ(c)I + σ(a)D U. Ports without sigmoids multiply the state by ±3 and diverge.

    Count: N² + N·I + N + 2, and 10N + 10 for a readout: 17,932 at N = 128 (the table has none).

    Example:
        >>> system = FastRnn(1, FastRnnConfig(8))
        >>> bool((torch.sigmoid(system.a) + torch.sigmoid(system.c) - 1).abs() < 1e-6)
        True
    """

    input_map = ("W", "b")

    def build(self, new: Source) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        self.U = new.normal(0.1, N, N)
        self.W = new.normal(0.1, N, self.input_size)
        self.b = new.constant(1, N)
        self.a = new.constant(self.config.a).requires_grad_(self.config.learn_scalars)
        self.c = new.constant(self.config.c).requires_grad_(self.config.learn_scalars)

    def transition(self) -> Transition:
        """h, d ↦ σ(c) h + σ(a) φ(U h + d)."""
        U_t, phi = self.U.mT, ACTIVATIONS[self.config.nonlinearity].value
        keep, take = torch.sigmoid(self.c), torch.sigmoid(self.a)
        return lambda h, d: torch.addcmul(keep * h, take, phi(h @ U_t + d))


FASTRNN_PRESETS = [
    # github.com/microsoft/EdgeML's example (lr ÷ 10 every 200 epochs); none is published for this.
    Preset("psmnist", FastRnnConfig(128), 17_932, adam(0.01, batch_size=100, epochs=300)),
]
FASTRNN = row(FastRnn, FastRnnConfig(5), FASTRNN_PRESETS)


class LeakyEsnConfig(HiddenSettings):
    """Settings of a leaky echo state network."""

    hidden_size: Width = 256  # number of hidden units, N.
    leak: Fraction = 0.3  # a, the fraction of the state that is replaced at each step.
    # "common" multiplies φ by the leak, "jaeger2007" does not.
    form: Annotated[str, OneOf(("common", "jaeger2007"))] = "common"
    radius: NonNegative = 0.9  # spectral radius that the drawn matrix is scaled to.
    # which matrix has that radius: "matrix" is W, "effective" is (1 − a)I + aW
    # ((1 − a)I + W for "jaeger2007"), with a for the leak.
    radius_of: Annotated[str, OneOf(("matrix", "effective"))] = "matrix"
    input_scale: NonNegative = 1.0  # the input weights are uniform in ±input_scale.
    bias_scale: NonNegative = 0.0  # the biases are uniform in ±bias_scale.
    # activation function φ.
    nonlinearity: Annotated[str, OneOf(("tanh", "identity", "relu"))] = "tanh"


class LeakyEsn(DrivenSystem[LeakyEsnConfig]):
    r"""Leaky echo state network, `Jaeger et al. 2007 <https://doi.org/10.1016/j.neunet.2007.04.016>`_.

        x' = (1 − a) x + a φ(W x + W_in u + b)          "common"
        x' = (1 − a) x + φ(W x + W_in u + b)            "jaeger2007", the leak not on φ

    W, W_in and b are drawn once and never trained (buffers); the Jacobian is (1 − a)I + aD W, or
    (1 − a)I + D W. The state forgets where it started if σ_max(W) < 1 (common) or σ_max(W) < a
    (2007): then every step contracts, by (1 − a) + a σ_max(W) or (1 − a) + σ_max(W).

    Count: 0; only the readout is trained.

    Example:
        >>> system = LeakyEsn(1, LeakyEsnConfig(8, radius=0.5))
        >>> bool((torch.linalg.eigvals(system.W).abs().max() - 0.5).abs() < 1e-5)
        True
    """

    input_map = ("W_in", "b")
    W: Tensor
    W_in: Tensor
    b: Tensor

    def build(self, new: Source) -> None:
        """Draw the fixed values."""
        c, draw = self.config, partial(torch.Tensor.uniform_, generator=new.generator)
        self.state_size = self.output_size = N = c.hidden_size
        W_in = draw(new.empty(N, self.input_size), -c.input_scale, c.input_scale)
        b = draw(new.empty(N), -c.bias_scale, c.bias_scale)
        W = draw(new.empty(N, N), -1, 1)
        if c.radius_of == "matrix":
            W *= c.radius / torch.linalg.eigvals(W).abs().max()
        else:
            take = c.leak if c.form == "common" else 1.0
            W *= _scale_to_radius(torch.linalg.eigvals(W) * take, 1 - c.leak, c.radius)
        for name, value in {"W": W, "W_in": W_in, "b": b}.items():
            self.register_buffer(name, value)

    def transition(self) -> Transition:
        W_t, phi, a = self.W.mT, ACTIVATIONS[self.config.nonlinearity].value, self.config.leak
        take = a if self.config.form == "common" else 1.0
        return lambda x, d: torch.add((1 - a) * x, phi(x @ W_t + d), alpha=take)


def _scale_to_radius(eigenvalues: Tensor, keep: float, radius: float) -> float:
    """The largest s ≥ 0 with max |keep + s λ| = radius, by bisection."""
    if radius < keep:
        fail("radius", f"at least 1 − leak = {keep:g} for the effective matrix", radius)
    low, high = 0.0, (radius + keep) / float(eigenvalues.abs().max())
    for _ in range(200):
        middle = (low + high) / 2
        inside = float((keep + middle * eigenvalues).abs().max()) <= radius
        low, high = (middle, high) if inside else (low, middle)
    return low


# None is published for these tasks; on psMNIST github.com/andreaceni/ResESN solves by ridge.
LEAKY_ESN_PRESETS = [Preset("psmnist", LeakyEsnConfig(256), 2_570)]
LEAKY_ESN = row(LeakyEsn, LeakyEsnConfig(5, bias_scale=0.1), LEAKY_ESN_PRESETS)
