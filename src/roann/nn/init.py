"""Initialisations by name. The paper's is `normal`: every entry N(0, 1)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from roann import _checks
from roann.filters import Haar

Draw = Callable[[torch.Size, torch.Generator | None], Tensor]


def _normal(shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    return torch.randn(shape, generator=generator, device=device)


def _uniform(shape: torch.Size, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    return 2 * torch.rand(shape, generator=generator, device=device) - 1


def _fill(t: Tensor, draw: Draw, scale: float, generator: torch.Generator | None) -> None:
    # Drawn where the generator lives, so that one seed gives one network on every device.
    if not t.is_meta:
        t.copy_(scale * draw(t.shape, generator))


def _orthogonal(t: Tensor, generator: torch.Generator | None) -> None:
    *lead, rows, columns = t.shape
    if not t.is_meta:
        depth = lead[0] if lead else None
        t.copy_(Haar(rows, columns, depth=depth, generator=generator).to_dense())


# Note [A bias that starts at zero]
# ---------------------------------
# A rectifier with b > 0 answers to every input, and over a long sequence the sum of its answers is
# a large constant, in which what differs between sequences is lost. With b = 0 half of the units
# are silent for a given input. A negative b would go further, but a layer whose inputs are small
# would then be silent altogether, and never learn.

INITS = ("balanced", "drawn_bias", "normal", "scaled_normal", "uniform", "orthogonal")


@torch.no_grad()
def initialise(
    name: str,
    W: Tensor,
    W_i: Tensor | None,
    b: Tensor | None,
    generator: torch.Generator | None = None,
) -> None:
    """Fill the weights W (N, N) or (L, N, N), W_i (N, I) and b of a layer, in place.

    balanced: W from N(0, 1/N), so that ‖W‖ ≈ 2 whatever N, W_i from N(0, 1/I) and b zero; without
        W_i, b from N(0, 1).
    drawn_bias: as balanced, with b from N(0, 1).
    normal: N(0, 1) everywhere, as in the paper.
    scaled_normal: W from N(0, 1/N), the others N(0, 1).
    uniform: U(±1/√N) everywhere, as `torch.nn.RNN`.
    orthogonal: W orthogonal, the others U(±1/√N): the paper's vanilla RNN.

    Example:
        >>> W, b = torch.empty(3, 3), torch.empty(3)
        >>> initialise("orthogonal", W, None, b, torch.Generator().manual_seed(0))
        >>> bool((W @ W.T - torch.eye(3)).abs().max() < 1e-6)
        True
    """
    _checks.generator(generator)
    bound = 1 / math.sqrt(W.shape[-2])
    balanced = name in ("balanced", "drawn_bias")
    normal = balanced or name in ("normal", "scaled_normal")
    if name == "orthogonal":
        _orthogonal(W, generator)
    elif balanced or name == "scaled_normal":
        _fill(W, _normal, 1 / math.sqrt(W.shape[-1]), generator)
    else:
        _fill(W, _normal if normal else _uniform, 1.0 if normal else bound, generator)
    scale = 1.0 if normal else bound
    if W_i is not None:
        few = 1 / math.sqrt(W_i.shape[-1]) if balanced else scale
        _fill(W_i, _normal if normal else _uniform, few, generator)
    if b is not None and W_i is not None and name == "balanced":
        b.zero_()  # Note [A bias that starts at zero]
    elif b is not None:
        _fill(b, _normal if normal else _uniform, scale, generator)
