"""Gradient norms along time and depth: exact on demand, or watched in a real training step.

Note [The gradient of a hidden state]
-------------------------------------
A layer that scans a whole sequence is one node of the autograd graph: what reaches it is the
*direct* gradient g_k of the loss with respect to each output. The gradient that vanishes or
explodes is the *total* one, λ_k = g_k + J_k^T λ_{k+1}, which also counts the way through all later
states, and which fused layers never show. Both tools here rebuild it exactly: the steps are run
once more, one by one, with a graph, and the loss is differentiated with respect to every state.
The watcher does not know the loss, but the linear function Σ_k ⟨g_k, output_k⟩ + ⟨g_n, h_n⟩ has
the same gradient, and the g are what the layer is given during backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook
from torch.utils.hooks import RemovableHandle

from roann import _checks
from roann.diagnostics.systems import Run, run
from roann.nn.cell import RoaLayer
from roann.nn.fnn import RoaFNN
from roann.nn.rnn import RoaRNN


def gradient_along_time(
    model: Any, inputs: Tensor, loss: Callable[[Tensor], Tensor], hx: Any = None
) -> Tensor:
    r"""The norm of the gradient of a loss with respect to every state of a run.

    .. math:: \Bigl\lVert \frac{\partial \ell}{\partial x_k} \Bigr\rVert, \quad k = 0, \dots, T

    The total gradient, through all later states; over the whole batch. The parameters' `.grad` is
    not touched. For a feed-forward model k is depth. The state of an LSTM is x_k = (h_k, c_k).

    Args:
        model: as in `roann.diagnostics.trajectory`.
        inputs: what the model is given.
        loss: from the model's output, laid out as the model does, to a scalar ℓ. For an object that
            only offers `step` the output is `read(x_k)` if it has that, else the states x_1 … x_T.
        hx: the first state, in the model's own form.

    Shape:
        the result is (T + 1,), or (C, T + 1) for C > 1 recurrences (layers, directions) in the
        order of h_n; a reverse recurrence counts k in its own time, from the end.

    Example:
        >>> import roann
        >>> rnn = roann.RoaRNN(2, 5, alpha=0.0)  # a pure isometry: the gradient keeps its norm
        >>> norms = gradient_along_time(rnn, torch.randn(50, 3, 2), lambda out: out[-1].sum())
        >>> bool((norms - norms[-1]).abs().max() < 1e-4)
        True

    Reference: R_s(E) of Section III.A and Eq. (5) of the paper.
    """
    with torch.enable_grad():
        found = run(model, inputs, hx, graph=True)
        value = loss(found.output)
        if not isinstance(value, Tensor) or value.dim() != 0 or not value.requires_grad:
            _checks.fail("loss", "a scalar tensor that depends on the output", value)
        return _norms(found, value)


def _finals(run: Run) -> list[Tensor]:
    """h_n, and c_n where the state has a hidden part, in torch's layout; none in depth."""
    if not run.cells:
        return []
    last = [path[-1] for path in run.states]
    seen = [cell.read(x) for cell, x in zip(run.cells, last, strict=True)]
    rest = [x[..., s.shape[-1] :] for s, x in zip(seen, last, strict=True)]
    return [torch.stack(seen)] + ([torch.stack(rest)] if rest[0].shape[-1] else [])


def _norms(run: Run, loss: Tensor) -> Tensor:
    """‖∂loss/∂x_k‖, (T + 1,), or a row for each of several recurrences; zero where unused."""
    flat = [x for path in run.states for x in path]
    grads = torch.autograd.grad(loss, flat, allow_unused=True)
    norms = [loss.new_zeros(()) if g is None else g.norm() for g in grads]
    table = torch.stack(norms).detach().reshape(len(run.states), -1)
    return table[0] if len(table) == 1 else table


