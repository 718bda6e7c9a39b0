"""What the layers in continuous time share: inputs at any times, in any layout."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from roann import _checks
from roann.filters import Filter
from roann.filters.base import full_precision
from roann.functional import BACKENDS, roa_scan, roa_step
from roann.kernels.linear import Linear
from roann.kernels.memory import MEMORIES
from roann.kernels.watch import without_autocast
from roann.nn import layout, readings
from roann.nn.alpha import Alpha
from roann.nn.maps import RoaMaps
from roann.nn.module import Options, RoaModule


class ContinuousModule(RoaModule):
    """Abstract: one recurrent layer, W, W_i, b and O, whose inputs come at any times.

    A subclass says how an interval becomes a step: Note [Two readings of unequal intervals].
    """

    filter_l0: Filter
    reading: str
    method: str | None = None
    _defaults: ClassVar[dict[str, object]] = {
        "bias": True, "batch_first": False, "backend": "auto", "memory": "store",
    }  # fmt: skip

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        nonlinearity: str = "relu",
        bias: bool = True,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dt: float = 1.0,
        backend: str = "auto",
        memory: str = "store",
        **options: Unpack[Options],
    ) -> None:
        I, N = _checks.size("input_size", input_size), _checks.size("hidden_size", hidden_size)
        for name in options:
            if name not in Options.__annotations__:
                _checks.choice("option", name, Options.__annotations__)
        given = Alpha.given(
            options.get("rho", 0.3), options.get("horizon"), options.get("alpha"),
            options.get("learn_rho", False), N,
        )  # fmt: skip
        generator = options.get("generator")
        super().__init__(
            given, nonlinearity, device, dtype, init=options.get("init", "balanced"),
            gain=options.get("gain"), max_norm=options.get("max_norm", "auto"), features=N,
        )  # fmt: skip
        self.input_size, self.hidden_size, self.state_size = I, N, N
        self.bias, self.batch_first = bias, batch_first
        self.dt = _checks.real("dt", dt, positive=True)
        self.backend = _checks.choice("backend", backend, BACKENDS)
        self.memory = _checks.choice("memory", memory, MEMORIES)
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self._add_weights("_l0", N, N, inputs=I, bias=bias, **place)
        self.reset_parameters(generator)
        self._add_filter("_l0", options.get("filter", "broad"), N, generator=generator, **place)
        if self.reading == "isometric":
            readings.check(self.filter_l0)

    @abstractmethod
    def _taken(self, s: Tensor, stack: bool) -> tuple[Tensor, Linear]:
        """α_k and O_k of steps of s = Δt_k/Δt, (…, 1); a stack of them from s (T, 1)."""

    @property
    def tau(self) -> float | Tensor:
        """τ = dt / α: a number or (N,)."""
        return self.dt / self.alpha

    def friction(self) -> Tensor:
        """A = α⁻¹((1 − α) O − I) as a matrix (N, N), in float32 at least."""
        W = self.weight()
        O = self.filter_l0.to_dense().to(W.dtype)
        alpha = torch.as_tensor(self.alpha, dtype=W.dtype, device=W.device).expand(len(O))
        eye = torch.eye(len(O), dtype=W.dtype, device=W.device)
        return ((1 - alpha).unsqueeze(1) * O - eye) / alpha.unsqueeze(1)

    def weight(self) -> Tensor:
        """W as a matrix (N, N) under the cap, in float32 at least."""
        return self._capped(self._tensor("weight_hh_l0"))

    def _capped(self, W: Tensor) -> Tensor:
        return super()._capped(_full(W))

    def _driven(
        self, W_i: Tensor | None, b: Tensor | None, suffix: str
    ) -> tuple[Tensor | None, Tensor | None]:
        full = None if W_i is None else _full(W_i), None if b is None else _full(b)
        return super()._driven(*full, suffix)

    def roa_maps(self) -> RoaMaps:
        """The maps as they stand without time stamps; for intervals see `roann.nn.readings`."""
        covered = "any input at intervals of dt"
        return super().roa_maps()._replace(batch_first=self.batch_first, covered=covered)

    def _weight_settings(self) -> dict[str, Any]:
        names = ("dt", "reading", "method")
        return super()._weight_settings() | {name: getattr(self, name) for name in names}

    def step(self, x: Tensor, u: Tensor, interval: float | Tensor | None = None) -> Tensor:
        """The next state from x (…, N) and u (…, I) after `interval`, dt if not given.

        For x (B, N) it may be one number, or (B,) with one for each row.
        """
        dtype, kind = x.dtype, full_precision(x.dtype)
        x, u = x.to(kind), u.to(kind)
        if interval is None and self.method is None:
            return self._step(x, u, self.filter_l0, self.alpha).to(dtype)
        length = self.dt if interval is None else interval
        steps = torch.as_tensor(length, dtype=kind, device=x.device)
        self._fits(steps)
        return self._advance(x, u, steps).to(dtype)

    def _advance(self, x: Tensor, u: Tensor, steps: Tensor) -> Tensor:
        alphas, O = self._taken(steps.unsqueeze(-1) / self.dt, stack=False)
        return self._step(x, u, O, alphas)

    def _fits(self, steps: Tensor) -> None:
        """Refuse intervals that one step cannot take."""
        readings.fits(steps.detach().unsqueeze(-1) / self.dt * self.alpha, self.reading)

    def _step(self, x: Tensor, u: Tensor, O: Filter | Linear, alpha: float | Tensor) -> Tensor:
        W, W_i, b = self._effective("_l0")
        return roa_step(x, W, O, alpha, u=u, W_i=W_i, b=b, nonlinearity=self.nonlinearity)

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | None = None,
        *,
        times: Tensor | None = None,
        intervals: Tensor | None = None,
        last_only: bool = False,
    ) -> tuple[Tensor | PackedSequence | None, Tensor]:
        """(output, h_n) as `torch.nn.RNN`, at the times or after the intervals given.

        `times` are those of the inputs, and the first step takes dt; `intervals` are those before
        each input, the first included. For a `PackedSequence` they are padded to the longest, with
        whatever numbers.
        """
        weight = self._tensor("weight_hh_l0")
        u, form = layout.enter(input, self.batch_first, self.input_size, weight)
        x0 = layout.enter_state(hx, form, (1, self.hidden_size), weight)[0]
        u, x0 = _full(u), _full(x0)
        times, intervals = (_columns(t, form) for t in (times, intervals))
        steps = readings.intervals_of(times, intervals, self.dt, form.steps, form.batch)
        if steps is not None:
            if form.ragged is not None and steps.dim() == 2:
                steps = readings.within(steps, form.ragged.lengths)
            readings.moves_on(steps, "intervals" if times is None else "times")
        if steps is None or steps.dim() == 1:
            states, last = self._scan(x0, u, steps, form, last_only)
        else:
            states, last = self._loop(x0, u, steps, form)
        if full_precision(weight.dtype) != weight.dtype:
            last = last.to(weight.dtype)
            states = None if states is None else states.to(weight.dtype)
        h_n = layout.leave_state(last.unsqueeze(0), form)
        return (None if last_only or states is None else layout.leave(states, form)), h_n

    def _scan(
        self, x0: Tensor, u: Tensor, steps: Tensor | None, form: layout.Layout, last_only: bool
    ) -> tuple[Tensor | None, Tensor]:
        """One scan, with an α and an O of each step where there are intervals."""
        weight, W_i, b = self._effective("_l0")
        alpha: float | Tensor = self.alpha
        O: Filter | Linear = self.filter_l0
        if steps is not None:
            self._fits(steps.to(weight.device))
            alpha, O = self._taken((steps / self.dt).to(weight).unsqueeze(1), stack=True)
        return roa_scan(
            x0, weight, O, alpha, u=u, W_i=W_i, b=b, nonlinearity=self.nonlinearity,
            batch_sizes=form.batch_sizes, backend=self.backend, memory=self.memory,
            last_only=last_only,
        )  # fmt: skip

    def _loop(
        self, x: Tensor, u: Tensor, steps: Tensor | None, form: layout.Layout
    ) -> tuple[Tensor, Tensor]:
        """Step after step, where rows differ or a solver takes steps of its own."""
        weight, states = self.weight(), []
        with without_autocast(u):
            u, x = u.to(weight.dtype), x.to(weight.dtype)
            stamps = torch.full((form.steps,), self.dt) if steps is None else steps
            steps = stamps.to(weight)
            self._fits(steps)
            inputs = u if form.ragged is None else torch.split(u, list(form.ragged.sizes))
            for k, here in enumerate(inputs):
                n = len(here)
                length = steps[k, :n] if steps.dim() == 2 else steps[k]
                new = self._advance(x[:n], here, length)
                x = new if n == x.shape[0] else torch.cat([new, x[n:]])
                states.append(new)
        return (torch.stack(states) if form.ragged is None else torch.cat(states)), x

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments that rebuild this module, as JSON can hold them."""
        return super().settings() | {"dt": self.dt}

    def _facts(self) -> list[str]:
        return [*super()._facts(), f"dt={self.dt:g}"]


