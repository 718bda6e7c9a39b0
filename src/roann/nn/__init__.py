"""The layers: over time, over depth, in continuous time, and around any other module."""

from roann.nn.alpha import multiscale
from roann.nn.cell import RoaLayer, RoaRNNCell
from roann.nn.flow import RoaFlow
from roann.nn.fnn import RoaFNN
from roann.nn.hypothesis import HypothesisWarning
from roann.nn.ode import RoaEuler, RoaODE
from roann.nn.rnn import RoaRNN
from roann.nn.streaming import StreamingRoa
from roann.nn.wrap import Roa

__all__ = [
    "HypothesisWarning",
    "Roa",
    "RoaEuler",
    "RoaFNN",
    "RoaFlow",
    "RoaLayer",
    "RoaODE",
    "RoaRNN",
    "RoaRNNCell",
    "StreamingRoa",
    "multiscale",
]
