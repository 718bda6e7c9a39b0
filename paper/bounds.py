"""Bounds and measured spectra without training: one line of a record each.

Do the singular values of the input–output Jacobian lie in the finite-L interval, from ten maps to a
hundred thousand, and where do those of plain networks lie? And how far does W move the eigenvalues
of a step off the circle, for each filter?
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paper.plan import PLAN
from roann import PAPER, HypothesisWarning, RoaFNN, RoaRNN, diagnostics
from roann.filters import make
from roann.info import source
from roann.lab import records
from roann.lab.checkpoint import replace_file
from roann.lab.probe import rounded
from roann.lab.run import set_up

STUDY: dict[str, Any] = PLAN["bounds"]
SMALL = 1e-5  # the α of first-order effects, far below the distance of eigenvalues


def main(quick: bool, path: Path) -> None:
    """Measure everything, within minutes; a record that is there is left as it is."""
    if path.exists():
        return
    lines = [{"kind": "study", "env": set_up(threads=1, seed=0) | source()}]
    with warnings.catch_warnings():
        # Short networks break the hypothesis on purpose.
        warnings.simplefilter("ignore", HypothesisWarning)
        for measure in _measurements(quick):
            start = time.perf_counter()
            lines.append(measure() | {"seconds": round(time.perf_counter() - start, 2)})
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, records.encoded(*lines))


def _measurements(quick: bool) -> Iterator[Callable[[], dict[str, Any]]]:
    for N in STUDY["sizes"][: 4 if quick else None]:
        for filter in STUDY["filters"]:
            for seed in range(1 if quick else 5):
                yield partial(first_order, filter, N, seed)
    for L in STUDY["lengths"][: 5 if quick else None]:
        yield partial(worst_case, L)
        for net in STUDY["networks"]:
            for seed in range(1 if quick or L > 10_000 else 3):
                yield partial(spectrum, net, L, seed)


def _rnn(filter: str, N: int, rng: torch.Generator, own: int, **options: Any) -> RoaRNN:
    """A roaRNN whose O has a stream of its own: W of a seed is the same for every filter."""
    stream = torch.Generator().manual_seed(own)
    O = make(filter, N, generator=stream, dtype=torch.float64)
    settings = PAPER | {"hidden_size": N, "filter": O, "generator": rng} | options
    return RoaRNN(dtype=torch.float64, **settings)


def first_order(filter: str, N: int, seed: int) -> dict[str, Any]:
    """How far W moves eigenvalues off the circle, and what first-order perturbation says of it.

    With slope one, a step has the Jacobian J = (1−α) O + α W. O is normal: O v_i = λ_i v_i with
    orthonormal v_i. If the λ_i are apart by much more than α‖W‖, the eigenvalues of J are
    (1−α) λ_i + α v_i* W v_i + O(α²). ``moved``: the largest | |λ(J)| − (1−α) | / α. ``diagonal``:
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


def spectrum(net: Mapping[str, Any], L: int, seed: int) -> dict[str, Any]:
    """The singular values of ∂x_L/∂x_0 and the intervals of the theorems, all as logarithms."""
    certificate = diagnostics.certify(*built(net, L, seed))
    sigma, bounds = certificate.log_singular_values, certificate.bounds
    found = {
        "kind": "spectrum", "network": net["label"], "setting": net["setting"],
        "width": net["width"], "maps": L, "seed": seed, "sigma": rounded(sigma, 6),
    }  # fmt: skip
    if "rho" not in net or bounds is None:
        return found
    for name, ends in (("finite", bounds.finite), ("paper", bounds.asymptotic)):
        found[name] = {"lower": ends.log_lower, "upper": ends.log_upper}
        found[name]["inside"] = ends.contains(sigma, certificate.slack)
    about = {"hypothesis": bounds.hypothesis, "vacuous": bounds.vacuous}
    return found | {"norm_W": bounds.sigma} | about


def built(net: Mapping[str, Any], L: int, seed: int) -> tuple[RoaFNN | RoaRNN, Tensor]:
    """A network of L maps with weights of its own, and inputs to follow it along."""
    rng, filter = torch.Generator().manual_seed(seed), net.get("filter", "qr")
    options = {"alpha": net["rho"] / L if "rho" in net else 1.0, "init": net["init"]}
    drawn: dict[str, Any] = {"generator": rng, "dtype": torch.float64}
    if "RNN" in net["label"]:
        rnn = _rnn(filter, net["width"], rng, 100 + seed, input_size=2, **options)
        return rnn, torch.rand(L, 2, **drawn)
    fnn = RoaFNN([net["width"]] * (L + 1), **PAPER | {"filter": filter} | options | drawn)
    return fnn, torch.randn(net["width"], **drawn)


def worst_case(L: int) -> dict[str, Any]:
    """The network that meets the lower end: φ = id, W = −σ O. The paper's end holds in the limit.

    All singular values are (1 − α(1+σ))^L, the finite interval's lower end, for every L.
    """
    options = {"input_size": 1, "nonlinearity": "identity", "alpha": 2.0 / L}
    rnn = _rnn("qr", 4, torch.Generator().manual_seed(0), 0, **options)
    O: Tensor = rnn.get_submodule("filter_l0").to_dense()  # type: ignore[operator]
    with torch.no_grad():
        rnn.get_parameter("weight_hh_l0").copy_(-O)
    certificate = diagnostics.certify(rnn, torch.zeros(L, 1, dtype=torch.float64))
    bounds = certificate.bounds
    assert bounds is not None  # ours
    ends = {"finite": bounds.finite.log_lower, "paper": bounds.asymptotic.log_lower}
    sigma = rounded(certificate.log_singular_values, 10)
    return {"kind": "worst-case", "maps": L, "sigma": sigma, **ends}
