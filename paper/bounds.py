"""The theorems beside what is measured, without any training.

Three questions, each answered by lines of one record. Do the singular values of the input–output
Jacobian lie in the finite-L interval, from ten maps to a hundred thousand, and where do those of
plain networks lie? What do the eigenvalues of a step look like for each filter? And how far does W
move them off the circle: with its norm, of size √N, or only through its diagonal in the
eigenbasis of O, of size 1?

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

import json
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roann import RoaFNN, RoaRNN, diagnostics
from roann.filters import make
from roann.info import source
from roann.lab import records
from roann.lab.run import set_up

LENGTHS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
SIZES = (8, 16, 32, 64, 128, 256)
FILTERS = ("qr", "haar", "permutation", "cycle", "identity")
FACTORISATIONS = 4_000  # of products of roa Jacobians, which are well conditioned; see `_sigma`
SMALL = 1e-5  # the α of first-order effects, far below the distance of eigenvalues


class Network(NamedTuple):
    """A network whose spectrum is measured at every length; without ρ it is plain, α = 1."""

    label: str
    setting: str  # "tight", where the interval says something, or "paper", the paper's own
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


def main(quick: bool, path: Path) -> None:
    """Measure what is not in the record yet; stopped at any time, the next call continues."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = records.read(path, strict=False) if path.exists() else []
    lines = lines or [{"kind": "study", "env": set_up(threads=1, seed=0) | source()}]
    known = {line.get("name") for line in lines}
    path.write_text("".join(map(_line, lines)), encoding="utf-8")  # without a line cut short
    with open(path, "a", encoding="utf-8") as file:
        for name, measure in _cells(quick):
            if name not in known:
                start = time.perf_counter()
                found = {"name": name, **measure()}
                found["seconds"] = round(time.perf_counter() - start, 2)
                file.write(_line(found))
                file.flush()


def _line(value: dict[str, Any]) -> str:
    return json.dumps(records.plain(value), allow_nan=False, separators=(",", ":")) + "\n"


def _cells(quick: bool) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Every measurement by name: the smallest first, so that something is there soon."""
    for filter in FILTERS:
        yield f"eigenvalues-{filter}", partial(one_step, filter)
    for N in SIZES[: 4 if quick else None]:
        for filter in FILTERS:
            for seed in range(1 if quick else 5):
                yield f"first-order-{filter}-{N}-s{seed}", partial(first_order, filter, N, seed)
    for L in LENGTHS[: 5 if quick else None]:
        yield f"worst-case-{L}", partial(worst_case, L)
        for net in NETWORKS:
            for seed in range(1 if quick or L > 10_000 else 3):
                name = f"{net.label}-{net.setting}-{L}-s{seed}".lower().replace(" ", "-")
                yield name, partial(spectrum, net, L, seed)


def spectrum(net: Network, L: int, seed: int) -> dict[str, Any]:
    """The singular values of ∂x_L/∂x_0 and the intervals of the theorems, all as logarithms."""
    model, inputs = built(net, L, seed)
    # Products of plain Jacobians lose their small singular values within a few factors.
    every = 1 if net.rho is None else math.ceil(L / FACTORISATIONS)
    sigma = _sigma(model, inputs, every)
    found: dict[str, Any] = {
        "kind": "spectrum",
        "network": net.label,
        "over": "depth" if "FNN" in net.label else "time",
        "setting": net.setting,
        "width": net.width,
        "rho": net.rho,
        "maps": L,
        "seed": seed,
        "sigma": _rounded(sigma),
    }
    if net.rho is None:
        return found
    bounds = diagnostics.bounds_of(model, None if "FNN" in net.label else L)
    assert bounds is not None  # ours
    # All widths are equal, so the theorem bounds every singular value from below.
    slack, least, most = 1e-9 * L, float(sigma.min()), float(sigma.max())
    for name, ends in (("finite", bounds.finite), ("paper", bounds.asymptotic)):
        low, high = ends.log_lower, ends.log_upper
        inside = low - slack <= least and most <= high + slack
        found[name] = {"lower": low, "upper": high, "inside": inside}
    more = {"norm_W": bounds.sigma, "hypothesis": bounds.hypothesis, "vacuous": bounds.vacuous}
    return found | more


def built(net: Network, L: int, seed: int) -> tuple[RoaFNN | RoaRNN, Tensor]:
    """A network of L maps with weights of its own, and inputs to follow it along."""
    # O has a stream of its own: whatever it draws, W of a seed is the same for every filter.
    rng, own = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(100 + seed)
    double = torch.float64
    alpha = 1.0 if net.rho is None else net.rho / L
    settings: dict[str, Any] = {"alpha": alpha, "init": net.init, "generator": rng, "dtype": double}
    if "FNN" in net.label:
        model = RoaFNN([net.width] * (L + 1), filter=net.filter, **settings)
        return model, torch.randn(net.width, generator=rng, dtype=double)
    O = make(net.filter, net.width, generator=own, dtype=double)
    rnn = RoaRNN(2, net.width, filter=O, **settings)
    return rnn, torch.rand(L, 2, generator=rng, dtype=double)


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
    return {"kind": "worst-case", "maps": L, "sigma": _rounded(sigma, 10), **ends}


def one_step(filter: str, N: int = 64, alpha: float = 0.05) -> dict[str, Any]:
    """The eigenvalues of one step of a roaRNN with this filter and the same W, at a state."""
    rng, double = torch.Generator().manual_seed(0), torch.float64
    O = make(filter, N, generator=torch.Generator().manual_seed(1), dtype=double)
    rnn = RoaRNN(2, N, alpha=alpha, filter=O, generator=rng, dtype=double)
    x = torch.randn(N, generator=rng, dtype=double)
    J = diagnostics.step_jacobian(rnn, x, torch.rand(2, generator=rng, dtype=double))
    values = [_rounded(pair, 4) for pair in torch.view_as_real(diagnostics.eigenvalues(J))]
    return {"kind": "eigenvalues", "filter": filter, "alpha": alpha, "width": N, "values": values}


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
    values = diagnostics.eigenvalues(diagnostics.step_jacobian(rnn, zero, zero[:1]))
    W = rnn.get_parameter("weight_hh_l0").detach()
    lam, V = torch.linalg.eig(O.to_dense())
    # The eigenvectors of a normal matrix are orthogonal, but LAPACK's of equal eigenvalues are not.
    V = torch.linalg.qr(V).Q
    diagonal = (lam.conj() * (V.mH @ W.to(V.dtype) @ V).diagonal()).real
    return {
        "kind": "first-order",
        "filter": filter,
        "width": N,
        "seed": seed,
        "moved": float((values.abs() - (1 - SMALL)).abs().max() / SMALL),
        "diagonal": float(diagonal.abs().max()),
        "norm_W": float(diagnostics.spectral_norm(W)),
    }


def _rounded(values: Tensor, digits: int = 6) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
