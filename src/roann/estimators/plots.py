"""Pictures of a fitted estimator; matplotlib is imported when the first is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roann.estimators.network import Network
from roann.estimators.series import Prepared


def memory(
    networks: Sequence[Network], series: Prepared, answer: Callable[[Tensor], Tensor]
) -> list[NDArray[np.float64]]:
    """For each series, the norm of the gradient of its answer at each step."""
    total = torch.zeros(len(series.inputs), dtype=torch.float64)
    for network in networks:
        for batch in series.in_order(64):
            u = batch.inputs.detach().requires_grad_()
            with torch.enable_grad():
                outputs = network.eval()(batch.with_inputs(u))
                (gradient,) = torch.autograd.grad(answer(outputs).sum(), u)
            norms = gradient.norm(dim=-1).double().cpu()
            total[series.steps(batch.rows)] += norms / len(networks)
    return [part.numpy() for part in torch.split(total, series.lengths.tolist())]


def history(rows: Sequence[dict[str, Any]], ax: Any = None) -> Any:
    """Losses by epoch; several networks as thin lines."""
    ax = _axes(ax)
    members = sorted({row["member"] for row in rows})
    for name, label, color in (("loss", "training", "C0"), ("valid_loss", "validation", "C1")):
        for m in members:
            found = [
                (r["epoch"], r[name]) for r in rows if r["member"] == m and r[name] is not None
            ]
            if found:
                x, y = zip(*found, strict=True)
                ax.plot(x, y, color=color, alpha=1 if len(members) == 1 else 0.5,
                        label=label if m == members[0] else None)  # fmt: skip
    ax.set_xlabel("epoch")
    ax.set_ylabel("loss")
    ax.legend()
    return ax


def past(norms: Sequence[NDArray[np.float64]], ax: Any = None) -> Any:
    """The mean share of each past step in the gradient, counted back from the end."""
    longest = max(len(row) for row in norms)
    total, count = np.zeros(longest), np.zeros(longest)
    for row in norms:
        total[: len(row)] += row[::-1] / (float(row.sum()) or 1.0)
        count[: len(row)] += 1
    ax = _axes(ax)
    ax.plot(np.arange(longest), total / count)
    ax.set_xlabel("steps before the end")
    ax.set_ylabel("share of the gradient")
    ax.set_ylim(bottom=0)
    ax.invert_xaxis()
    return ax


def _axes(ax: Any) -> Any:
    """The given axes, or those of a new figure."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "plots need matplotlib; install it with: pip install 'roann[lab]'"
        ) from None
    return pyplot.subplots(figsize=(6, 3.5), layout="constrained")[1]
