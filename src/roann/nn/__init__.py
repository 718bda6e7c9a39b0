"""The layers: `RoaRNN`, `RoaRNNCell`, `RoaFNN`, `RoaLayer`."""

from roann.nn.cell import RoaLayer, RoaRNNCell
from roann.nn.fnn import RoaFNN
from roann.nn.rnn import RoaRNN

__all__ = ["RoaFNN", "RoaLayer", "RoaRNN", "RoaRNNCell"]
