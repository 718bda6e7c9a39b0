"""Counting: how many floating-point operations a recurrent layer's products need.

A product of (B, N) with (N, N) is 2·B·N·N operations. Per step the dense roaRNN has two in the
forward pass (W x and O x), two in the backward pass (Wᵀ and Oᵀ on adjoints) and one for the
gradient of W. The rest is of lower order, or done once per call as the cap on ‖W‖ is, and not
counted.
"""

from __future__ import annotations

from typing import NamedTuple


class Products(NamedTuple):
    """N × N products per step."""

    forward: int
    backward: int
    weight_gradient: int

    def of(self, work: str) -> int:
        """How many of them belong to the work "forward" or "train"."""
        return self.forward if work == "forward" else sum(self)


ROA_DENSE = Products(2, 2, 1)
ROA_STRUCTURED = Products(1, 1, 1)  # O costs no product
FILTERS = {"qr": ROA_DENSE, "permutation": ROA_STRUCTURED, "broad": ROA_STRUCTURED}
"""The filters that are measured; a new one is a row here."""
RNN = Products(1, 1, 1)
GRU = Products(3, 3, 3)
LSTM = Products(4, 4, 4)


def recurrent(products: Products, work: str, *, T: int, B: int, N: int) -> int:
    """Operations of the N × N products of one call.

    Example:
        >>> recurrent(ROA_DENSE, "train", T=1, B=1, N=3)  # 5 products of 9 multiply-adds
        90
    """
    return 2 * T * B * N * N * products.of(work)
