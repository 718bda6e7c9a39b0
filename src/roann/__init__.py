"""Random orthogonal additive neural networks, whose gradients neither vanish nor explode."""

from roann import diagnostics, filters, functional
from roann.diagnostics import certify
from roann.nn import Roa, RoaFNN, RoaLayer, RoaODE, RoaRNN, RoaRNNCell, multiscale
from roann.serialization import load, save

__version__ = "0.1.0"

__all__ = [
    "Roa",
    "RoaFNN",
    "RoaLayer",
    "RoaODE",
    "RoaRNN",
    "RoaRNNCell",
    "certify",
    "diagnostics",
    "filters",
    "functional",
    "load",
    "multiscale",
    "save",
]
