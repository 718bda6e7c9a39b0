"""The roaRNN: the interface of `torch.nn.RNN`, with a bound on its gradients."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from roann import _checks
from roann.filters import Filter
from roann.functional import BACKENDS, roa_scan, roa_step
from roann.kernels.memory import MEMORIES
from roann.nn import layout
from roann.nn.alpha import Alpha
from roann.nn.cell import RoaRNNCell
from roann.nn.hypothesis import HypothesisWarning
from roann.nn.maps import RoaMaps
from roann.nn.module import RoaModule


class RoaRNN(RoaModule):
    r"""A random orthogonal additive recurrent network over a sequence.

    .. math:: x_{k+1} = \alpha\, \phi(W x_k + \gamma \odot (W_i u_{k+1} + b))
        + (1 - \alpha)\, O x_k, \quad \alpha = \rho / \mathrm{horizon}

    u is `input`, x the hidden state, W `weight_hh_l0`, W_i `weight_ih_l0`, b `bias_l0`, O the fixed
    `filter_l0`, and γ the fixed gain. With α = 1 it is `torch.nn.RNN` with one bias. The paper's
    layer is `RoaRNN(…, rho=1.0, **roann.PAPER)`. The plain loop it computes::

        gain = rnn.gain_of("_l0")  # (N,), or None for 1
        gain = 1 if gain is None else gain
        W = roann.nn.norm.capped(rnn.weight_hh_l0, rnn.max_norm)
        x, output = hx[0], []
        for u in input:
            y = x @ W.T + gain * (u @ rnn.weight_ih_l0.T + rnn.bias_l0)
            x = rnn.alpha * torch.relu(y) + (1 - rnn.alpha) * rnn.filter_l0.matvec(x)
            output.append(x)
        output, h_n = torch.stack(output), x.unsqueeze(0)

    Args:
        input_size: I.
        hidden_size: N.
        num_layers: layers stacked on each other.
        nonlinearity: φ: "relu", "tanh", "sigmoid", "identity", "leaky_relu" or "softplus".
        bias: whether there is b.
        batch_first: whether batched input and output are (B, T, …) instead of (T, B, …).
        dropout: probability of dropout on the output of every layer but the last.
        bidirectional: whether a second scan runs from the end to the beginning.
        device: where the parameters and filters live.
        dtype: their dtype.
        rho: ρ; α = ρ / horizon. A number, a tensor (N,) with one per neuron, or, of several layers,
            a tensor (num_layers, 1) or (num_layers, N) with a row for each.
        horizon: the number of steps over which gradients must survive, usually T.
        alpha: α itself, a number in [0, 1] or a tensor likewise, in place of rho and horizon; see
            `roann.multiscale`.
        learn_rho: learn ρ from that first value, one for each layer and direction: one number if
            a number is given, one per neuron if a tensor is. It is the parameter `alpha_logit_l0`,
            the logit of α, and wants a small learning rate of its own and no weight decay.
        filter: O: a name in `roann.filters.FILTERS`, a matrix (N, N), or a filter, shared by all
            layers. "broad" turns half of the planes not at all, the others at many speeds.
        init: how parameters are drawn: "balanced" (W from N(0, 1/N), W_i from N(0, 1/I), b zero),
            "drawn_bias" (the same with b from N(0, 1)), "normal" (the paper's), "scaled_normal",
            "uniform" or "orthogonal".
        gain: γ: a number, a tensor (N,) with one per neuron, or None for α^(−1/2), with
            which an input leaves a visible trace at any horizon, with relu: see `roann.nn.gain`.
        max_norm: c of a cap ‖W‖₂ ≤ c that holds in every forward pass, so that the theorem holds
            throughout training: see `interval`. "auto" is 10, or less at short horizons, and none
            where α is 0 or 1; None is no cap.
        generator: where all randomness of construction comes from.
        backend: "auto", or one of "reference", "fused", "native".
        memory: what backward is given: "store", "checkpoint" (O(√T)), "reversible" (O(1)).

    Shape:
        input (T, B, I), (B, T, I) if batch_first, (T, I), or a `PackedSequence`;
        hx and h_n (D·num_layers, B, N) or (D·num_layers, N), D = 2 if bidirectional else 1;
        output (T, B, D·N), laid out as the input.

    Example:
        >>> rnn = RoaRNN(3, 8, horizon=100, generator=torch.Generator().manual_seed(0))
        >>> output, h_n = rnn(torch.randn(100, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([100, 2, 8]), torch.Size([1, 2, 8]))
        >>> float((output[-1] - h_n[0]).detach().abs().max())
        0.0

    Reference: Eq. (19) and Theorem III.1 of the paper.
    """

    _defaults: ClassVar[dict[str, object]] = {
        "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
        "bidirectional": False, "backend": "auto", "memory": "store",
    }  # fmt: skip

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "relu",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rho: float | Tensor = 0.3,
        horizon: float | None = None,
        alpha: float | Tensor | None = None,
        learn_rho: bool = False,
        filter: str | Tensor | Filter | dict[str, Any] = "broad",
        init: str = "balanced",
        gain: float | Tensor | None = None,
        max_norm: float | str | None = "auto",
        generator: torch.Generator | None = None,
        backend: str = "auto",
        memory: str = "store",
    ) -> None:
        _checks.size("input_size", input_size)
        _checks.size("hidden_size", hidden_size)
        _checks.size("num_layers", num_layers)
        given = Alpha.given(rho, horizon, alpha, learn_rho, hidden_size, num_layers)
        super().__init__(
            given, nonlinearity, device, dtype,
            init=init, gain=gain, max_norm=max_norm, features=hidden_size,
        )  # fmt: skip
        self.input_size, self.hidden_size = input_size, hidden_size
        self.num_layers = num_layers
        self.bias, self.batch_first, self.bidirectional = bias, batch_first, bidirectional
        self.dropout = _checks.real("dropout", dropout)
        if not 0 <= self.dropout <= 1:
            _checks.fail("dropout", "a probability in [0, 1]", dropout)
        if self.dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout acts on the output of every layer but the last, so it does nothing "
                f"with num_layers=1 (dropout={dropout})",
                stacklevel=2,
            )
        self.backend = _checks.choice("backend", backend, BACKENDS)
        self.memory = _checks.choice("memory", memory, MEMORIES)
        wide = isinstance(given.start, Tensor) and given.start.shape[-1] == hidden_size
        for layer, suffix in self._scans():
            I = input_size if layer == 0 else hidden_size * self._directions
            self._add_weights(
                suffix, hidden_size, hidden_size, inputs=I, bias=bias,
                index=layer if wide else (layer, 0), device=device, dtype=dtype,
            )  # fmt: skip
        # Parameters before filters: one seed gives the same W, b, W_i under every filter.
        self.reset_parameters(generator)
        for _, suffix in self._scans():
            source = {"generator": generator, "device": device, "dtype": dtype}
            self._add_filter(suffix, filter, hidden_size, **source)

    @classmethod
    def from_torch(
        cls,
        rnn: nn.RNN,
        *,
        rho: float | Tensor | None = None,
        horizon: float | None = None,
        alpha: float | Tensor | None = None,
        learn_rho: bool = False,
        filter: str | Tensor | Filter | dict[str, Any] = "broad",
        gain: float | Tensor | None = None,
        max_norm: float | str | None = "auto",
        generator: torch.Generator | None = None,
        backend: str = "auto",
        memory: str = "store",
    ) -> Self:
        """A layer with a copy of the weights of a `torch.nn.RNN`; the two biases become one.

        Args:
            rnn: the network to start from.
            rho, horizon, alpha, learn_rho: as in `RoaRNN`. With none of them α = 1, and the layer
                computes what `rnn` does; with a horizon its weights serve our recurrence.
            filter, gain, max_norm, generator, backend, memory: as in `RoaRNN`.

        Example:
            >>> theirs = torch.nn.RNN(3, 8, num_layers=2)
            >>> ours = RoaRNN.from_torch(theirs)
            >>> u = torch.randn(20, 4, 3)
            >>> bool((ours(u)[0] - theirs(u)[0]).abs().max() < 1e-5)
            True
        """
        if not isinstance(rnn, nn.RNN):
            got = type(rnn).__name__
            cure = "an LSTM or a GRU has gates, which this layer does not have"
            _checks.fail("rnn", "a torch.nn.RNN", got, cure, TypeError)
        if rho is None and horizon is None and alpha is None:
            alpha = 1.0
        W = next(rnn.parameters())
        with warnings.catch_warnings():  # of weights that are replaced below
            warnings.simplefilter("ignore", HypothesisWarning)
            layer = cls(
                rnn.input_size, rnn.hidden_size, rnn.num_layers, rnn.nonlinearity, rnn.bias,
                rnn.batch_first, rnn.dropout, rnn.bidirectional, W.device, W.dtype,
                rho=0.3 if rho is None else rho, horizon=horizon, alpha=alpha, learn_rho=learn_rho,
                filter=filter, init="uniform", gain=gain, max_norm=max_norm, generator=generator,
                backend=backend, memory=memory,
            )  # fmt: skip
        with torch.no_grad():
            for _, suffix in layer._scans():
                for name in ("weight_ih", "weight_hh"):
                    layer._tensor(name + suffix).copy_(getattr(rnn, name + suffix))
                if rnn.bias:
                    both = getattr(rnn, "bias_ih" + suffix) + getattr(rnn, "bias_hh" + suffix)
                    layer._tensor("bias" + suffix).copy_(both)
        layer._warned = False
        layer._warn()
        return layer.train(rnn.training)

    def cell(self, layer: int = 0, reverse: bool = False) -> RoaRNNCell:
        """One layer and direction as a `RoaRNNCell`, to go step by step.

        Parameters and filter are *shared*, not copied: train one and the other follows. Take the
        cell when the layer is on its device and in its dtype.

        Example:
            >>> rnn = RoaRNN(3, 8, horizon=100)
            >>> cell, u, x = rnn.cell(), torch.randn(5, 2, 3), torch.zeros(2, 8)
            >>> for u_k in u:
            ...     x = cell(u_k, x)
            >>> bool((x - rnn(u)[1][0]).abs().max() < 1e-5)
            True
            >>> cell.weight_hh is rnn.weight_hh_l0
            True
        """
        if _checks.size("layer", layer, least=0) >= self.num_layers:
            _checks.fail("layer", f"at most {self.num_layers - 1}", layer)
        if reverse and not self.bidirectional:
            _checks.fail("reverse", "False for a layer with one direction", reverse)
        suffix = f"_l{layer}" + ("_reverse" if reverse else "")
        W_i, alpha = self._tensor("weight_ih" + suffix), self.alpha_of(suffix)
        gain = self.gain_of(suffix)
        if isinstance(alpha, Tensor) and not alpha.dim():
            alpha = float(alpha.detach())
        # On meta: shapes without numbers, and no random draws.
        cell = RoaRNNCell(
            W_i.shape[1], self.hidden_size, self.bias, self.nonlinearity, "meta", W_i.dtype,
            alpha=alpha, learn_rho=self.learn_rho, filter=self._filter("filter" + suffix),
            init=self.init, gain=1.0 if gain is None else gain, max_norm=self.max_norm,
        )  # fmt: skip
        cell._buffers["_gain"] = gain
        if isinstance(alpha, Tensor) and not self.learn_rho:
            cell._alpha = alpha
        for name, _ in list(cell.named_parameters(recurse=False)):
            ours = self._tensor(name + suffix)
            if not isinstance(ours, nn.Parameter):
                _checks.fail(name + suffix, "a plain parameter to share", "a parametrized one")
            setattr(cell, name, ours)
        return cell

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    def _scans(self) -> list[tuple[int, str]]:
        """(layer, suffix of its names) for every layer and direction, in torch's order."""
        ends = ("", "_reverse")[: self._directions]
        return [(layer, f"_l{layer}{end}") for layer in range(self.num_layers) for end in ends]

    def roa_maps(self) -> RoaMaps:
        """The maps of every layer and direction as they stand, in torch's order."""
        D, first = self._directions, self.batch_first
        return super().roa_maps()._replace(directions=D, batch_first=first, stacked=True)

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """W_i, W and b of each layer and direction, as `torch.nn.RNN` lists them."""
        names = ("weight_ih", "weight_hh", *(("bias",) if self.bias else ()))
        return [[self._tensor(name + suffix) for name in names] for _, suffix in self._scans()]

    def flatten_parameters(self) -> None:
        """No-op, for compatibility with `torch.nn.RNN`."""

    def step(self, x: Tensor, u: Tensor, layer: int = 0) -> Tensor:
        """One step of one layer, forward in time: x (…, N) and u (…, I) give the next x (…, N)."""
        suffix = f"_l{layer}"
        W, W_i, b = self._effective(suffix)
        O, alpha = self._filter("filter" + suffix), self.alpha_of(suffix)
        return roa_step(x, W, O, alpha, u=u, W_i=W_i, b=b, nonlinearity=self.nonlinearity)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        last_only: bool = False,
    ) -> tuple[Tensor | PackedSequence | None, Tensor]:
        """(output, h_n), exactly as `torch.nn.RNN`.

        With last_only=True the output is None, and no (T, B, N) array of states need exist.
        """
        weight = self._tensor("weight_hh_l0")
        u, form = layout.enter(input, self.batch_first, self.input_size, weight)
        D, N = self._directions, self.hidden_size
        x0 = layout.enter_state(hx, form, (self.num_layers * D, N), weight)
        lasts: list[Tensor] = []
        for layer in range(self.num_layers):
            top = layer == self.num_layers - 1
            outputs = []
            for d in range(D):
                states, last = self._scan(
                    layer, d == 1, u, x0[layer * D + d], form, last_only and top
                )
                outputs.append(states)
                lasts.append(last)
            if not (last_only and top):
                states_all = [s for s in outputs if s is not None]
                u = states_all[0] if D == 1 else torch.cat(states_all, -1)
                if self.dropout > 0 and not top:
                    u = nn.functional.dropout(u, self.dropout, self.training)
        h_n = layout.leave_state(lasts[0][None] if len(lasts) == 1 else torch.stack(lasts), form)
        return (None if last_only else layout.leave(u, form)), h_n

    def _scan(
        self, layer: int, reverse: bool, u: Tensor, x0: Tensor, form: layout.Layout, last_only: bool
    ) -> tuple[Tensor | None, Tensor]:
        suffix = f"_l{layer}" + ("_reverse" if reverse else "")
        if reverse:
            u = layout.flip(u, form)
        W, W_i, b = self._effective(suffix)
        O, alpha = self._filter("filter" + suffix), self.alpha_of(suffix)
        states, last = roa_scan(
            x0, W, O, alpha, u=u, W_i=W_i, b=b, nonlinearity=self.nonlinearity,
            batch_sizes=form.batch_sizes, backend=self.backend, memory=self.memory,
            last_only=last_only,
        )  # fmt: skip
        if reverse and states is not None:
            states = layout.flip(states, form)
        return states, last
