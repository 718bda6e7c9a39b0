"""Random orthogonal additive neural networks, whose gradients neither vanish nor explode."""

from roann import filters, functional
from roann.nn import RoaFNN, RoaLayer, RoaRNN, RoaRNNCell
from roann.serialization import load, save

__version__ = "0.1.0"

__all__ = [
    "RoaFNN",
    "RoaLayer",
    "RoaRNN",
    "RoaRNNCell",
    "filters",
    "functional",
    "load",
    "save",
]
