"""One object that says whether gradients survive in a model: theorem, measurement, verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from roann import _checks
from roann.diagnostics.bounds import bounds_of
from roann.diagnostics.extremes import extreme_log_singular_values
from roann.diagnostics.jacobian import trajectory
from roann.diagnostics.spectrum import log_singular_values
from roann.diagnostics.systems import feed_forward, recurrence, roa
from roann.theorem import LOST, Bounds, Interval, number

FAINT = math.log(1e3)  # a gradient that so changes its length is not lost, but hardly the same
ALL = 512  # the largest state for which all singular values are computed unless asked otherwise


@dataclass(frozen=True)
class Certificate:
    """What the theorems promise for a model on given inputs, beside what was measured.

    `print(certificate)` tells it in words; `roann.lab.figures.certificate_spectrum` draws it.

    Attributes:
        model: the class of the model.
        maps: M, the number of maps between the two states.
        log_singular_values: (…, K), of ∂x_M/∂x_0, largest first; or (…, 2), the extreme ones.
        complete: whether they are all of them.
        bounds: the theorems' intervals; None for a system they do not cover.
        slack: what rounding may have added to a measured logarithm.
        layer: which recurrence of the model was measured.
        layers: how many it has.
        max_norm: the cap on ‖W‖ by which the bounds hold for all weights; None without one.
        covered: the inputs that the bounds are about.
    """

    model: str
    maps: int
    log_singular_values: Tensor
    complete: bool
    bounds: Bounds | None
    slack: float
    layer: int = 0
    layers: int = 1
    max_norm: float | None = None
    covered: str = "any input"

    @property
    def log_smallest(self) -> float:
        """log of the smallest singular value measured."""
        return float(self.log_singular_values.min())

    @property
    def log_largest(self) -> float:
        """log of the largest singular value measured."""
        return float(self.log_singular_values.max())

    @property
    def inside(self) -> bool | None:
        """Whether what was measured lies in the finite interval; None without bounds."""
        if self.bounds is None:
            return None
        return all(
            i.contains(self.log_singular_values, self.slack)
            for i in (self.bounds.finite, self.bounds.sharp)
        )

    @property
    def verdict(self) -> str:
        """The conclusion, in words."""
        words = f"{self._theorem()} {self._measured()}"
        if self.layers > 1:
            words += f" This is recurrence {self.layer} of {self.layers}, counted from 0 as in "
            words += "h_n; `layer=` certifies another."
        return words

    def _theorem(self) -> str:
        b = self.bounds
        if b is None:
            return f"No theorem covers {self.model}; this is a measurement."
        if not self.inside:
            return (
                "The measured values leave the interval that must hold: the model is not what its "
                "parameters say, or rounding is larger than assumed."
            )
        if not b.hypothesis:
            return (
                f"The hypothesis is violated (ρ = {b.rho:.4g}, but M/(1+rσ) = {b.rho_limit:.4g}): "
                "no lower bound; the upper one holds."
            )
        if b.vacuous:
            text = (
                "The bound is vacuous: it holds, but is too wide to be useful here; see the "
                "measured spectrum."
            )
            return text + self._layer_by_layer()
        if b.finite.log_lower == -math.inf:
            text = "The upper bound holds; for widths that increase the theorem has no lower one."
            return text + self._layer_by_layer()
        what = "every singular value" if b.finite.count is None else "the largest singular value"
        text = f"The theorem holds: {what} lies in {b.finite} for {self.covered}."
        if self.max_norm is not None:
            text = (
                f"The theorem holds by construction (max_norm={self.max_norm:g}): {what} lies in "
                f"{b.finite} for {self.covered}, before, during and after training."
            )
        if not b.asymptotic.contains(self.log_singular_values, self.slack):
            text += " Some lie below the paper's bound, which holds only as M → ∞."
        return text

    def _layer_by_layer(self) -> str:
        """What each layer's own ‖W_l‖ adds, where the one interval for all says too little."""
        sharp = self.bounds.sharp if self.bounds is not None else None
        if sharp is None or sharp.count is None or sharp.vacuous or sharp.lower == 0:
            return ""
        return f" With each layer's own ‖W‖ the {sharp.count} largest lie in {sharp}."

    def _measured(self) -> str:
        size = number(self.log_largest)
        if self.log_largest > LOST:
            words = "gradients explode."
        elif self.log_largest < -LOST:
            words = "gradients vanish."
        elif self.log_largest < -FAINT:
            words = f"gradients shrink, at best to {size} of their length."
        elif self.log_largest > FAINT:
            words = f"gradients grow, at worst to {size} times their length."
        elif self.log_smallest < -LOST:
            words = "gradients survive, but not in every direction."
        else:
            words = "gradients survive in every direction."
        return f"Measured {self._range()}: {words}"

    def _range(self) -> str:
        return str(Interval(self.log_smallest, self.log_largest))

    def __str__(self) -> str:
        part = f", recurrence {self.layer} of {self.layers}" if self.layers > 1 else ""
        rows = [("system", f"{self.model}{part}, {self.maps} maps")]
        if self.bounds is not None:
            b = self.bounds
            sign = "<" if b.hypothesis else "≥"
            rows += [
                ("‖W‖, max φ′", f"σ {'≤' if self.max_norm else '='} {b.sigma:.6g}, r = {b.r:g}"),
                ("hypothesis", f"ρ = {b.rho:.6g} {sign} {b.rho_limit:.6g} = M/(1+rσ)"),
                ("paper, M → ∞", str(b.asymptotic)),
                ("this M", str(b.finite) + ("  (vacuous)" if b.vacuous else "")),
            ]
            if b.finite.count is not None:
                rows.append(("layer by layer", str(b.sharp)))
        logs = self.log_singular_values
        kind = f"all {logs.shape[-1]}" if self.complete else "extremes only"
        runs = math.prod(logs.shape[:-1])
        kind += f", {runs} runs" if runs > 1 else ""
        rows.append(("measured", f"{self._range()}  ({kind})"))
        if self.complete:
            rows.append(("median", number(float(logs.median()))))
        width = max(len(name) for name, _ in rows)
        return "\n".join([f"{name:<{width}}  {text}" for name, text in rows] + ["", self.verdict])


