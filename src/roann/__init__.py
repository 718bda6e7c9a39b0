"""Random orthogonal additive neural networks: layers with a proven bound on their gradients."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roann import diagnostics, export, filters, functional
    from roann.diagnostics import certify
    from roann.export import export_onnx
    from roann.nn import (
        HypothesisWarning,
        Roa,
        RoaEuler,
        RoaFlow,
        RoaFNN,
        RoaLayer,
        RoaODE,
        RoaRNN,
        RoaRNNCell,
        StreamingRoa,
        multiscale,
    )
    from roann.nn.groups import parameter_groups
    from roann.nn.module import PAPER
    from roann.serialization import load, save

__version__ = "0.1.0"

__all__ = [
    "PAPER",
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
    "certify",
    "diagnostics",
    "export",
    "export_onnx",
    "filters",
    "functional",
    "load",
    "multiscale",
    "parameter_groups",
    "save",
]

# Names are fetched when first asked for: torch takes seconds to import, and the help of the
# command line, which lives in this package, must answer at once.
_ROOMS = ("diagnostics", "export", "filters", "functional")
_HOMES = {
    "PAPER": "nn.module",
    "certify": "diagnostics",
    "export_onnx": "export",
    "load": "serialization",
    "parameter_groups": "nn.groups",
    "save": "serialization",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{name if name in _ROOMS else _HOMES.get(name, 'nn')}")
    value = home if name in _ROOMS else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
