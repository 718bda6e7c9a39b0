"""Diagnostics at chosen steps of a training, into the same records as everything else.

A probe looks at the first evaluation batch, always the same one, through a float64 copy of the
model, so that what vanishes is seen to vanish and the run is not touched.
"""

from __future__ import annotations

import copy
import logging
import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from roann.diagnostics.bounds import bounds_of, spectral_norm
from roann.diagnostics.extremes import extreme_log_singular_values, smallest_log_singular_value
from roann.diagnostics.gradients import gradient_along_time
from roann.diagnostics.jacobian import trajectory
from roann.diagnostics.spectrum import eigenvalues, log_singular_values
from roann.diagnostics.systems import roa
from roann.lab.models.base import Chain, Model, SequenceModel
from roann.lab.tasks.base import Task
from roann.lab.tasks.double_moon import WINDOW

SEQUENCES = 4  # of the batch, for gradients; the spectrum is that of the first
FACTORISATIONS = 1000  # beyond as many maps, successive Jacobians are multiplied plainly
WORK = 7e9  # and so they are beyond as many maps × n³ for a state of n numbers
LARGEST = 1024  # numbers in a state; of larger ones only the extreme singular values are found
POINTS = 512  # of the gradient along time that are kept
COLUMNS, ROWS = 61, 43  # of a decision surface
_log = logging.getLogger(__name__)


def probe(task: Task, model: Model, seed: int) -> dict[str, Any]:
    """Measure the Jacobians of a model on one batch of a task.

    Returns:
        ``maps``: M, how many the state goes through: steps, or the maps of a deep network's
        `chain`, from x_0 = `enter(inputs)` to x_M, which `read` reads;
        ``sigma``: natural logarithms of the singular values of ∂x_M/∂x_0, or, of a huge state,
        ``sigma_max`` and ``sigma_min``: the extremes;
        ``eigenvalues``: [real, imaginary] of the last step's Jacobian;
        ``gradient_by_step`` with ``gradient_at``: the norm of ∂ℓ/∂x_k and its k, for the loss ℓ at
        the last step, or for the sum of the last state where the readout is still zero;
        ``norm_W``: ‖W‖ as the layer uses it, under its cap if it has one;
        ``bound``: the finite interval of the theorems in natural logarithms, for roa networks;
        ``surface``: the answers over the paper's window, for a task in the plane.
        What cannot be measured (a state that is not finite) is left out, with a warning.
    """
    batch = next(iter(next(iter(task.evaluate_sets(seed, 0).values()))))
    twin = copy.deepcopy(model).eval().requires_grad_(False)
    if not any(p.is_complex() for p in twin.parameters()):
        twin = twin.double()
    like = next(twin.parameters()).real
    few = (slice(None), slice(SEQUENCES)) if batch.inputs.dim() == 3 else slice(SEQUENCES)
    inputs = batch.inputs[few].to(like)
    every_step = task.readout == "all"
    targets = batch.targets[:, :SEQUENCES] if every_step else batch.targets[:SEQUENCES]
    if targets.is_floating_point():
        targets = targets.to(like)
    chain, inputs = twin.chain(), twin.enter(inputs)
    found: dict[str, Any] = {}
    for measure in (
        partial(_norms, twin, chain, inputs),
        partial(_spectrum, chain, inputs),
        partial(_gradients, task, twin, chain, inputs, targets),
        partial(_surface, task, twin, like),
    ):
        try:
            found |= measure()
        except (ValueError, RuntimeError) as error:
            _log.warning("a probe could not be measured: %s", error)
    return found


def _norms(model: Model, chain: Chain, inputs: Tensor) -> dict[str, Any]:
    bounds = bounds_of(chain, len(inputs) if inputs.dim() == 3 else None)
    if bounds is None:
        W = next((p for name, p in model.named_parameters() if "weight_hh" in name), None)
        return {} if W is None else {"norm_W": float(spectral_norm(W))}
    interval = bounds.finite
    bound = {
        "lower": interval.log_lower,
        "upper": interval.log_upper,
        "vacuous": interval.vacuous,
        "hypothesis": bounds.hypothesis,
    }
    ours = roa(chain)
    assert ours is not None  # it has bounds
    norm = max(float(spectral_norm(W).max()) for W in ours.weights)
    return {"norm_W": norm, "bound": bound}


def _spectrum(chain: Chain, inputs: Tensor) -> dict[str, Any]:
    path = trajectory(chain, inputs[:, 0] if inputs.dim() == 3 else inputs[0])
    sizes = {x.shape[-1] for x in path.states}
    n = max(sizes)
    if n > LARGEST:
        largest, smallest = extreme_log_singular_values(path, 10)[0].tolist()
        if len(sizes) == 1:  # else the few numbers at one end are exhausted by ten steps
            smallest = float(smallest_log_singular_value(path))
        return {"maps": len(path), "sigma_max": largest, "sigma_min": smallest}
    every = math.ceil(max(len(path) / FACTORISATIONS, len(path) * n**3 / WORK))
    sigma = log_singular_values(path.jacobians(), every)
    found: dict[str, Any] = {"maps": len(path), "sigma": rounded(sigma)}
    last = path.jacobian(len(path) - 1).to_dense()
    if last.shape[0] == last.shape[1]:
        values = torch.view_as_real(eigenvalues(last))
        found["eigenvalues"] = [rounded(value) for value in values]
    return found


def _gradients(
    task: Task, model: Model, chain: Chain, inputs: Tensor, targets: Tensor
) -> dict[str, Any]:
    def last(output: Tensor) -> Tensor:
        return output[-1] if isinstance(model, SequenceModel) else output

    def loss(output: Tensor) -> Tensor:
        if task.readout == "all":  # of the last step alone: how far back does it reach?
            return task.loss(model.read(output[-1:]), targets[-1:])
        return task.loss(model.read(output), targets)

    norms = gradient_along_time(chain, inputs, loss)
    if not bool(norms.any()):
        norms = gradient_along_time(chain, inputs, lambda output: last(output).sum())
    norms = norms if norms.dim() == 1 else norms[-1]  # of the last layer
    at = torch.linspace(0, len(norms) - 1, min(len(norms), POINTS)).round().long()
    return {"gradient_at": at.tolist(), "gradient_by_step": rounded(norms[at])}


def _surface(task: Task, model: Model, like: Tensor) -> dict[str, Any]:
    if task.readout != "none" or task.input_size != 2:
        return {}
    (left, right), (low, high) = WINDOW
    x, y = torch.linspace(left, right, COLUMNS), torch.linspace(low, high, ROWS)
    grid = torch.cartesian_prod(y, x).flip(-1).to(like)
    with torch.no_grad():
        values = model(grid)[:, 0].reshape(ROWS, COLUMNS)
    batches = next(iter(task.evaluate_sets(0, 0).values()))
    points = torch.cat([torch.cat([b.inputs, b.targets], -1) for b in batches])
    surface = {
        "extent": [left, right, low, high],
        "values": [rounded(row, 3) for row in values],
        "points": [rounded(point, 4) for point in points],
    }
    return {"surface": surface}


def rounded(values: Tensor, digits: int = 6) -> list[float]:
    """As many digits as a figure can show."""
    return [float(f"{value:.{digits}g}") for value in values.tolist()]