def _full(t: Tensor) -> Tensor:
    """In float32 at least: as in a scan, the state is not rounded T times."""
    return t.to(full_precision(t.dtype))


def upgraded(kind: object, settings: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    """Class and settings of a file from before `RoaODE` became `RoaODE`, `RoaEuler`, `RoaFlow`."""
    if kind != "RoaODE" or settings.get("matrices") != "roa":
        return kind, settings
    gone = {"matrices", "beta", "gamma", "reading", "method", "tolerance"}
    own = {name: value for name, value in settings.items() if name not in gone}
    if settings.get("method") is None:
        return "RoaEuler" if settings.get("reading") == "euler" else "RoaODE", own
    solved = {name: settings.get(name) for name in ("reading", "method", "tolerance")}
    own = {name: value for name, value in own.items() if name not in ("backend", "memory")}
    return "RoaFlow", own | solved


def _columns(t: Tensor | None, form: layout.Layout) -> Tensor | None:
    """Times or intervals as (T,) or (T, B), rows in the order of the scan."""
    if not isinstance(t, Tensor) or t.dim() != 2:
        return t
    if form.batch_first:
        return t.mT
    if form.packed is not None and form.packed.sorted_indices is not None:
        return t.index_select(1, form.packed.sorted_indices.to(t.device))
    return t
