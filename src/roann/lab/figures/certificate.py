"""A certificate as a picture: the measured spectrum and the bounds of the theorems."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from roann.lab.figures.style import drawn, legend_below, one_axes

if TYPE_CHECKING:
    from roann.diagnostics import Certificate


@drawn
def certificate_spectrum(certificate: Certificate) -> Figure:
    """The measured singular values, from the largest, and the bounds where a theorem has them.

    Singular values that are exactly 0 are left out, and so are ends of an interval at 0 or ∞.
    """
    figure, axes = one_axes(width=6.4, height=4.0)
    logs = certificate.log_singular_values
    for k, run in enumerate(logs.reshape(-1, logs.shape[-1]).tolist()):
        seen = [(i, s / math.log(10)) for i, s in enumerate(run, 1) if math.isfinite(s)]
        places, values = [i for i, _ in seen], [s for _, s in seen]
        axes.plot(places, values, ".", color="C0", label=None if k else "measured")
    if certificate.bounds is not None:
        for label, interval, color, style in (
            ("bound for this M", certificate.bounds.finite, "C1", "-"),
            ("paper's, M → ∞", certificate.bounds.asymptotic, "black", ":"),
        ):
            ends = [e for e in (interval.log_lower, interval.log_upper) if math.isfinite(e)]
            for k, end in enumerate(ends):
                name = None if k else label
                axes.axhline(end / math.log(10), label=name, color=color, linestyle=style)
    axes.set_xlabel("singular value, from the largest")
    axes.set_ylabel("log₁₀ σ of ∂x_M/∂x_0")
    axes.set_title(f"{certificate.model}, {certificate.maps} maps", fontsize="medium")
    legend_below(axes)
    return figure
