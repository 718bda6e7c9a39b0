"""Bounds and measured spectra without training: one line of a record each.

Do the singular values of the input–output Jacobian lie in the finite-L interval, from ten maps to a
hundred thousand, and where do those of plain networks lie? And how far does W move the eigenvalues
of a step off the circle, for each filter?

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

import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from paper.collect import jsonl
from paper.plan import PLAN
from roann import PAPER, HypothesisWarning, RoaFNN, RoaRNN, diagnostics
from roann.filters import make
from roann.info import source
from roann.lab import records
from roann.lab.run import set_up

LENGTHS = (10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
SIZES = (8, 16, 32, 64, 128, 256)
FILTERS = ("qr", "haar", "permutation", "cycle", "identity")
SMALL = 1e-5  # the α of first-order effects, far below the distance of eigenvalues
FACTORISATIONS = 4_000  # of products of roa Jacobians, which are well conditioned


class Network(NamedTuple):
    """A network of `plan.toml` whose spectrum is measured at every length."""

    label: str
    setting: str
    width: int
    init: str
    rho: float | None = None
    filter: str = "qr"


NETWORKS = [Network(**row) for row in PLAN["networks"]]


def main(quick: bool, path: Path) -> None:
    """Measure what is not in the record yet; stopped at any time, the next call continues."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = records.read(path, strict=False) if path.exists() else []
    lines = lines or [{"kind": "study", "env": set_up(threads=1, seed=0) | source()}]
    known = {line.get("name") for line in lines}
    path.write_bytes(jsonl(lines))  # without a line cut short
    with open(path, "ab") as file, warnings.catch_warnings():
        # Short networks break the hypothesis on purpose.
        warnings.simplefilter("ignore", HypothesisWarning)
        for name, measure in _cells(quick):
            if name not in known:
                start = time.perf_counter()
                found = {"name": name, **measure()}
                file.write(jsonl([found | {"seconds": round(time.perf_counter() - start, 2)}]))
                file.flush()


def _cells(quick: bool) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Every measurement by name: the smallest first, so that something is there soon."""
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


def _rnn(filter: str, N: int, rng: torch.Generator, own: int, **options: Any) -> RoaRNN:
    """A roaRNN whose O has a stream of its own: W of a seed is the same for every filter."""
    stream = torch.Generator().manual_seed(own)
    O = make(filter, N, generator=stream, dtype=torch.float64)
    settings = PAPER | {"hidden_size": N, "filter": O, "generator": rng} | options
    return RoaRNN(dtype=torch.float64, **settings)


def first_order(filter: str, N: int, seed: int) -> dict[str, Any]:
    """How far W moves eigenvalues off the circle, and what first-order perturbation says of it.

    See Note [What a filter does to W]. ``moved``: the largest | |λ(J)| − (1−α) | / α. ``diagonal``:
    the largest |Re λ̄_i v_i* W v_i|, what it should be where the λ_i are apart.
    """
    options = {"input_size": 1, "alpha": SMALL, "nonlinearity": "identity"}
    rnn = _rnn(filter, N, torch.Generator().manual_seed(seed), 100 + seed, **options)
    zero = torch.zeros(N, dtype=torch.float64)
    values = diagnostics.eigenvalues(diagnostics.step_jacobian(rnn, zero, zero[:1]))
    W = rnn.get_parameter("weight_hh_l0").detach()
    lam, V = torch.linalg.eig(rnn.get_submodule("filter_l0").to_dense())  # type: ignore[operator]
    # The eigenvectors of a normal matrix are orthogonal, but LAPACK's of equal eigenvalues are not.
    V = torch.linalg.qr(V).Q
    diagonal = (lam.conj() * (V.mH @ W.to(V.dtype) @ V).diagonal()).real
    return {
        "kind": "first-order", "filter": filter, "width": N, "seed": seed,
        "moved": float((values.abs() - (1 - SMALL)).abs().max() / SMALL),
        "diagonal": float(diagonal.abs().max()),
        "norm_W": float(diagnostics.spectral_norm(W)),
    }  # fmt: skip


def spectrum(net: Network, L: int, seed: int) -> dict[str, Any]:
    """The singular values of ∂x_L/∂x_0 and the intervals of the theorems, all as logarithms."""
    model, inputs = built(net, L, seed)
    # Products of plain Jacobians lose their small singular values within a few factors.
    sigma = _sigma(model, inputs, 1 if net.rho is None else math.ceil(L / FACTORISATIONS))
    over = "depth" if "FNN" in net.label else "time"
    found = {
        "kind": "spectrum", "network": net.label, "over": over, "setting": net.setting,
        "width": net.width, "rho": net.rho, "maps": L, "seed": seed, "sigma": _rounded(sigma, 6),
    }  # fmt: skip
    bounds = diagnostics.bounds_of(model, None if over == "depth" else L)
    if net.rho is None or bounds is None:
        return found
    # All widths are equal, so the theorem bounds every singular value from below.
    slack, least, most = 1e-9 * L, float(sigma.min()), float(sigma.max())
    for name, ends in (("finite", bounds.finite), ("paper", bounds.asymptotic)):
        low, high = ends.log_lower, ends.log_upper
        inside = low - slack <= least and most <= high + slack
        found[name] = {"lower": low, "upper": high, "inside": inside}
    about = {"hypothesis": bounds.hypothesis, "vacuous": bounds.vacuous}
    return found | {"norm_W": bounds.sigma} | about


def built(net: Network, L: int, seed: int) -> tuple[RoaFNN | RoaRNN, Tensor]:
    """A network of L maps with weights of its own, and inputs to follow it along."""
    rng = torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"alpha": 1.0 if net.rho is None else net.rho / L, "init": net.init}
    drawn: dict[str, Any] = {"generator": rng, "dtype": torch.float64}
    if "RNN" in net.label:
        rnn = _rnn(net.filter, net.width, rng, 100 + seed, input_size=2, **options)
        return rnn, torch.rand(L, 2, **drawn)
    settings = PAPER | {"filter": net.filter} | options | drawn
    return RoaFNN([net.width] * (L + 1), **settings), torch.randn(net.width, **drawn)


def worst_case(L: int) -> dict[str, Any]:
    """The network that meets the lower end: φ = id, W = −σ O. The paper's end holds in the limit.

    All singular values are (1 − α(1+σ))^L, the finite interval's lower end, for every L.
    """
    options = {"input_size": 1, "nonlinearity": "identity", "alpha": 2.0 / L}
    rnn = _rnn("qr", 4, torch.Generator().manual_seed(0), 0, **options)
    O: Tensor = rnn.get_submodule("filter_l0").to_dense()  # type: ignore[operator]
    with torch.no_grad():
        rnn.get_parameter("weight_hh_l0").copy_(-O)
    sigma = _sigma(rnn, torch.zeros(L, 1, dtype=torch.float64), math.ceil(L / FACTORISATIONS))
    bounds = diagnostics.bounds_of(rnn, L)
    assert bounds is not None  # ours
    ends = {"finite": bounds.finite.log_lower, "paper": bounds.asymptotic.log_lower}
    return {"kind": "worst-case", "maps": L, "sigma": _rounded(sigma, 10), **ends}


def _sigma(model: RoaFNN | RoaRNN, inputs: Tensor, every: int) -> Tensor:
    """ln σ, largest first."""
    jacobians = diagnostics.trajectory(model, inputs).jacobians()
    return diagnostics.log_singular_values(jacobians, every)


def _rounded(values: Tensor, digits: int) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
