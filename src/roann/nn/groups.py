"""Parameter groups: the learning rate each parameter needs, so that one rate serves every depth.

Note [The rate of a deep network]
---------------------------------
In depth every map has weights of its own, which act with weight α = ρ / L: the gradient of W_l is
of size α, and a step of plain gradient descent changes the output by Σ_l α² η = ρ² η / L. So the
rate must grow with L, as η / α; it does so here. Adam divides by the size of the gradient, and over
time all steps share one W, whose gradient adds up: neither needs this.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from roann import _checks
from roann.nn.alpha_module import AlphaModule
from roann.nn.cell import RoaLayer
from roann.nn.fnn import RoaFNN


def parameter_groups(model: nn.Module, lr: float) -> list[dict[str, Any]]:
    r"""The parameters of a model with the rates that plain or accelerated SGD needs.

    .. math:: \eta_W = \eta / \alpha, \quad \eta_b = \eta / (\alpha \gamma^2)
        \quad \text{in depth;} \quad \eta \text{ elsewhere}

    The logits of a learned α come without weight decay, which would draw α towards 1/2.

    Args:
        model: any module; `RoaFNN` and `RoaLayer` in it are found by themselves. What `Roa` wraps
            has the rate η.
        lr: η, for SGD. Adam needs no such groups.

    Returns: what a `torch.optim` optimiser takes in place of `model.parameters()`.

    Example:
        >>> net = roann.RoaFNN([2] * 1000 + [1])
        >>> groups = parameter_groups(net, lr=0.1)
        >>> sorted({round(group["lr"], 6) for group in groups})
        [100.0]
        >>> optimizer = torch.optim.SGD(groups)

    Reference: Note [The rate of a deep network] in `roann.nn.groups`.
    """
    rate = _checks.real("lr", lr, positive=True)
    found: dict[tuple[float, bool], list[nn.Parameter]] = {}
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        scales = _scales(module)
        for name, p in module.named_parameters(recurse=False):
            if p not in seen:
                logit = isinstance(module, AlphaModule) and name.startswith("alpha_logit")
                found.setdefault((scales.get(name, 1.0), logit), []).append(p)
            seen.add(p)
    return [
        {"params": params, "lr": rate * scale} | ({"weight_decay": 0.0} if logit else {})
        for (scale, logit), params in found.items()
    ]


def _scales(module: nn.Module) -> dict[str, float]:
    """The factor on the rate of each parameter of a layer in depth."""
    if not isinstance(module, RoaFNN | RoaLayer):
        return {}
    scales: dict[str, float] = {}
    for suffix in module.scan_alphas:
        alpha = torch.as_tensor(module.alpha_of(suffix), dtype=torch.float64).detach().mean()
        gain = module.gain_of(suffix)
        square = 1.0 if gain is None else float(gain.double().square().mean())
        factor = 1 / max(float(alpha), 1e-30)
        scales |= {"weight" + suffix: factor, "bias" + suffix: factor / square}
    return scales
