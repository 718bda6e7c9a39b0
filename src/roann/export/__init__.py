"""ONNX files of trained layers, and the parts to build larger graphs from. Extra: `[onnx]`."""

from roann.export.files import Exportable, export_onnx
from roann.export.graph import Graph
from roann.export.layers import add_rnn, add_step

__all__ = ["Exportable", "Graph", "add_rnn", "add_step", "export_onnx"]
