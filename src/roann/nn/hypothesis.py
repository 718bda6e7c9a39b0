"""Whether a layer meets the hypothesis of the theorems: α(1 + r‖W‖) < 1, in every map.

Note [The norm from below]
--------------------------
‖W‖ costs a singular value decomposition. The Frobenius norm bounds it from above in one pass and
clears nearly every layer. For the others, at most `MAPS` of them where a network is deep, a few
rounds of power iteration bound it from below. So a warning is never wrong, and a layer that misses
the hypothesis by a few percent may go unnoticed; `roann.certify` has the exact norm.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from torch import Tensor

from roann.filters.base import full_precision
from roann.theorem import power_norms

MAPS = 16
CONSTRUCTION = 6  # frames between `warnings.warn` and the line that builds a layer


class HypothesisWarning(UserWarning):
    """α(1 + r‖W‖) ≥ 1: the theorems do not hold, and states and gradients may explode or vanish.

    It is given once per layer, when its weights are drawn or loaded. See `roann.certify`.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     rnn = roann.RoaRNN(1, 128, rho=1.0, horizon=10, **roann.PAPER)
        >>> caught[0].category.__name__
        'HypothesisWarning'

    Reference: the condition on ρ in Theorems II.1 and III.1 of the paper.
    """


def warn(layer: str, maps: Iterable[tuple[Tensor, float | Tensor]], r: float) -> bool:
    """Warn if a map of weights W and its α do not meet the hypothesis; whether it did.

    α = 1 everywhere is a plain network, for which there is no theorem: nothing is said.
    """
    for W, alpha in maps:
        values = torch.as_tensor(alpha)
        plain = all(type(t.detach()) is Tensor and not t.is_meta for t in (W, values))
        if not plain or bool((values == 1).all()):
            continue
        found = largest(W, values, r)
        if found >= 1:
            warnings.warn(
                f"{layer}: expected alpha (1 + r ‖W‖) below 1, got {found:.3g}: the theorem does "
                "not hold, and states and gradients may explode or vanish; lower rho, raise "
                "horizon, or pass max_norm, and see roann.certify",
                HypothesisWarning,
                stacklevel=CONSTRUCTION,
            )
            return True
    return False


@torch.no_grad()
def largest(W: Tensor, alpha: Tensor, r: float) -> float:
    """The largest α(1 + r‖W‖) of a stack of maps, from below: Note [The norm from below].

    Shape: W (N_out, N_in) or (L, N_out, N_in); alpha (), (N_out,), (L, 1) or (L, N_out).

    Example:
        >>> largest(torch.diag(torch.tensor([1.0, 5.0])), torch.tensor(0.5), 1.0)
        3.0
    """
    W = W.detach().reshape(-1, *W.shape[-2:])
    W = W.to(full_precision(W.dtype))
    alpha = (alpha.amax(-1) if alpha.dim() else alpha).detach().to(W).expand(len(W))
    above = alpha * (1 + r * torch.linalg.vector_norm(W, dim=(-2, -1)))
    if float(above.max()) < 1:
        return float(above.max())
    worst = above.topk(min(MAPS, len(W))).indices
    W, alpha = W[worst], alpha[worst]
    return float((alpha * (1 + r * power_norms(W))).max())
