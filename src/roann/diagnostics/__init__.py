"""Instruments that show whether gradients survive: bounds, Jacobians, spectra, gradients, verdicts.

Anything that can ``step(x, u)`` can be diagnosed, and any list of layers. Nothing here changes a
model, draws from a global random generator, or keeps state.
"""

from roann.diagnostics.bounds import bounds_of, spectral_norm
from roann.diagnostics.certificate import Certificate, certify
from roann.diagnostics.extremes import extreme_log_singular_values, smallest_log_singular_value
from roann.diagnostics.gradients import GradientWatcher, gradient_along_time
from roann.diagnostics.jacobian import Trajectory, end_to_end_jacobian, step_jacobian, trajectory
from roann.diagnostics.spectrum import eigenvalues, log_singular_values, lyapunov_exponents
from roann.theorem import Bounds, Interval, roa_bounds

__all__ = [
    "Bounds",
    "Certificate",
    "GradientWatcher",
    "Interval",
    "Trajectory",
    "bounds_of",
    "certify",
    "eigenvalues",
    "end_to_end_jacobian",
    "extreme_log_singular_values",
    "gradient_along_time",
    "log_singular_values",
    "lyapunov_exponents",
    "roa_bounds",
    "smallest_log_singular_value",
    "spectral_norm",
    "step_jacobian",
    "trajectory",
]
