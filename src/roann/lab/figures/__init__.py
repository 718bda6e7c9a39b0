"""Records to figures: pure functions that return a matplotlib `Figure`, and no torch.

Nothing here touches pyplot or a window. `save` and `inline_svg` write the same bytes for the same
data, so a figure can be rebuilt from its records and compared.
"""

from roann.lab.figures.certificate import certificate_spectrum
from roann.lab.figures.comparisons import (
    Panel,
    RhoPoint,
    Timing,
    ablation_panels,
    bench_ratios,
    psmnist_accuracy,
    score_against_rho,
)
from roann.lab.figures.curves import (
    Curve,
    best_point,
    curve_of,
    learning_curves,
    median_curve,
    thinned,
)
from roann.lab.figures.overview import overview, probed
from roann.lab.figures.spectra import (
    Cloud,
    cloud_of,
    eigenvalues,
    gradient_along_time,
    singular_values,
    spectra_side_by_side,
)
from roann.lab.figures.style import SUFFIXES, SUFFIXES_TEXT, looks, save, svg_bytes
from roann.lab.figures.surfaces import Surface, decision_surfaces, digit_sequence
from roann.lab.figures.svg import inline_svg
from roann.lab.figures.text import label_text, number_text

__all__ = [
    "SUFFIXES",
    "SUFFIXES_TEXT",
    "Cloud",
    "Curve",
    "Panel",
    "RhoPoint",
    "Surface",
    "Timing",
    "ablation_panels",
    "bench_ratios",
    "best_point",
    "certificate_spectrum",
    "cloud_of",
    "curve_of",
    "decision_surfaces",
    "digit_sequence",
    "eigenvalues",
    "gradient_along_time",
    "inline_svg",
    "label_text",
    "learning_curves",
    "looks",
    "median_curve",
    "number_text",
    "overview",
    "probed",
    "psmnist_accuracy",
    "save",
    "score_against_rho",
    "singular_values",
    "spectra_side_by_side",
    "svg_bytes",
    "thinned",
]