def certify(
    model: Any, inputs: Tensor, hx: Any = None, *, layer: int = 0, spectrum: str = "auto"
) -> Certificate:
    r"""Hypothesis, bounds, measured spectrum and a verdict, for a model on given inputs.

    .. math:: \sigma_i\Bigl(\frac{\partial x_M}{\partial x_0}\Bigr) \in
              \Bigl[(1-\alpha(1+r\sigma))^M,\ (1+\alpha(r\sigma-1))^M\Bigr]

    Args:
        model: as in `roann.diagnostics.trajectory`; the theorems cover `RoaRNN`, `RoaFNN` and their
            cells, other systems are only measured.
        inputs: what the model is given; a batch is measured row by row.
        hx: the first state, in the model's own form.
        layer: which recurrence of a model of several, counted as in h_n.
        spectrum: "all" singular values, only the "extremes" (matrix-free, for wide states), or
            "auto": all up to 512 neurons.

    Example:
        >>> import roann
        >>> g = torch.Generator().manual_seed(0)
        >>> rnn = roann.RoaRNN(2, 16, rho=0.1, horizon=200, dtype=torch.float64, generator=g)
        >>> certificate = certify(rnn, torch.randn(200, 2, dtype=torch.float64))
        >>> certificate.inside, certificate.bounds.hypothesis, certificate.bounds.vacuous
        (True, True, False)
        >>> print(certificate.verdict.split(":")[0])
        The theorem holds by construction (max_norm=10)

    Reference: Theorems II.1 and III.1 of the paper.
    """
    _checks.choice("spectrum", spectrum, ("auto", "all", "extremes"))
    path = trajectory(model, inputs, hx, layer=layer)
    bounds = bounds_of(model, len(path), layer=layer)
    width = max(path.states[0].shape[-1], path.states[-1].shape[-1])
    complete = spectrum == "all" or (spectrum == "auto" and width <= ALL)
    if complete:
        logs = log_singular_values(path.jacobians(), _every(bounds))
    else:
        logs = extreme_log_singular_values(path)[0]
        if min(x.shape[-1] for x in path.states) < min(
            path.states[0].shape[-1], path.states[-1].shape[-1]
        ):
            logs = logs[..., :1]  # behind a bottleneck the smallest is zero, by rank
    # Each factor is rounded once, and O is orthogonal only up to rounding.
    slack = 4 * len(path) * math.sqrt(width) * torch.finfo(path.states[0].dtype).eps
    layers = 1 if feed_forward(model) is not None else len(recurrence(model).cells)
    name = type(model).__name__
    ours = roa(model, layer)
    told = () if ours is None else (ours.max_norm, ours.covered)
    return Certificate(name, len(path), logs, complete, bounds, slack, layer, layers, *told)


def _every(bounds: Bounds | None) -> int:
    """How many steps multiply to a condition number of at most 10, by the theorem."""
    if bounds is None or not bounds.hypothesis:
        return 1
    spread = (bounds.sharp.log_upper - bounds.sharp.log_lower) / bounds.maps
    return (
        1 if not math.isfinite(spread) else max(1, min(64, int(math.log(10) / max(spread, 1e-9))))
    )
