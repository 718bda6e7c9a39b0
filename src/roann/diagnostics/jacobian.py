"""Jacobians of one step and of a whole trajectory, of our layers and of any system that steps.

A *trajectory* is a model run on given inputs, seen as a chain x_{k+1} = f_k(x_k). For a recurrent
model k is time, and the inputs are part of f_k; for a feed-forward one k is depth. A model of
several layers or directions is a set of recurrences, and a trajectory follows one of them,
`layer`, counted as in torch's h_n (layer · directions + direction) and driven by what the layer
below really puts out: this is the object of the theorems. The state of an LSTM is (h, c) in one
vector. Dropout between layers is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from roann import _checks
from roann.diagnostics.maps import Jacobian, Map
from roann.diagnostics.systems import feed_forward, recurrence, run, within


@dataclass(frozen=True)
class Trajectory:
    """A run of a model as a chain of maps; made by `trajectory`.

    Attributes:
        states: x_0, …, x_M, each (…, N_k).
        maps: f_0, …, f_{M−1}.
    """

    states: tuple[Tensor, ...]
    maps: tuple[Map, ...]

    def __len__(self) -> int:
        """M, the number of maps."""
        return len(self.maps)

    @torch.no_grad()
    def jacobian(self, k: int) -> Jacobian:
        """∂x_{k+1}/∂x_k as a linear map (matvec, matvec_transpose, to_dense)."""
        return self.maps[k].jacobian(self.states[k])

    def jacobians(self, start: int = 0, stop: int | None = None) -> Iterator[Tensor]:
        """∂x_{k+1}/∂x_k for k = start … stop − 1 as matrices (…, N_{k+1}, N_k), one at a time."""
        for k in range(*slice(start, stop).indices(len(self))):
            with torch.no_grad():
                J = self.jacobian(k).to_dense()
            yield J


def trajectory(model: Any, inputs: Tensor, hx: Any = None, *, layer: int = 0) -> Trajectory:
    """Run a model on inputs, without a graph, and keep the chain of maps it went through.

    Args:
        model: `RoaRNN`, `RoaRNNCell`, `RoaFNN`, `RoaLayer`, `torch.nn`'s RNN, GRU, LSTM and their
            cells, any object with step(x, u), or the layers of any feed-forward network: a list of
            functions from (…, N_k) to (…, N_{k+1}), of whatever widths, safe under `torch.func`.
        inputs: what the model is given.
        hx: the first state in the model's own form; zero, or its `initial_state`, if not given.
        layer: which recurrence of a model of several, counted as in h_n.

    Shape:
        inputs (T, I) or (T, B, I) ((B, T, I) if batch_first); for a feed-forward model (…, N_0).

    Example:
        >>> import roann
        >>> rnn = roann.RoaRNN(2, 4, horizon=10, generator=torch.Generator().manual_seed(0))
        >>> u = torch.randn(10, 3, 2)
        >>> path = trajectory(rnn, u)
        >>> len(path), tuple(path.jacobian(0).to_dense().shape)
        (10, (3, 4, 4))
        >>> bool((path.states[-1] - rnn(u)[1][0]).abs().max() < 1e-5)
        True

    Reference: Definition II.1 and Section III.A of the paper.
    """
    with torch.no_grad():
        found = run(model, inputs, hx, layer, graph=False)
        which = layer if found.cells else 0
        return Trajectory(tuple(found.states[which]), tuple(found.maps[which]))


def step_jacobian(model: Any, x: Tensor, u: Tensor | None = None, *, layer: int = 0) -> Tensor:
    r"""The Jacobian of one step at a given state and input.

    .. math:: \frac{\partial x_{l+1}}{\partial x_l}
              = \alpha\, \mathrm{diag}(\phi'(y_l))\, W_l + (1-\alpha)\, O_l

    in closed form for our layers, by `torch.func` for other systems, by autograd for solvers.

    Args:
        model: as in `trajectory`.
        x: the state x_l, flat.
        u: the input of this step, for a recurrent model.
        layer: the recurrence, counted as in h_n; for a feed-forward model the map l.

    Shape: x (…, N_in), u (…, I); the result is (…, N_out, N_in).

    Example:
        >>> import roann
        >>> cell = roann.RoaRNNCell(2, 3, alpha=0.0, filter="identity")
        >>> J = step_jacobian(cell, torch.randn(3), torch.randn(2))
        >>> float((J - torch.eye(3)).abs().max())  # alpha = 0: only the filter is left
        0.0

    Reference: Eq. (14) and (22) of the paper.
    """
    with torch.no_grad():
        maps: Sequence[Map] | None = feed_forward(model)
        if maps is None:
            cells = recurrence(model)
            if u is None:
                _checks.fail("u", "the input of the step", None)
            within(layer, cells.cells)
            return cells.cells[layer].maps(u.unsqueeze(0))[0].jacobian(x).to_dense()
        within(layer, maps)
        return maps[layer].jacobian(x).to_dense()


def end_to_end_jacobian(
    model: Any,
    inputs: Tensor,
    hx: Any = None,
    *,
    start: int = 0,
    stop: int | None = None,
    layer: int = 0,
) -> Tensor:
    r"""The Jacobian between two states of a run, as a plain product.

    .. math:: \frac{\partial x_L}{\partial x_s} = \frac{\partial x_L}{\partial x_{L-1}} \cdots
              \frac{\partial x_{s+1}}{\partial x_s}

    A matrix of floats; for long products see `roann.diagnostics.log_singular_values`, which takes
    `trajectory(…).jacobians()` and cannot overflow.

    Args:
        model, inputs, hx, layer: as in `trajectory`.
        start: s.
        stop: L, the last state if not given.

    Shape: the result is (…, N_L, N_s).

    Example:
        >>> import roann
        >>> net = roann.RoaFNN([3, 3, 3], alpha=0.0)
        >>> J = end_to_end_jacobian(net, torch.randn(3))
        >>> bool((J.T @ J - torch.eye(3)).abs().max() < 1e-5)  # alpha = 0: a pure isometry
        True

    Reference: Eq. (6) and (11) of the paper.
    """
    path = trajectory(model, inputs, hx, layer=layer)
    first = path.states[start]
    product = torch.eye(first.shape[-1], dtype=first.dtype, device=first.device)
    for J in path.jacobians(start, stop):
        product = J @ product
    return product
