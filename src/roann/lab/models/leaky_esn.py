"""Leaky echo state network: a fixed reservoir, of which only the readout is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Unpack

import torch
from torch import Tensor

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import Fraction, HiddenSettings, NonNegative, OneOf, Width, fail
from roann.lab.models.base import Preset
from roann.lab.models.recurrence import DrivenSystem, Factory, Transition, row


@dataclass(frozen=True)
class LeakyEsnConfig(HiddenSettings):
    """Settings of a leaky echo state network.

    Attributes:
        leak: a, the fraction of the state that is replaced at each step.
        form: "common" multiplies φ by the leak, "jaeger2007" does not.
        radius: spectral radius that the drawn matrix is scaled to.
        radius_of: which matrix has that radius: "matrix" is W, "effective" is (1 − a)I + aW
            ((1 − a)I + W for "jaeger2007"), with a for the leak.
        input_scale: the input weights are uniform in ±input_scale.
        bias_scale: the biases are uniform in ±bias_scale.
        nonlinearity: activation function φ.
    """

    hidden_size: Width = 256
    leak: Fraction = 0.3
    form: Annotated[str, OneOf(("common", "jaeger2007"))] = "common"
    radius: NonNegative = 0.9
    radius_of: Annotated[str, OneOf(("matrix", "effective"))] = "matrix"
    input_scale: NonNegative = 1.0
    bias_scale: NonNegative = 0.0
    nonlinearity: Annotated[str, OneOf(("tanh", "identity", "relu"))] = "tanh"


class LeakyEsn(DrivenSystem[LeakyEsnConfig]):
    r"""Leaky echo state network, `Jaeger et al. 2007 <https://doi.org/10.1016/j.neunet.2007.04.016>`_.

        x' = (1 − a) x + a φ(W x + W_in u + b)          "common"
        x' = (1 − a) x + φ(W x + W_in u + b)            "jaeger2007", the leak not on φ

    W, W_in and b are drawn once and never trained (buffers); the Jacobian is (1 − a)I + aD W, or
    (1 − a)I + D W. The state forgets where it started if σ_max(W) < 1 (common) or σ_max(W) < a
    (2007): then every step contracts, by (1 − a) + a σ_max(W) or (1 − a) + σ_max(W).

    Count: 0; only the readout is trained, by any optimiser, or in one solve by `ridge`.

    Start: W uniform, scaled to a spectral radius; W_in, b uniform.

    Example:
        >>> system = LeakyEsn(1, LeakyEsnConfig(8, radius=0.5))
        >>> bool((torch.linalg.eigvals(system.W).abs().max() - 0.5).abs() < 1e-5)
        True
    """

    input_map = ("W_in", "b")
    W: Tensor
    W_in: Tensor
    b: Tensor

    def _build(self, **factory: Unpack[Factory]) -> None:
        self.state_size = self.output_size = N = self.config.hidden_size
        for name, shape in (("W", (N, N)), ("W_in", (N, self.input_size)), ("b", (N,))):
            self.register_buffer(name, torch.empty(shape, **factory))

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the fixed values anew."""
        c = self.config
        self.W_in.uniform_(-c.input_scale, c.input_scale, generator=generator)
        self.b.uniform_(-c.bias_scale, c.bias_scale, generator=generator)
        self.W.uniform_(-1, 1, generator=generator)
        if c.radius_of == "matrix":
            self.W *= c.radius / torch.linalg.eigvals(self.W).abs().max()
        else:
            take = c.leak if c.form == "common" else 1.0
            self.W *= _scale_to_radius(torch.linalg.eigvals(self.W) * take, 1 - c.leak, c.radius)

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


def ridge(states: Tensor, targets: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """The readout W (O, H), b (O,) that minimises Σ ‖W x + b − y‖² + penalty ‖W‖².

    Args:
        states: (M, H), after the washout.
        targets: (M, O).
        penalty: of the weights; the bias is free.

    Example:
        >>> x = torch.randn(50, 3).double()
        >>> W, b = ridge(x, x @ torch.ones(3, 1).double() + 2, 0.0)
        >>> bool((W - 1).abs().max() < 1e-12 and (b - 2).abs() < 1e-12)
        True
    """
    mean_x, mean_y = states.mean(0), targets.mean(0)
    X, Y = states - mean_x, targets - mean_y
    gram = X.mT @ X + penalty * torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
    W = torch.linalg.solve(gram, X.mT @ Y).mT
    return W, mean_y - W @ mean_x


# None is published for these tasks; on psMNIST github.com/andreaceni/ResESN solves by ridge.
PRESETS = [Preset("psmnist", LeakyEsnConfig(256), 2_570)]
ROW = row(LeakyEsn, LeakyEsnConfig(5, bias_scale=0.1), PRESETS)