class GradientWatcher:
    r"""Records gradient norms of real training steps, by time step and by layer.

    .. math:: \lVert \partial\ell/\partial x_k \rVert \quad\text{and}\quad
              \lVert \partial\ell/\partial W_l \rVert

    Inside the `with` block every backward through `model` is recorded; the gradients themselves
    are the same, bit by bit. The price is a second, stepwise run of each watched layer.

    Args:
        model: a module, or a module that contains layers: `RoaRNN`, `torch.nn`'s RNN, GRU and LSTM,
            `RoaFNN`, `RoaLayer`. Of other modules only the parameters are recorded.

    Attributes:
        states: name of the layer (as in `named_modules`; "" for the model itself) → one tensor for
            each backward, as `gradient_along_time` returns it.
        parameters: name of the parameter → one tensor for each backward: its gradient's norm, or
            (depth,) of them for the stacked parameters of a `RoaFNN`.

    Example:
        >>> import roann
        >>> net = roann.RoaFNN([4] * 11, generator=torch.Generator().manual_seed(0))
        >>> with GradientWatcher(net) as watch:
        ...     net(torch.randn(8, 4)).square().mean().backward()
        >>> {name: tuple(norms[0].shape) for name, norms in watch.parameters.items()}
        {'weight_0': (10,), 'bias_0': (10,)}
        >>> tuple(watch.states[""][0].shape)  # x_0 … x_10
        (11,)

    Reference: Eq. (5), (13) and (23) of the paper; Note [The gradient of a hidden state].
    """

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Module):
            _checks.fail("model", "a torch.nn.Module", type(model).__name__, error=TypeError)
        self.model = model
        self.states: dict[str, list[Tensor]] = {}
        self.parameters: dict[str, list[Tensor]] = {}
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> Self:
        """Attach the hooks."""
        for name, module in self.model.named_modules():
            if isinstance(module, RoaRNN | nn.RNNBase | RoaFNN | RoaLayer):
                hook = partial(self._after_forward, name)
                self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
        for name, p in self.model.named_parameters():
            if p.requires_grad:
                owner = self.model.get_submodule(name.rpartition(".")[0])
                stacked = isinstance(owner, RoaFNN)
                self.parameters.setdefault(name, [])
                hook = partial(self._after_parameter, name, stacked)
                self._handles.append(p.register_hook(hook))  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the hooks."""
        while self._handles:
            self._handles.pop().remove()

    def _after_parameter(self, name: str, stacked: bool, grad: Tensor) -> None:
        norm = grad.flatten(1).norm(dim=1) if stacked else grad.norm()
        self.parameters[name].append(norm.detach())

    def _after_forward(
        self,
        name: str,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        given = dict(zip(("input", "hx"), args, strict=False)) | kwargs
        inputs, hx = given.get("input", given.get("x")), given.get("hx")
        if not isinstance(inputs, Tensor):
            _checks.fail("input", "a tensor while watched", type(inputs).__name__, "pad the batch")
        between = isinstance(module, RoaRNN | nn.RNNBase) and module.num_layers > 1
        if between and module.dropout and module.training:
            _checks.fail(
                "dropout", "0 while watched", module.dropout, "the masks between layers are unseen"
            )
        heads = _tensors(result)
        live = {k: head for k, head in enumerate(heads) if head is not None and head.requires_grad}
        if not live:
            return

        def after_backward(grads: Sequence[Tensor | None]) -> None:
            if not self._handles:  # the block has ended
                return
            with torch.enable_grad():
                found = run(module, inputs, hx, graph=True)
                ours = [found.output, *_finals(found)]
                pairs = [(ours[k], g) for k, g in zip(live, grads, strict=True) if g is not None]
                norms = _norms(found, torch.stack([(o * g).sum() for o, g in pairs]).sum())
            self.states.setdefault(name, []).append(norms)

        register_multi_grad_hook(tuple(live.values()), after_backward)


def _tensors(result: Any) -> list[Tensor | None]:
    """output, h_n and c_n of a layer's result, as far as it has them."""
    if isinstance(result, tuple):
        return [t for part in result for t in _tensors(part)]
    return [result]
