"""Leaky echo state network."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import torch
from torch import Tensor

from roann.kernels.activations import ACTIVATIONS
from roann.lab.limits import Fraction, HiddenSettings, NonNegative, OneOf, Width, fail
from roann.lab.models.recurrence import DrivenSystem, Source, Transition, row


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


LEAKY_ESN = row(LeakyEsn, LeakyEsnConfig(5, bias_scale=0.1))
