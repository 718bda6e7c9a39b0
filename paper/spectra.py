"""Singular values of the Jacobian of L maps, and the intervals of the theorems."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paper.perturbation import rounded
from roann import RoaFNN, RoaRNN, diagnostics
from roann.filters import make

FACTORISATIONS = 4_000  # of products of roa Jacobians, which are well conditioned


class Network(NamedTuple):
    """A network whose spectrum is measured at every length; without ρ it is plain, α = 1."""

    label: str
    setting: str  # "tight", where the interval is narrow, or "paper", the paper's own
    width: int
    init: str
    rho: float | None
    filter: str = "qr"


# A plain network is ours with α = 1, where O has no part in the step. Over depth it starts from
# N(0, 1) as in Fig. 1; over time as the paper's vanilla RNN, with an orthogonal W.
NETWORKS = (
    Network("roaFNN", "tight", 8, "scaled_normal", 1.0),
    Network("roaFNN", "paper", 8, "normal", 5.0),
    Network("plain FNN", "paper", 8, "normal", None),
    Network("roaRNN", "tight", 48, "scaled_normal", 1.0),
    Network("roaRNN", "paper", 48, "normal", 3.0),
    Network("eyeRNN", "tight", 48, "scaled_normal", 1.0, "identity"),
    Network("eyeRNN", "paper", 48, "normal", 3.0, "identity"),
    Network("plain RNN", "paper", 48, "orthogonal", None),
)


def spectrum(net: Network, L: int, seed: int) -> dict[str, Any]:
    """The singular values of ∂x_L/∂x_0 and the intervals of the theorems, all as logarithms."""
    model, inputs = built(net, L, seed)
    # Products of plain Jacobians lose their small singular values within a few factors.
    sigma = _sigma(model, inputs, 1 if net.rho is None else math.ceil(L / FACTORISATIONS))
    over = "depth" if "FNN" in net.label else "time"
    found: dict[str, Any] = {
        "kind": "spectrum",
        "network": net.label,
        "over": over,
        "setting": net.setting,
    }
    found |= {"width": net.width, "rho": net.rho, "maps": L, "seed": seed, "sigma": rounded(sigma)}
    bounds = diagnostics.bounds_of(model, None if over == "depth" else L)
    if net.rho is None or bounds is None:
        return found
    # All widths are equal, so the theorem bounds every singular value from below.
    slack, least, most = 1e-9 * L, float(sigma.min()), float(sigma.max())
    for name, ends in (("finite", bounds.finite), ("paper", bounds.asymptotic)):
        low, high = ends.log_lower, ends.log_upper
        inside = low - slack <= least and most <= high + slack
        found |= {name: {"lower": low, "upper": high, "inside": inside}}
    norm = {"norm_W": bounds.sigma}
    return found | norm | {"hypothesis": bounds.hypothesis, "vacuous": bounds.vacuous}


def built(net: Network, L: int, seed: int) -> tuple[RoaFNN | RoaRNN, Tensor]:
    """A network of L maps with weights of its own, and inputs to follow it along."""
    # O has a stream of its own: whatever it draws, W of a seed is the same for every filter.
    rng, own = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(100 + seed)
    settings: dict[str, Any] = {"alpha": 1.0 if net.rho is None else net.rho / L, "init": net.init}
    settings |= {"generator": rng, "dtype": torch.float64}
    if "FNN" in net.label:
        model = RoaFNN([net.width] * (L + 1), filter=net.filter, **settings)
        return model, torch.randn(net.width, generator=rng, dtype=torch.float64)
    O = make(net.filter, net.width, generator=own, dtype=torch.float64)
    rnn = RoaRNN(2, net.width, filter=O, **settings)
    return rnn, torch.rand(L, 2, generator=rng, dtype=torch.float64)


def _sigma(model: RoaFNN | RoaRNN, inputs: Tensor, every: int) -> Tensor:
    """ln σ, largest first."""
    jacobians = diagnostics.trajectory(model, inputs).jacobians()
    return diagnostics.log_singular_values(jacobians, every)


def worst_case(L: int) -> dict[str, Any]:
    """The network that meets the lower end: φ = id, W = −σ O. The paper's end holds in the limit.

    All singular values are (1 − α(1+σ))^L, the finite interval's lower end, for every L.
    """
    O = make("qr", 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rnn = RoaRNN(1, 4, nonlinearity="identity", filter=O, alpha=2.0 / L, dtype=torch.float64)
    with torch.no_grad():
        rnn.get_parameter("weight_hh_l0").copy_(-O.to_dense())
    sigma = _sigma(rnn, torch.zeros(L, 1, dtype=torch.float64), math.ceil(L / FACTORISATIONS))
    bounds = diagnostics.bounds_of(rnn, L)
    assert bounds is not None  # ours
    ends = {"finite": bounds.finite.log_lower, "paper": bounds.asymptotic.log_lower}
    return {"kind": "worst-case", "maps": L, "sigma": rounded(sigma, 10), **ends}
