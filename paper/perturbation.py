"""How far W moves the eigenvalues of a step off the circle, for each filter.

Note [What a filter does to W]
------------------------------
With slope one, a step has the Jacobian J = (1−α) O + α W. O is normal: O v_i = λ_i v_i with
orthonormal v_i. If the λ_i are apart by much more than α‖W‖, first-order perturbation gives

    eig_i(J) = (1−α) λ_i + α v_i* W v_i + O(α²),

so W acts through N numbers v_i* W v_i, each N(0, 1) in size for W of independent N(0, 1) entries.
With O = I every λ_i is 1, any basis is an eigenbasis, and eig(J) = (1−α) + α eig(W) exactly: W
acts through its eigenvalues, of size √N, and through its norm, 2√N.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roann import RoaRNN
from roann.diagnostics import eigenvalues, spectral_norm, step_jacobian
from roann.filters import make

FILTERS = ("qr", "haar", "permutation", "cycle", "identity")
SMALL = 1e-5  # the α of first-order effects, far below the distance of eigenvalues


def one_step(filter: str, N: int = 64, alpha: float = 0.05) -> dict[str, Any]:
    """The eigenvalues of one step of a roaRNN with this filter and the same W, at a state."""
    rng, double = torch.Generator().manual_seed(0), torch.float64
    O = make(filter, N, generator=torch.Generator().manual_seed(1), dtype=double)
    rnn = RoaRNN(2, N, alpha=alpha, filter=O, generator=rng, dtype=double)
    x = torch.randn(N, generator=rng, dtype=double)
    values = eigenvalues(step_jacobian(rnn, x, torch.rand(2, generator=rng, dtype=double)))
    found = [rounded(pair, 4) for pair in torch.view_as_real(values)]
    return {"kind": "eigenvalues", "filter": filter, "alpha": alpha, "width": N, "values": found}


def first_order(filter: str, N: int, seed: int) -> dict[str, Any]:
    """How far W moves eigenvalues off the circle, and what first-order perturbation says of it.

    See Note [What a filter does to W]. ``moved``: the largest | |λ(J)| − (1−α) | / α. ``diagonal``:
    the largest |Re λ̄_i v_i* W v_i|, what it should be where the λ_i are apart.
    """
    rng, double = torch.Generator().manual_seed(seed), torch.float64
    O = make(filter, N, generator=torch.Generator().manual_seed(100 + seed), dtype=double)
    settings: dict[str, Any] = {"alpha": SMALL, "nonlinearity": "identity", "dtype": double}
    rnn = RoaRNN(1, N, filter=O, generator=rng, **settings)
    zero = torch.zeros(N, dtype=double)
    values = eigenvalues(step_jacobian(rnn, zero, zero[:1]))
    W = rnn.get_parameter("weight_hh_l0").detach()
    lam, V = torch.linalg.eig(O.to_dense())
    # The eigenvectors of a normal matrix are orthogonal, but LAPACK's of equal eigenvalues are not.
    V = torch.linalg.qr(V).Q
    diagonal = (lam.conj() * (V.mH @ W.to(V.dtype) @ V).diagonal()).real
    moved = float((values.abs() - (1 - SMALL)).abs().max() / SMALL)
    found = {"kind": "first-order", "filter": filter, "width": N, "seed": seed, "moved": moved}
    return found | {"diagonal": float(diagonal.abs().max()), "norm_W": float(spectral_norm(W))}


def rounded(values: Tensor, digits: int = 6) -> list[float]:
    """Numbers for a record."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
