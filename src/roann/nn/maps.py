"""The maps of a layer as they stand: what diagnostics ask a layer for."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from roann.kernels.activations import Activation
from roann.kernels.linear import Linear


class Scan(NamedTuple):
    """One scan of α φ(W x + W_i u + b) + (1 − α) O x."""

    W: Tensor  # (N, N) over time; (depth, N_out, N_in), one for each map, in depth
    O: Linear  # the filter as kernels consume it: one for all maps, or a stack
    alpha: float | Tensor  # a number, (N,), or, in depth, (depth, 1) or (depth, N)
    phi: Activation
    b: Tensor | None  # (N,) over time, (depth, N_out) in depth; None without a bias
    W_i: Tensor | None = None  # (N, I) over time; None in depth


class RoaMaps(NamedTuple):
    """The scans of a layer: one after another in depth; for each layer and direction over time."""

    scans: tuple[Scan, ...]  # at least one; all over time, or all in depth
    directions: int = 1  # 2 if every second scan runs from the end to the beginning
    batch_first: bool = False  # whether the inputs are (B, T, …)
    stacked: bool = False  # whether a first state hx has a leading entry for each scan
    max_norm: float | None = None  # c, if α is fixed and ‖W‖ ≤ c in every forward pass
    covered: str = "any input"  # what the bounds are about, in the words of a certificate

    @property
    def recurrent(self) -> bool:
        """Whether it is over time."""
        return self.scans[0].W_i is not None


@runtime_checkable
class HasRoaMaps(Protocol):
    """Anything that tells its maps: diagnostics have its Jacobians in closed form, and bounds.

    Example:
        >>> maps = roann.RoaFNN([2] * 10 + [1]).roa_maps()
        >>> [tuple(scan.W.shape) for scan in maps.scans]
        [(9, 2, 2), (1, 1, 2)]
    """

    def roa_maps(self) -> RoaMaps | None:
        """The maps; None where no theorem covers them, and only `step` tells what it does."""
