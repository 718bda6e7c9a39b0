"""The roaFNN: the same scan over depth, its layers stacked into a handful of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from roann import _checks
from roann.filters import Filter
from roann.filters.base import full_precision
from roann.functional import BACKENDS, roa_scan, step
from roann.kernels.activations import ACTIVATIONS, Activation
from roann.kernels.linear import Linear
from roann.kernels.memory import MEMORIES
from roann.nn.alpha import Alpha
from roann.nn.module import RoaModule
from roann.theorem import Interval, roa_bounds, schatten


class Run(NamedTuple):
    """`depth` consecutive maps from n_in to n_out neurons; more than one only if n_in = n_out."""

    depth: int
    n_in: int
    n_out: int


class RoaFNN(RoaModule):
    r"""A random orthogonal additive feed-forward network of any depth.

    .. math:: x_{l+1} = \alpha\, \phi(W_l x_l + b_l) + (1 - \alpha)\, O_l x_l,
        \quad \alpha = \rho / \mathrm{horizon}

    Consecutive maps of one width are one *run*: `weight_0` (depth, N, N), `bias_0` (depth, N) and a
    stacked `filter_0` hold all of them, so that 50,000 layers are a handful of tensors.

    Args:
        sizes: the widths N_0 … N_L; there are len(sizes) − 1 maps.
        nonlinearity: the name of φ, on every map.
        bias: whether there are b_l.
        device: where parameters and filters live.
        dtype: their dtype.
        rho: ρ, 1 by default; α = ρ / horizon. A number, a tensor (M, 1) with one for each map, or,
            if all maps have the same output width, (N,) with one per neuron, or (M, N) for both.
        horizon: the number of maps, if not given otherwise.
        alpha: α itself in place of rho and horizon, a number or a tensor likewise.
        learn_rho: learn ρ from that first value, a number (or vector) of its own for every map:
            `alpha_logit_0` (depth, 1) or (depth, N) holds the logits of α. See `RoaRNN`.
        filter: O_l by name, or a matrix or filter of the one shape all maps have.
        recycle: use one filter for all maps of the same shape (strategy II).
        gain: γ on b_l, as in `RoaRNN`; 1 by default, because no input enters map after map.
        max_norm: as in `RoaRNN`; none by default, because every map has a W of its own, whose norm
            costs more than its products with a small batch.
        init: as in `RoaRNN`, but "balanced" draws b from N(0, 1) here: no input drives the maps.
        generator, backend, memory: as in `RoaRNN`.

    Shape: x (…, N_0) gives (…, N_L).

    Example:
        >>> net = RoaFNN([2] * 49 + [1], rho=5.0, generator=torch.Generator().manual_seed(0))
        >>> sum(p.numel() for p in net.parameters())
        291
        >>> net(torch.randn(7, 2)).shape
        torch.Size([7, 1])

    Reference: Eq. (12), Theorem II.1 and Appendix C of the paper.
    """

    _W = "weight"
    _sizes = ()

    def __init__(
        self,
        sizes: Sequence[int],
        nonlinearity: str = "tanh",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        rho: float | Tensor = 1.0,
        horizon: float | None = None,
        alpha: float | Tensor | None = None,
        learn_rho: bool = False,
        filter: str | Tensor | Filter | dict[str, Any] = "broad",
        recycle: bool = False,
        init: str = "balanced",
        gain: float | Tensor | None = 1.0,
        max_norm: float | str | None = None,
        generator: torch.Generator | None = None,
        backend: str = "auto",
        memory: str = "store",
    ) -> None:
        if isinstance(sizes, int) or len(sizes) < 2:
            _checks.fail("sizes", "at least two widths, from input to output", sizes)
        self.sizes = tuple(sizes)
        for width in set(self.sizes):
            _checks.size("sizes", width)
        if alpha is None and horizon is None:
            horizon = len(self.sizes) - 1
        outs = set(self.sizes[1:])
        features = self.sizes[-1] if len(outs) == 1 else None
        given = Alpha.given(rho, horizon, alpha, learn_rho, features, len(self.sizes) - 1)
        super().__init__(
            given, nonlinearity, device, dtype,
            init=init, gain=gain, max_norm=max_norm, features=features,
        )  # fmt: skip
        self.runs = _runs(self.sizes)
        self.bias, self.recycle = bias, recycle
        self.backend = _checks.choice("backend", backend, BACKENDS)
        self.memory = _checks.choice("memory", memory, MEMORIES)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        first = 0
        for i, run in enumerate(self.runs):
            rows, shape = slice(first, first + run.depth), (run.depth, run.n_out, run.n_in)
            self._add_weights(f"_{i}", *shape, bias=bias, index=rows, **place)
            first += run.depth
        self.reset_parameters(generator)
        shared: dict[tuple[int, int], Filter] = {}
        for i, run in enumerate(self.runs):
            square = (run.n_out, run.n_in)
            O = shared.get(square) if recycle else None
            if O is None:
                depth = None if recycle else run.depth
                source = {"depth": depth, "generator": generator, **place}
                shared[square] = self._add_filter(f"_{i}", filter, *square, **source)
            else:
                self._add_filter(f"_{i}", O, *square)

    def interval(self, steps: int | None = None) -> Interval:
        """Where the singular values of the network's Jacobian lie, for any input.

        With `max_norm` it holds for all weights, so throughout training. Its `count` says how many,
        from the largest, the lower end covers.

        Args:
            steps: None; the maps of the network are all there are.

        Example:
            >>> net = roann.RoaFNN([4] * 101, max_norm=2.0)
            >>> print(net.interval())
            [0.0476, 2.7]

        Reference: Theorem II.1 of the paper, in its finite form; Note [Widths].
        """
        if steps is not None:
            _checks.fail("steps", "None for a network in depth", steps)
        alphas, sigmas = [], []
        for run, (W, alpha) in zip(self.runs, self._maps(), strict=True):
            rows = torch.as_tensor(alpha, dtype=torch.float64).detach()
            low, high = rows.amin(-1), rows.amax(-1)
            ends = torch.stack([low, high], -1) if rows.dim() else rows.expand(1, 2)
            alphas.append(ends.expand(run.depth, 2))
            bound = schatten(W.detach().double())
            sigmas.append(torch.full_like(bound, self.max_norm) if self.max_norm else bound)
        r = ACTIVATIONS[self.nonlinearity].r
        return roa_bounds(torch.cat(alphas), torch.cat(sigmas), r=r, widths=self.sizes).sharp

    def forward(self, x: Tensor) -> Tensor:
        """The output of the last map."""
        if x.dim() == 0 or x.shape[-1] != self.sizes[0]:
            got = tuple(x.shape)
            _checks.fail(
                "x", f"{self.sizes[0]} features in the last dimension", got, error=RuntimeError
            )
        _checks.same_dtype("x", x, self._tensor("weight_0"))
        _checks.same_device("x", x, self._tensor("weight_0"))
        lead, dtype = x.shape[:-1], x.dtype
        # Half precision is for parameters, input and output: the state is not rounded in between.
        full = full_precision(dtype)
        x = x.reshape(-1, x.shape[-1]).to(full)
        for i, run in enumerate(self.runs):
            W, _, b = self._effective(f"_{i}")
            if W.dtype is not full:
                W, b = W.to(full), None if b is None else b.to(full)
            O, alpha = self._filter(f"filter_{i}"), self.alpha_of(f"_{i}")
            if run.n_in != run.n_out and self.backend == "auto" and self.memory == "store":
                x = _one_map(x, W, b, O.form(), alpha, ACTIVATIONS[self.nonlinearity])
                continue
            _, x = roa_scan(
                x, W, O, alpha, b=b, nonlinearity=self.nonlinearity, backend=self.backend,
                memory=self.memory, last_only=True,
            )  # fmt: skip
        return x.reshape(*lead, x.shape[-1]).to(dtype)

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments that rebuild this module, as JSON can hold them."""
        lengths = [[width, len(list(same))] for width, same in groupby(self.sizes)]
        return super().settings() | {
            "sizes": {"run_lengths": lengths},
            "recycle": self.recycle,
            "backend": self.backend,
            "memory": self.memory,
        }

    def _facts(self) -> list[str]:
        widths = " → ".join(
            f"{width}" + (f" (×{n})" if (n := len(list(same))) > 1 else "")
            for width, same in groupby(self.sizes)
        )
        return [widths, str(self._given)]


def _one_map(
    x: Tensor, W: Tensor, b: Tensor | None, O: Linear, alpha: float | Tensor, phi: Activation
) -> Tensor:
    """A stack of one rectangular map, for which no kernel is faster than operations of torch."""
    b = None if b is None else b.squeeze(0)
    alpha = alpha[0] if isinstance(alpha, Tensor) and alpha.dim() == 2 else alpha
    return step(x, None, W.squeeze(0), None, b, O.at(0), alpha, phi)


def _runs(sizes: tuple[int, ...]) -> list[Run]:
    runs: list[Run] = []
    for (n_in, n_out), same in groupby(pairwise(sizes)):
        count = sum(1 for _ in same)
        runs += [Run(count, n_in, n_out)] if n_in == n_out else [Run(1, n_in, n_out)] * count
    return runs
